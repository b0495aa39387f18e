//! What every store keeps, whatever it is made of.

use std::time::Duration;

use haplane_core::guard::{Mode, Reading};
use haplane_core::key::Key;
use haplane_core::kv_path;
use haplane_core::log::{Changed, LogEntry, LogId};
use haplane_core::marker;
use haplane_core::snapshot::Snapshot;
use haplane_store::{Change, CommitError, Committed, Expected, Store, Transaction};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(5);

/// A store under test, and the means to write to it as a person without haplane would.
pub(crate) trait Bench {
    type Store: Store;

    /// Another handle on the same content.
    fn open(&self) -> Self::Store;
    /// Writes a path by hand.
    async fn put(&self, path: &str, text: &str);
    /// Deletes a path by hand.
    async fn delete(&self, path: &str);
}

/// A bench with nothing in it.
pub(crate) trait Benches {
    type Bench: Bench;

    async fn fresh(&self, name: &str) -> Self::Bench;
}

/// Runs the whole contract.
pub(crate) async fn keep(benches: &impl Benches) {
    macro_rules! run {
        ($($case:ident),* $(,)?) => {
            $(
                eprintln!("contract: {}", stringify!($case));
                $case(&benches.fresh(stringify!($case)).await).await;
            )*
        };
    }
    run![
        an_empty_store_has_no_marker,
        the_marker_is_made_once,
        a_transaction_is_whole_and_logged,
        odd_names_survive,
        a_conflict_names_its_keys_and_writes_nothing,
        deletes_are_checked_and_seen,
        a_hand_write_has_no_log_entry,
        a_blocking_read_wakes_for_a_change_and_only_then,
        the_log_is_read_and_trimmed,
        of_two_writers_one_wins,
        too_many_keys_are_refused,
        a_snapshot_at_the_index_has_seen_the_write,
    ];
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// A change of a key from what a snapshot says.
pub(crate) fn change(seen: &Snapshot, name: &str, text: Option<&str>) -> Change {
    let key = key(name);
    let known = seen.get(&key).map(|stored| stored.version);
    let version = known.or_else(|| seen.get_invalid(&key).map(|invalid| invalid.version));
    Change {
        path: seen.path_of(&key),
        expected: version.map_or(Expected::Absent, Expected::Version),
        text: text.map(str::to_owned),
        key,
    }
}

pub(crate) fn entry(changes: &[Change]) -> LogEntry {
    let now = jiff::Timestamp::now();
    LogEntry {
        id: LogId::new(now, fastrand::u64(..)),
        at: now,
        by: "somebody".to_owned(),
        host: "here".to_owned(),
        command: "haplane set".to_owned(),
        reason: Some("a reason".to_owned()),
        ticket: None,
        changes: changes
            .iter()
            .map(|change| Changed {
                key: change.key.clone(),
                before: None,
                after: change.text.clone(),
            })
            .collect(),
    }
}

pub(crate) fn transaction(changes: Vec<Change>) -> Transaction {
    Transaction {
        log: Some(entry(&changes)),
        changes,
    }
}

pub(crate) async fn read(store: &impl Store) -> Reading {
    store
        .read(Mode::Consistent, Duration::from_secs(1))
        .await
        .unwrap()
}

/// Writes keys on top of what is there now, which is a store at least from then on.
pub(crate) async fn write(store: &impl Store, pairs: &[(&str, Option<&str>)]) -> Committed {
    let mut seen = read(store).await.snapshot;
    if seen.marker.is_none() {
        let init = Transaction {
            changes: Vec::new(),
            log: None,
        };
        store.commit(&init).await.unwrap();
        seen = read(store).await.snapshot;
    }
    let changes = pairs.iter().map(|(name, text)| change(&seen, name, *text));
    store.commit(&transaction(changes.collect())).await.unwrap()
}

fn says(snapshot: &Snapshot) -> Vec<(String, String)> {
    let keys = snapshot.keys();
    keys.map(|(key, stored)| (key.to_string(), stored.value.to_string()))
        .collect()
}

async fn an_empty_store_has_no_marker(bench: &impl Bench) {
    let store = bench.open();
    let reading = read(&store).await;
    assert_eq!(reading.snapshot.marker, None);
    assert_eq!(reading.snapshot.keys().len(), 0);
    assert!(reading.consistent && reading.has_leader);
    assert!(reading.snapshot.index > 0);
    assert_eq!(store.read_path(marker::PATH).await.unwrap(), None);
    assert_eq!(store.log(10).await.unwrap(), []);
}

async fn the_marker_is_made_once(bench: &impl Bench) {
    let store = bench.open();
    let init = Transaction {
        changes: Vec::new(),
        log: None,
    };
    let first = store.commit(&init).await.unwrap();
    assert!(first.made_marker);
    let reading = read(&store).await;
    let marker = reading.snapshot.marker.unwrap();
    assert!(reading.snapshot.index >= first.index);
    assert!(store.read_path(marker::PATH).await.unwrap().is_some());
    let second = store.commit(&init).await.unwrap();
    assert!(!second.made_marker);
    assert!(
        !write(&store, &[("canary", Some("drain"))])
            .await
            .made_marker
    );
    assert_eq!(read(&store).await.snapshot.marker, Some(marker));
}

async fn a_transaction_is_whole_and_logged(bench: &impl Bench) {
    let store = bench.open();
    let names: Vec<_> = (0..store.keys_per_transaction().min(200))
        .map(|n| format!("web/server-{n:03}"))
        .collect();
    let seen = read(&store).await.snapshot;
    let changes = names.iter().map(|name| change(&seen, name, Some("drain")));
    let transaction = transaction(changes.collect());
    let entry = transaction.log.clone().unwrap();
    let committed = store.commit(&transaction).await.unwrap();
    assert!(!committed.made_marker, "only init makes the marker");
    let now = read(&bench.open()).await.snapshot;
    assert_eq!(now.marker, None);
    assert!(now.index >= committed.index);
    assert_eq!(now.keys().len(), names.len());
    assert!(
        now.keys()
            .all(|(_, stored)| stored.log_id == Some(entry.id))
    );
    assert_eq!(
        store.log_entry(entry.id).await.unwrap(),
        Some(entry.clone())
    );
    assert_eq!(bench.open().log(10).await.unwrap(), [entry]);
}

async fn odd_names_survive(bench: &impl Bench) {
    let store = bench.open();
    let names = [
        "b:1/s.x",
        "web/app.json",
        "ключ",
        "a%2Fb/c",
        "x+y=z&w?",
        "UPPER/lower",
    ];
    let pairs = names.map(|name| (name, Some("50%")));
    write(&store, &pairs).await;
    let now = read(&store).await.snapshot;
    for name in names {
        assert!(now.get(&key(name)).is_some(), "{name}");
        let pair = store.read_path(&kv_path::encode(&key(name))).await.unwrap();
        assert_eq!(pair.unwrap().value.trim_ascii_end(), b"50%", "{name}");
    }
    assert_eq!(now.keys().len(), names.len());
}

async fn a_conflict_names_its_keys_and_writes_nothing(bench: &impl Bench) {
    let store = bench.open();
    write(&store, &[("a", Some("drain")), ("b", Some("drain"))]).await;
    let old = read(&store).await.snapshot;
    bench.put("b", "maint").await;
    bench.put("c", "maint").await;
    let before = read(&store).await.snapshot;
    let changes = ["a", "b", "c"].map(|name| change(&old, name, Some("ready")));
    let refused = store.commit(&transaction(changes.into())).await;
    let Err(CommitError::Conflict { mut keys }) = refused else {
        panic!("{refused:?}");
    };
    keys.sort();
    assert_eq!(keys, [key("b"), key("c")]);
    let after = read(&store).await.snapshot;
    assert!(after.says_the_same_as(&before));
    assert_eq!(
        store.log(10).await.unwrap().len(),
        1,
        "no entry for what did not happen"
    );
    let gone = [change(&old, "b", None), change(&old, "a", None)];
    let refused = store.commit(&transaction(gone.into())).await;
    assert!(matches!(refused, Err(CommitError::Conflict { keys }) if keys == [key("b")]));
    assert!(read(&store).await.snapshot.says_the_same_as(&before));
}

async fn deletes_are_checked_and_seen(bench: &impl Bench) {
    let store = bench.open();
    write(&store, &[("web/a", Some("drain")), ("web/b", Some("50%"))]).await;
    let before = read(&store).await.snapshot;
    let committed = write(&store, &[("web/a", None), ("web/none", None)]).await;
    assert!(committed.index > before.index);
    let after = read(&store).await.snapshot;
    assert!(after.index >= committed.index);
    assert_eq!(says(&after), [("web/b".to_owned(), "50%".to_owned())]);
    write(&store, &[("web/b", None)]).await;
    let empty = read(&store).await.snapshot;
    assert!(empty.keys().len() == 0 && empty.marker.is_some());
    // And the name can be used again.
    write(&store, &[("web/b", Some("maint"))]).await;
    assert_eq!(
        says(&read(&store).await.snapshot),
        [("web/b".to_owned(), "maint".to_owned())]
    );
}

async fn a_hand_write_has_no_log_entry(bench: &impl Bench) {
    let store = bench.open();
    write(
        &store,
        &[("canary", Some("drain")), ("web/a", Some("drain"))],
    )
    .await;
    bench.put("canary", "maint\n").await;
    bench.put("web/b", "50% \n").await;
    bench.put("web/c", "down").await;
    let now = read(&store).await.snapshot;
    let log_id = |name: &str| now.get(&key(name)).unwrap().log_id;
    assert_eq!(log_id("canary"), None);
    assert_eq!(log_id("web/b"), None);
    assert!(log_id("web/a").is_some());
    assert_eq!(now.get_invalid(&key("web/c")).unwrap().text, "down");
    // Over a hand write, a command writes as over its own.
    write(
        &store,
        &[("canary", Some("ready")), ("web/c", Some("ready"))],
    )
    .await;
    let now = read(&store).await.snapshot;
    assert!(now.get(&key("canary")).unwrap().log_id.is_some());
    assert_eq!(now.invalid().len(), 0);
    bench.delete("canary").await;
    assert!(read(&store).await.snapshot.get(&key("canary")).is_none());
}

async fn a_blocking_read_wakes_for_a_change_and_only_then(bench: &impl Bench) {
    let (watcher, writer) = (bench.open(), bench.open());
    write(&writer, &[("canary", Some("drain"))]).await;
    let mut index = read(&watcher).await.snapshot.index;
    let begun = Instant::now();
    let wait = Duration::from_millis(300);
    let quiet = watcher.read(Mode::Blocking(index), wait).await.unwrap();
    assert!(begun.elapsed() >= wait, "woken by nothing");
    assert_eq!(quiet.snapshot.index, index);
    for text in ["maint", "25%", "ready"] {
        let parked = watcher.read(Mode::Blocking(index), Duration::from_secs(30));
        let (woken, ()) = tokio::join!(timeout(SOON, parked), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if text == "25%" {
                bench.put("canary", text).await;
            } else {
                write(&writer, &[("canary", Some(text))]).await;
            }
        });
        let woken = woken.expect("to be woken").unwrap().snapshot;
        assert_eq!(says(&woken), [("canary".to_owned(), text.to_owned())]);
        index = woken.index;
    }
    let parked = watcher.read(Mode::Blocking(index), Duration::from_secs(30));
    let (woken, ()) = tokio::join!(timeout(SOON, parked), bench.delete("canary"));
    assert_eq!(says(&woken.expect("to be woken").unwrap().snapshot), []);
}

async fn the_log_is_read_and_trimmed(bench: &impl Bench) {
    let store = bench.open();
    write(&store, &[("kept", Some("drain"))]).await;
    let mut ids = Vec::new();
    for n in 0..8 {
        // Two in one millisecond would be ordered by chance.
        tokio::time::sleep(Duration::from_millis(2)).await;
        write(&store, &[("other", Some(&format!("{n}%")))]).await;
        ids.push(
            read(&store)
                .await
                .snapshot
                .get(&key("other"))
                .unwrap()
                .log_id
                .unwrap(),
        );
    }
    let newest: Vec<_> = store.log(3).await.unwrap().iter().map(|e| e.id).collect();
    assert_eq!(newest, [ids[7], ids[6], ids[5]]);
    assert_eq!(
        store.trim_log(4).await.unwrap(),
        4,
        "9 entries, 4 kept, 1 in use"
    );
    let left: Vec<_> = store.log(100).await.unwrap().iter().map(|e| e.id).collect();
    assert_eq!(left[..4], [ids[7], ids[6], ids[5], ids[4]]);
    assert_eq!(left.len(), 5);
    let kept = read(&store)
        .await
        .snapshot
        .get(&key("kept"))
        .unwrap()
        .log_id
        .unwrap();
    assert_eq!(left[4], kept);
    assert_eq!(store.log_entry(ids[0]).await.unwrap(), None);
    let asked = [ids[7], ids[0], kept, ids[5], ids[1]];
    let some = store.log_entries(&asked).await.unwrap();
    let some: Vec<_> = some.iter().map(|entry| entry.id).collect();
    assert_eq!(
        some,
        [ids[7], kept, ids[5]],
        "in this order, without those that are gone"
    );
    assert_eq!(store.trim_log(4).await.unwrap(), 0);
    store.forget_log_entry(ids[7]).await.unwrap();
    assert_eq!(store.log_entry(ids[7]).await.unwrap(), None);
    store.forget_log_entry(ids[7]).await.expect("gone is gone");
    let left: Vec<_> = store.log(100).await.unwrap().iter().map(|e| e.id).collect();
    assert_eq!(left, [ids[6], ids[5], ids[4], kept]);
}

async fn of_two_writers_one_wins(bench: &impl Bench) {
    let (one, other) = (bench.open(), bench.open());
    for n in 0..10 {
        let seen = read(&one).await.snapshot;
        let text = |who: &str| format!("{n}% until=2099-01-01T00:00:0{who}Z");
        let want = |who: &str| {
            let both = ["web/a", "web/b"].map(|name| change(&seen, name, Some(&text(who))));
            transaction(both.into())
        };
        let (first, second) = (want("1"), want("2"));
        let outcomes = tokio::join!(one.commit(&first), other.commit(&second));
        let won = match outcomes {
            (Ok(_), Err(CommitError::Conflict { .. })) => "1",
            (Err(CommitError::Conflict { .. }), Ok(_)) => "2",
            neither => panic!("{neither:?}"),
        };
        let now = read(&one).await.snapshot;
        assert!(
            now.keys()
                .all(|(_, stored)| stored.value.to_string() == text(won)),
            "{now:?}"
        );
    }
}

async fn too_many_keys_are_refused(bench: &impl Bench) {
    let store = bench.open();
    let seen = read(&store).await.snapshot;
    let changes =
        (0..=store.keys_per_transaction()).map(|n| change(&seen, &format!("k{n}"), Some("drain")));
    let refused = store.commit(&transaction(changes.collect())).await;
    assert!(
        matches!(refused, Err(CommitError::Unholdable(_))),
        "{refused:?}"
    );
    assert_eq!(read(&store).await.snapshot.keys().len(), 0);
}

async fn a_snapshot_at_the_index_has_seen_the_write(bench: &impl Bench) {
    let (store, watcher) = (bench.open(), bench.open());
    for n in 0..20 {
        let before = read(&watcher).await.snapshot;
        let name = format!("web/s{}", n % 4);
        let text = (n % 3 > 0).then(|| format!("{n}%"));
        let committed = write(&store, &[(&name, text.as_deref())]).await;
        let after = read(&watcher).await.snapshot;
        assert!(after.index >= committed.index, "{n}");
        let wanted = text.clone();
        let has_seen = |s: &Snapshot| s.get(&key(&name)).map(|s| s.value.to_string()) == wanted;
        assert!(has_seen(&after), "{n}");
        assert!(before.index < committed.index || has_seen(&before), "{n}");
    }
}
