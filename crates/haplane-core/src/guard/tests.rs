use super::*;
use crate::snapshot::Pair;
use proptest::prelude::*;

const MARKER: (&str, &str) = (".haplane", "m1");

fn snapshot(index: u64, pairs: &[(&str, &str)]) -> Snapshot {
    Snapshot::new(
        index,
        pairs.iter().map(|(path, value)| Pair {
            path: (*path).to_owned(),
            value: value.as_bytes().to_vec(),
            version: 1,
            log_id: None,
        }),
    )
}

fn default_read(index: u64, pairs: &[(&str, &str)]) -> Reading {
    Reading {
        snapshot: snapshot(index, pairs),
        consistent: false,
        has_leader: true,
        extent: Extent::Whole,
        index_covers_content: true,
    }
}

fn consistent_read(index: u64, pairs: &[(&str, &str)]) -> Reading {
    Reading {
        consistent: true,
        ..default_read(index, pairs)
    }
}

impl Guard {
    fn sees(&mut self, reading: Reading) -> Verdict {
        self.judge(reading, Instant::now())
    }
}

/// Ask by name whether these are absent.
fn absent(paths: &[&str]) -> Verdict {
    Verdict::Probe(Probe {
        absent: paths.iter().map(|&path| path.to_owned()).collect(),
        present: None,
    })
}

/// Ask by name whether this is there.
fn present(path: &str) -> Verdict {
    Verdict::Probe(Probe {
        absent: Vec::new(),
        present: Some((path.to_owned(), 1)),
    })
}

/// A guard that has accepted `canary = drain` at index 10.
fn settled() -> Guard {
    let mut guard = Guard::new(true);
    let verdict = guard.sees(consistent_read(10, &[MARKER, ("canary", "drain")]));
    assert!(matches!(verdict, Verdict::Accept(_, Arrival::First)));
    assert_eq!(guard.next_mode(), Mode::Blocking(10));
    guard
}

fn arrival(verdict: &Verdict) -> Option<Arrival> {
    match verdict {
        Verdict::Accept(_, arrival) => Some(*arrival),
        _ => None,
    }
}

#[test]
fn the_first_read_has_to_be_consistent() {
    let mut guard = Guard::new(true);
    assert_eq!(guard.next_mode(), Mode::Consistent);
    assert_eq!(guard.sees(default_read(5, &[MARKER])), Verdict::Confirm);
    assert_eq!(
        arrival(&guard.sees(consistent_read(5, &[MARKER]))),
        Some(Arrival::First)
    );
}

#[test]
fn without_the_marker_nothing_is_a_snapshot() {
    let mut fresh = Guard::new(true);
    assert_eq!(
        fresh.sees(consistent_read(1, &[])),
        Verdict::Refuse(Refusal::MarkerMissing)
    );
    let mut guard = settled();
    for pairs in [&[][..], &[("canary", "ready")]] {
        assert_eq!(
            guard.sees(consistent_read(11, pairs)),
            Verdict::Refuse(Refusal::MarkerMissing)
        );
        assert_eq!(guard.next_mode(), Mode::Consistent);
        assert_eq!(guard.last().unwrap().index, 10);
    }
}

#[test]
fn a_changed_value_is_taken_at_once() {
    let mut guard = settled();
    let verdict = guard.sees(default_read(11, &[MARKER, ("canary", "maint")]));
    assert_eq!(arrival(&verdict), Some(Arrival::Newer));
}

#[test]
fn a_key_that_is_gone_is_asked_for_by_name() {
    let gone = || default_read(11, &[MARKER, ("other", "drain")]);
    let probe = absent(&["canary"]);

    let mut guard = settled();
    assert_eq!(guard.sees(gone()), probe);
    assert_eq!(guard.last().unwrap().index, 10, "not before the probe");
    assert_eq!(
        arrival(&guard.probed(Probed::Confirmed)),
        Some(Arrival::Newer)
    );

    let mut guard = settled();
    assert_eq!(guard.sees(gone()), probe);
    assert_eq!(
        guard.probed(Probed::Denied),
        Verdict::Refuse(Refusal::Denied)
    );
    assert_eq!(guard.next_mode(), Mode::Consistent);

    let mut guard = settled();
    assert_eq!(guard.sees(gone()), probe);
    assert_eq!(guard.probed(Probed::Contradicted), Verdict::Confirm);

    let mut guard = settled();
    assert_eq!(guard.sees(gone()), probe);
    guard.doubt();
    assert_eq!(
        guard.probed(Probed::Confirmed),
        Verdict::Confirm,
        "the suspect was dropped"
    );
}

#[test]
fn every_vanished_key_is_asked_for_by_name() {
    let names: Vec<String> = (0..1000).map(|n| format!("k{n:04}")).collect();
    let mut pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "drain")).collect();
    pairs.push(MARKER);
    let mut guard = Guard::new(true);
    guard.sees(consistent_read(10, &pairs));
    let verdict = guard.sees(consistent_read(11, &[MARKER]));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(verdict, absent(&names));
}

#[test]
fn what_an_earlier_run_knew_has_to_be_gone_honestly() {
    let kept = || Arc::new(snapshot(10, &[MARKER, ("canary", "drain")]));
    let gone = || consistent_read(11, &[MARKER]);
    let probe = absent(&["canary"]);

    let mut guard = Guard::new(true).after(kept());
    assert_eq!(guard.next_mode(), Mode::Consistent);
    assert_eq!(guard.sees(default_read(11, &[MARKER])), Verdict::Confirm);
    assert_eq!(guard.sees(gone()), probe);
    let denied = Verdict::Refuse(Refusal::Denied);
    assert_eq!(guard.probed(Probed::Denied), denied);
    assert_eq!(guard.sees(gone()), probe, "still not forgotten");
    assert_eq!(
        arrival(&guard.probed(Probed::Confirmed)),
        Some(Arrival::First)
    );

    let mut guard = Guard::new(true).after(kept());
    let same = consistent_read(10, &[MARKER, ("canary", "drain")]);
    let first = guard.sees(same.clone());
    assert_eq!(arrival(&first), Some(Arrival::First), "the store said it");
    assert_eq!(guard.sees(same), Verdict::Unchanged);

    let nothing = Arc::new(snapshot(10, &[]));
    let mut guard = Guard::new(false).after(nothing);
    let empty = guard.sees(consistent_read(11, &[]));
    assert_eq!(empty, absent(&[".haplane"]));
}

#[test]
fn a_list_that_was_filtered_is_refused() {
    for mut guard in [Guard::new(true), settled()] {
        let filtered = Reading {
            extent: Extent::Filtered,
            ..consistent_read(11, &[MARKER, ("canary", "drain"), ("x", "drain")])
        };
        let denied = Verdict::Refuse(Refusal::Denied);
        assert_eq!(guard.sees(filtered), denied);
        assert_eq!(guard.next_mode(), Mode::Consistent);
    }
}

#[test]
fn losing_every_key_wants_a_consistent_read_and_a_probe() {
    let mut guard = settled();
    assert_eq!(guard.sees(default_read(11, &[MARKER])), Verdict::Confirm);
    assert!(matches!(
        guard.sees(consistent_read(11, &[MARKER])),
        Verdict::Probe(_)
    ));
    assert_eq!(
        arrival(&guard.probed(Probed::Confirmed)),
        Some(Arrival::Newer)
    );
}

#[test]
fn going_back_has_to_be_confirmed_and_is_then_obeyed() {
    let mut guard = settled();
    let old = [MARKER, ("canary", "ready")];
    assert_eq!(guard.sees(default_read(4, &old)), Verdict::Confirm);
    assert_eq!(guard.next_mode(), Mode::Consistent);
    // The same may come from a cache on the way: a second, different read has to say it.
    assert_eq!(guard.sees(consistent_read(4, &old)), present("canary"));
    assert_eq!(guard.probed(Probed::Contradicted), Verdict::Confirm);
    assert_eq!(guard.last().unwrap().index, 10);
    assert_eq!(guard.sees(consistent_read(4, &old)), present("canary"));
    assert_eq!(
        arrival(&guard.probed(Probed::Confirmed)),
        Some(Arrival::Restored)
    );
    assert_eq!(guard.next_mode(), Mode::Blocking(4));
}

#[test]
fn another_marker_is_another_store() {
    let mut guard = settled();
    let new = [(".haplane", "m2"), ("canary", "drain")];
    assert_eq!(guard.sees(default_read(40, &new)), Verdict::Confirm);
    assert_eq!(guard.sees(consistent_read(40, &new)), present(".haplane"));
    assert_eq!(
        arrival(&guard.probed(Probed::Confirmed)),
        Some(Arrival::Reinitialised)
    );
}

#[test]
fn the_same_index_cannot_say_something_else() {
    let mut guard = settled();
    let other = [MARKER, ("canary", "ready")];
    assert_eq!(guard.sees(default_read(10, &other)), Verdict::Confirm);

    let mut guard = settled();
    let by_hand = Reading {
        index_covers_content: false,
        ..consistent_read(10, &other)
    };
    assert_eq!(arrival(&guard.sees(by_hand)), Some(Arrival::Newer));
}

#[test]
fn after_a_failure_only_a_consistent_read_counts() {
    let mut guard = settled();
    guard.doubt();
    assert_eq!(guard.next_mode(), Mode::Consistent);
    let replayed = [MARKER, ("canary", "ready")];
    assert_eq!(guard.sees(default_read(12, &replayed)), Verdict::Confirm);
    let same = consistent_read(10, &[MARKER, ("canary", "drain")]);
    assert_eq!(guard.sees(same), Verdict::Unchanged);
    assert_eq!(guard.next_mode(), Mode::Blocking(10));
}

#[test]
fn no_leader_and_impossible_indexes_are_refused() {
    let mut guard = settled();
    let lost = Reading {
        has_leader: false,
        ..consistent_read(11, &[MARKER])
    };
    assert_eq!(guard.sees(lost), Verdict::Refuse(Refusal::NoLeader));
    for index in [0, u64::MAX] {
        assert_eq!(
            guard.sees(consistent_read(index, &[MARKER])),
            Verdict::Refuse(Refusal::BadIndex)
        );
    }
}

#[test]
fn without_required_marker_emptiness_is_confirmed_by_name() {
    let mut guard = Guard::new(false);
    assert_eq!(guard.sees(consistent_read(1, &[])), absent(&[".haplane"]));
    assert_eq!(
        guard.probed(Probed::Denied),
        Verdict::Refuse(Refusal::Denied)
    );
    assert_eq!(guard.sees(consistent_read(1, &[])), absent(&[".haplane"]));
    assert_eq!(
        arrival(&guard.probed(Probed::Confirmed)),
        Some(Arrival::First)
    );
    let filled = guard.sees(default_read(2, &[("canary", "drain")]));
    assert_eq!(arrival(&filled), Some(Arrival::Newer));
    assert_eq!(guard.sees(default_read(3, &[])), Verdict::Confirm);
    assert!(matches!(
        guard.sees(consistent_read(3, &[])),
        Verdict::Probe(_)
    ));
}

/// Consul 1.8 forgets a deletion after some 15 minutes; the index of the prefix, which was that of
/// the deletion, falls to that of the newest key left.
#[test]
fn a_forgotten_deletion_is_no_restored_backup() {
    let mut guard = settled();
    let kept = [MARKER, ("canary", "drain")];
    assert_eq!(guard.sees(default_read(8, &kept)), Verdict::Confirm);
    assert_eq!(guard.sees(consistent_read(8, &kept)), Verdict::Unchanged);
    assert_eq!(guard.last().unwrap().index, 10, "what was proven stays so");
    assert_eq!(guard.next_mode(), Mode::Blocking(8));
    assert_eq!(guard.sees(default_read(8, &kept)), Verdict::Unchanged);
    let write = guard.sees(default_read(14, &[MARKER, ("canary", "maint")]));
    assert_eq!(arrival(&write), Some(Arrival::Newer));
    // A backup in which the keys are from before is one, at whatever index.
    guard.sees(default_read(9, &kept));
    assert_eq!(guard.sees(consistent_read(9, &kept)), present("canary"));
    let backup = guard.probed(Probed::Confirmed);
    assert_eq!(arrival(&backup), Some(Arrival::Restored));
}

const REFILLING: Verdict = Verdict::Refuse(Refusal::Refilling);

/// `consul kv import` writes key after key, the marker first.
#[test]
fn an_emptied_store_that_is_filled_again_is_not_believed_before_it_stands_still() {
    let all = [MARKER, ("a", "drain"), ("b", "drain"), ("canary", "drain")];
    for was_seen_empty in [true, false] {
        let mut guard = Guard::new(true);
        guard.sees(consistent_read(10, &all));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        // As it comes back, its marker is another key of the same text.
        let back = |index, keys: &[(&str, &str)]| {
            let mut reading = consistent_read(index, keys);
            reading.snapshot.marker_version = 30;
            reading
        };
        if was_seen_empty {
            guard.judge(consistent_read(11, &[]), at(0));
        }
        assert_eq!(guard.judge(back(12, &all[..1]), at(1)), REFILLING);
        assert_eq!(guard.judge(back(13, &all[..2]), at(10)), REFILLING);
        assert_eq!(guard.judge(back(14, &all[..3]), at(19)), REFILLING);
        assert_eq!(guard.next_mode(), Mode::Consistent);
        assert_eq!(guard.last().unwrap().index, 10);
        // One never comes back: gone, once nothing has come for a while.
        assert_eq!(guard.judge(back(14, &all[..3]), at(28)), REFILLING);
        let verdict = guard.judge(back(14, &all[..3]), at(29));
        assert_eq!(verdict, absent(&["canary"]));
        let gone = guard.probed(Probed::Confirmed);
        assert_eq!(arrival(&gone), Some(Arrival::Newer));
        // All are back: it is well at once. And then it is a store like any other.
        let whole = guard.judge(back(15, &all), at(30));
        assert_eq!(arrival(&whole), Some(Arrival::Newer));
        let cleared = guard.judge(back(16, &all[..2]), at(30));
        assert_eq!(cleared, absent(&["b", "canary"]));
    }
}

#[test]
fn a_lost_store_settles_anew_after_every_failure_but_not_for_a_value() {
    let all = [MARKER, ("a", "drain"), ("canary", "drain")];
    let mut guard = Guard::new(true);
    guard.sees(consistent_read(50, &all));
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let other = |index, text| consistent_read(index, &[(".haplane", "m2"), ("a", text)]);
    assert_eq!(guard.judge(other(3, "drain"), at(0)), REFILLING);
    assert_eq!(guard.judge(other(4, "maint"), at(9)), REFILLING);
    guard.doubt();
    assert_eq!(guard.judge(other(4, "maint"), at(12)), REFILLING);
    let verdict = guard.judge(other(5, "drain"), at(22));
    assert!(matches!(verdict, Verdict::Probe(_)), "{verdict:?}");
    let new = guard.probed(Probed::Confirmed);
    assert_eq!(arrival(&new), Some(Arrival::Reinitialised));
}

/// A restore from a backup brings all back at once, its marker with it.
#[test]
fn a_backup_without_some_keys_is_obeyed_without_a_wait() {
    let mut guard = Guard::new(true);
    guard.sees(consistent_read(
        50,
        &[MARKER, ("a", "drain"), ("b", "drain")],
    ));
    let backup = consistent_read(9, &[MARKER, ("a", "maint")]);
    let probe = Probe {
        absent: vec!["b".to_owned()],
        present: Some(("a".to_owned(), 1)),
    };
    assert_eq!(guard.sees(backup), Verdict::Probe(probe));
    let restored = guard.probed(Probed::Confirmed);
    assert_eq!(arrival(&restored), Some(Arrival::Restored));
}

/// What a store may do to us, one step.
#[derive(Clone, Debug)]
enum Step {
    Fail,
    Read {
        index: u64,
        marker: bool,
        leader: bool,
        consistent: bool,
        keys: Vec<usize>,
    },
    Probed(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Fail),
        (
            0u64..30,
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
            prop::collection::vec(0usize..4, 0..4)
        )
            .prop_map(|(index, marker, leader, consistent, keys)| Step::Read {
                index,
                marker,
                leader,
                consistent,
                keys
            }),
        (0usize..3).prop_map(Step::Probed),
    ]
}

proptest! {
    /// Whatever comes, a key leaves the snapshot only after it was probed and found absent, and the
    /// first snapshot, and the first after a failure, come from consistent reads.
    #[test]
    fn no_read_takes_a_key_away_unprobed(steps in prop::collection::vec(step(), 1..60)) {
        let names = ["a", "b", "c", "d"];
        let mut guard = Guard::new(true);
        let mut consistent_since_failure = false;
        for step in steps {
            let before = guard.last().cloned();
            let mut honest_absence = false;
            let verdict = match step {
                Step::Fail => {
                    guard.doubt();
                    consistent_since_failure = false;
                    continue;
                }
                Step::Probed(which) => {
                    honest_absence = which == 0;
                    guard.probed([Probed::Confirmed, Probed::Contradicted, Probed::Denied][which])
                }
                Step::Read { index, marker, leader, consistent, keys } => {
                    let mut pairs: Vec<_> = keys.iter().map(|&k| (names[k], "drain")).collect();
                    if marker {
                        pairs.push(MARKER);
                    }
                    consistent_since_failure |= consistent;
                    guard.sees(Reading {
                        snapshot: snapshot(index, &pairs),
                        consistent,
                        has_leader: leader,
                        extent: Extent::Whole,
                        index_covers_content: true,
                    })
                }
            };
            if let Verdict::Accept(new, _) = verdict {
                prop_assert!(consistent_since_failure);
                prop_assert!(new.marker.is_some());
                if let Some(before) = before {
                    prop_assert!(before.vanished_in(&new).next().is_none() || honest_absence);
                }
            }
        }
    }
}
