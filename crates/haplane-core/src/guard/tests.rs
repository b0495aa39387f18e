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

/// A guard that has accepted `canary = drain` at index 10.
fn settled() -> Guard {
    let mut guard = Guard::new(true);
    let verdict = guard.judge(consistent_read(10, &[MARKER, ("canary", "drain")]));
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
    assert_eq!(guard.judge(default_read(5, &[MARKER])), Verdict::Confirm);
    assert_eq!(
        arrival(&guard.judge(consistent_read(5, &[MARKER]))),
        Some(Arrival::First)
    );
}

#[test]
fn without_the_marker_nothing_is_a_snapshot() {
    let mut fresh = Guard::new(true);
    assert_eq!(
        fresh.judge(consistent_read(1, &[])),
        Verdict::Refuse(Refusal::MarkerMissing)
    );
    let mut guard = settled();
    for pairs in [&[][..], &[("canary", "ready")]] {
        assert_eq!(
            guard.judge(consistent_read(11, pairs)),
            Verdict::Refuse(Refusal::MarkerMissing)
        );
        assert_eq!(guard.next_mode(), Mode::Consistent);
        assert_eq!(guard.last().unwrap().index, 10);
    }
}

#[test]
fn a_changed_value_is_taken_at_once() {
    let mut guard = settled();
    let verdict = guard.judge(default_read(11, &[MARKER, ("canary", "maint")]));
    assert_eq!(arrival(&verdict), Some(Arrival::Newer));
}

#[test]
fn a_key_that_is_gone_is_asked_for_by_name() {
    let gone = || default_read(11, &[MARKER, ("other", "drain")]);
    let probe = Verdict::Probe(Probe::Paths(vec!["canary".to_owned()]));

    let mut guard = settled();
    assert_eq!(guard.judge(gone()), probe);
    assert_eq!(guard.last().unwrap().index, 10, "not before the probe");
    assert_eq!(arrival(&guard.probed(Probed::Absent)), Some(Arrival::Newer));

    let mut guard = settled();
    assert_eq!(guard.judge(gone()), probe);
    assert_eq!(
        guard.probed(Probed::Denied),
        Verdict::Refuse(Refusal::Denied)
    );
    assert_eq!(guard.next_mode(), Mode::Consistent);

    let mut guard = settled();
    assert_eq!(guard.judge(gone()), probe);
    assert_eq!(guard.probed(Probed::Present), Verdict::Confirm);

    let mut guard = settled();
    assert_eq!(guard.judge(gone()), probe);
    guard.doubt();
    assert_eq!(
        guard.probed(Probed::Absent),
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
    guard.judge(consistent_read(10, &pairs));
    let verdict = guard.judge(consistent_read(11, &[MARKER]));
    assert_eq!(verdict, Verdict::Probe(Probe::Paths(names)));
}

#[test]
fn what_an_earlier_run_knew_has_to_be_gone_honestly() {
    let kept = || Arc::new(snapshot(10, &[MARKER, ("canary", "drain")]));
    let gone = || consistent_read(11, &[MARKER]);
    let probe = Verdict::Probe(Probe::Paths(vec!["canary".to_owned()]));

    let mut guard = Guard::new(true).after(kept());
    assert_eq!(guard.next_mode(), Mode::Consistent);
    assert_eq!(guard.judge(default_read(11, &[MARKER])), Verdict::Confirm);
    assert_eq!(guard.judge(gone()), probe);
    let denied = Verdict::Refuse(Refusal::Denied);
    assert_eq!(guard.probed(Probed::Denied), denied);
    assert_eq!(guard.judge(gone()), probe, "still not forgotten");
    assert_eq!(arrival(&guard.probed(Probed::Absent)), Some(Arrival::First));

    let mut guard = Guard::new(true).after(kept());
    let same = consistent_read(10, &[MARKER, ("canary", "drain")]);
    let first = guard.judge(same.clone());
    assert_eq!(arrival(&first), Some(Arrival::First), "the store said it");
    assert_eq!(guard.judge(same), Verdict::Unchanged);

    let nothing = Arc::new(snapshot(10, &[]));
    let mut guard = Guard::new(false).after(nothing);
    let empty = guard.judge(consistent_read(11, &[]));
    assert_eq!(empty, Verdict::Probe(Probe::Marker));
}

#[test]
fn a_list_that_was_filtered_is_refused() {
    for mut guard in [Guard::new(true), settled()] {
        let filtered = Reading {
            extent: Extent::Filtered,
            ..consistent_read(11, &[MARKER, ("canary", "drain"), ("x", "drain")])
        };
        let denied = Verdict::Refuse(Refusal::Denied);
        assert_eq!(guard.judge(filtered), denied);
        assert_eq!(guard.next_mode(), Mode::Consistent);
    }
}

#[test]
fn losing_every_key_wants_a_consistent_read_and_a_probe() {
    let mut guard = settled();
    assert_eq!(guard.judge(default_read(11, &[MARKER])), Verdict::Confirm);
    assert!(matches!(
        guard.judge(consistent_read(11, &[MARKER])),
        Verdict::Probe(_)
    ));
    assert_eq!(arrival(&guard.probed(Probed::Absent)), Some(Arrival::Newer));
}

#[test]
fn going_back_has_to_be_confirmed_and_is_then_obeyed() {
    let mut guard = settled();
    let old = [MARKER, ("canary", "ready")];
    assert_eq!(guard.judge(default_read(4, &old)), Verdict::Confirm);
    assert_eq!(guard.next_mode(), Mode::Consistent);
    assert_eq!(
        arrival(&guard.judge(consistent_read(4, &old))),
        Some(Arrival::Restored)
    );
    assert_eq!(guard.next_mode(), Mode::Blocking(4));
}

#[test]
fn another_marker_is_another_store() {
    let mut guard = settled();
    let new = [(".haplane", "m2"), ("canary", "drain")];
    assert_eq!(guard.judge(default_read(40, &new)), Verdict::Confirm);
    assert_eq!(
        arrival(&guard.judge(consistent_read(40, &new))),
        Some(Arrival::Reinitialised)
    );
}

#[test]
fn the_same_index_cannot_say_something_else() {
    let mut guard = settled();
    let other = [MARKER, ("canary", "ready")];
    assert_eq!(guard.judge(default_read(10, &other)), Verdict::Confirm);

    let mut guard = settled();
    let by_hand = Reading {
        index_covers_content: false,
        ..consistent_read(10, &other)
    };
    assert_eq!(arrival(&guard.judge(by_hand)), Some(Arrival::Newer));
}

#[test]
fn after_a_failure_only_a_consistent_read_counts() {
    let mut guard = settled();
    guard.doubt();
    assert_eq!(guard.next_mode(), Mode::Consistent);
    let replayed = [MARKER, ("canary", "ready")];
    assert_eq!(guard.judge(default_read(12, &replayed)), Verdict::Confirm);
    let same = consistent_read(10, &[MARKER, ("canary", "drain")]);
    assert_eq!(guard.judge(same), Verdict::Unchanged);
    assert_eq!(guard.next_mode(), Mode::Blocking(10));
}

#[test]
fn no_leader_and_impossible_indexes_are_refused() {
    let mut guard = settled();
    let lost = Reading {
        has_leader: false,
        ..consistent_read(11, &[MARKER])
    };
    assert_eq!(guard.judge(lost), Verdict::Refuse(Refusal::NoLeader));
    for index in [0, u64::MAX] {
        assert_eq!(
            guard.judge(consistent_read(index, &[MARKER])),
            Verdict::Refuse(Refusal::BadIndex)
        );
    }
}

#[test]
fn without_required_marker_emptiness_is_confirmed_by_name() {
    let mut guard = Guard::new(false);
    assert_eq!(
        guard.judge(consistent_read(1, &[])),
        Verdict::Probe(Probe::Marker)
    );
    assert_eq!(
        guard.probed(Probed::Denied),
        Verdict::Refuse(Refusal::Denied)
    );
    assert_eq!(
        guard.judge(consistent_read(1, &[])),
        Verdict::Probe(Probe::Marker)
    );
    assert_eq!(arrival(&guard.probed(Probed::Absent)), Some(Arrival::First));
    let filled = guard.judge(default_read(2, &[("canary", "drain")]));
    assert_eq!(arrival(&filled), Some(Arrival::Newer));
    assert_eq!(guard.judge(default_read(3, &[])), Verdict::Confirm);
    assert!(matches!(
        guard.judge(consistent_read(3, &[])),
        Verdict::Probe(Probe::Paths(_))
    ));
}

/// Consul 1.8 forgets a deletion after some 15 minutes; the index of the prefix, which was that of
/// the deletion, falls to that of the newest key left.
#[test]
fn a_forgotten_deletion_is_no_restored_backup() {
    let mut guard = settled();
    let kept = [MARKER, ("canary", "drain")];
    assert_eq!(guard.judge(default_read(8, &kept)), Verdict::Confirm);
    assert_eq!(guard.judge(consistent_read(8, &kept)), Verdict::Unchanged);
    assert_eq!(guard.last().unwrap().index, 10, "what was proven stays so");
    assert_eq!(guard.next_mode(), Mode::Blocking(8));
    assert_eq!(guard.judge(default_read(8, &kept)), Verdict::Unchanged);
    let write = guard.judge(default_read(14, &[MARKER, ("canary", "maint")]));
    assert_eq!(arrival(&write), Some(Arrival::Newer));
    // A backup in which the keys are from before is one, at whatever index.
    guard.judge(default_read(9, &kept));
    let backup = guard.judge(consistent_read(9, &kept));
    assert_eq!(arrival(&backup), Some(Arrival::Restored));
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
                    guard.probed([Probed::Absent, Probed::Present, Probed::Denied][which])
                }
                Step::Read { index, marker, leader, consistent, keys } => {
                    let mut pairs: Vec<_> = keys.iter().map(|&k| (names[k], "drain")).collect();
                    if marker {
                        pairs.push(MARKER);
                    }
                    consistent_since_failure |= consistent;
                    guard.judge(Reading {
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
