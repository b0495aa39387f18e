use std::collections::BTreeMap;

use haplane_core::Snapshot;
use haplane_core::guard::{Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::snapshot::Pair;
use haplane_store::{CommitError, Committed, StoreError, StoreErrorKind, Transaction};

use super::*;

/// What the store says of each key: absent where nothing is said.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Saying>>);

#[derive(Default)]
struct Saying {
    of: BTreeMap<String, Named>,
    fails: bool,
    hangs: bool,
    asked: Vec<String>,
}

impl Said {
    fn says(&self, key: &str, named: Named) {
        self.0.lock().unwrap().of.insert(key.to_owned(), named);
    }

    fn fails(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    fn times_asked(&self, key: &str) -> usize {
        let saying = self.0.lock().unwrap();
        saying.asked.iter().filter(|asked| *asked == key).count()
    }
}

impl Store for Said {
    async fn read_names(&self, paths: &[String]) -> Result<Vec<Named>, StoreError> {
        let hangs = self.0.lock().unwrap().hangs;
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut saying = self.0.lock().unwrap();
        saying.asked.extend_from_slice(paths);
        if saying.fails {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "gone"));
        }
        let of = |path: &String| saying.of.get(path).copied().unwrap_or(Named::Absent);
        Ok(paths.iter().map(of).collect())
    }

    async fn read(&self, _: Mode, _: Duration) -> Result<Reading, StoreError> {
        unreachable!()
    }

    async fn read_path(&self, _: &str) -> Result<Option<Pair>, StoreError> {
        unreachable!()
    }

    async fn commit(&self, _: &Transaction) -> Result<Committed, CommitError> {
        unreachable!()
    }

    async fn log(&self, _: usize) -> Result<Vec<LogEntry>, StoreError> {
        unreachable!()
    }

    async fn log_entry(&self, _: LogId) -> Result<Option<LogEntry>, StoreError> {
        unreachable!()
    }

    async fn trim_log(&self, _: usize) -> Result<usize, StoreError> {
        unreachable!()
    }

    async fn forget_log_entry(&self, _: LogId) -> Result<(), StoreError> {
        unreachable!()
    }

    fn keys_per_transaction(&self) -> usize {
        unreachable!()
    }
}

struct Running {
    said: Said,
    readable: Arc<Readable>,
    views: watch::Sender<View>,
    _stop: tokio_util::sync::DropGuard,
}

/// A store that was read once.
fn running() -> Running {
    let running = before_the_first_read();
    running
        .views
        .send_modify(|view| view.snapshot = Some(Arc::new(Snapshot::default())));
    running
}

fn before_the_first_read() -> Running {
    let said = Said::default();
    let (views, receiver) = watch::channel(View::default());
    let readable = Arc::new(Readable::new(true, receiver));
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&readable).run(said.clone(), stop.clone()));
    Running {
        said,
        readable,
        views,
        _stop: stop.drop_guard(),
    }
}

impl Running {
    async fn ask(&self, keys: &[&str]) -> Result<(), Unreadable> {
        let keys: Vec<Key> = keys.iter().map(|key| key.parse().unwrap()).collect();
        self.readable.may_be_absent(&keys).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_absence_is_proven_once_and_then_believed() {
    let running = running();
    assert_eq!(running.ask(&["web/a", "canary"]).await, Ok(()));
    assert_eq!(running.ask(&["canary", "web/a"]).await, Ok(()));
    assert_eq!(running.ask(&[]).await, Ok(()));
    assert_eq!(running.said.times_asked("web/a"), 1);
    assert_eq!(running.readable.denial(), None);
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_is_no_absence_until_it_is_allowed() {
    let running = running();
    running.said.says("canary", Named::Denied);
    let denied = Err(Unreadable::Denied);
    assert_eq!(running.ask(&["web/a", "canary"]).await, denied);
    assert_eq!(running.ask(&["web/a"]).await, Ok(()), "others are");
    let denial = running.readable.denial().unwrap();
    assert_eq!((denial.keys, denial.first.as_str()), (1, "canary"));
    assert!(denial.to_string().contains("the key canary"), "{denial}");

    sleep(DENIED_AGAIN * 3).await;
    assert_eq!(running.ask(&["canary"]).await, denied);
    running.said.says("canary", Named::Present);
    sleep(DENIED_AGAIN + PAUSE).await;
    assert_eq!(running.readable.denial(), None);
    let unknown = Err(Unreadable::Unknown);
    assert_eq!(running.ask(&["canary"]).await, unknown, "not shown yet");
    running.said.says("canary", Named::Absent);
    sleep(DENIED_AGAIN + PAUSE).await;
    assert_eq!(running.ask(&["canary"]).await, Ok(()));
    assert_eq!(running.readable.denial(), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_there_but_was_not_shown_is_no_absence() {
    let running = running();
    running.said.says("canary", Named::Present);
    let unknown = Err(Unreadable::Unknown);
    assert_eq!(running.ask(&["canary"]).await, unknown);
    running.said.says("canary", Named::Absent);
    assert_eq!(running.ask(&["canary"]).await, Ok(()), "deleted again");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_proves_nothing_until_it_counts_as_away() {
    let running = running();
    assert_eq!(running.ask(&["before"]).await, Ok(()));
    running.said.says("denied", Named::Denied);
    assert!(running.ask(&["denied"]).await.is_err());
    running.said.fails(true);
    assert_eq!(running.ask(&["web/a"]).await, Err(Unreadable::Unknown));
    assert_eq!(running.ask(&["before"]).await, Ok(()));
    sleep(AWAY_AFTER).await;
    assert_eq!(running.ask(&["web/a"]).await, Ok(()), "as all the others");
    let denied = Err(Unreadable::Denied);
    assert_eq!(running.ask(&["denied"]).await, denied, "this is known");

    running.said.says("web/a", Named::Denied);
    running.said.fails(false);
    sleep(PAUSE * 2).await;
    assert_eq!(running.ask(&["web/a"]).await, denied);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_away_as_soon_as_one_that_fails() {
    let running = running();
    running.said.0.lock().unwrap().hangs = true;
    assert_eq!(running.ask(&["web/a"]).await, Err(Unreadable::Unknown));
    sleep(AWAY_AFTER).await;
    assert_eq!(running.ask(&["web/a"]).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_new_while_the_store_has_long_been_away_does_not_wait() {
    let running = running();
    running.said.fails(true);
    let since = haplane_store::Moment::now();
    running.views.send_modify(|view| {
        let kind = StoreErrorKind::Unreachable;
        let what = "gone".to_owned();
        view.failure = Some(haplane_store::watch::Failing { since, kind, what });
    });
    sleep(AWAY_AFTER).await;
    let asked = Instant::now();
    assert_eq!(running.ask(&["web/new"]).await, Ok(()));
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_kept_needs_no_proof() {
    let running = before_the_first_read();
    running.said.says("canary", Named::Denied);
    assert_eq!(running.ask(&["canary"]).await, Ok(()));
    assert_eq!(running.said.times_asked("canary"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hides_nothing_is_not_asked() {
    let (_, views) = watch::channel(View {
        snapshot: Some(Arc::new(Snapshot::default())),
        ..View::default()
    });
    let readable = Readable::new(false, views);
    let keys = ["canary".parse().unwrap()];
    assert_eq!(readable.may_be_absent(&keys).await, Ok(()));
}
