use std::collections::BTreeMap;

use haplane_core::guard::{Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::snapshot::Pair;
use haplane_store::{CommitError, Committed, StoreError, Transaction};

use super::*;

/// What the store says of each key: absent where nothing is said.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Saying>>);

#[derive(Default)]
struct Saying {
    of: BTreeMap<String, Named>,
    fails: bool,
    hangs: bool,
    rights: u64,
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

    fn rights(&self) -> u64 {
        self.0.lock().unwrap().rights
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

fn running() -> Running {
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
        self.ask_since(keys, None).await
    }

    /// As a row that was answered otherwise until then.
    async fn ask_since(&self, keys: &[&str], since: Option<Instant>) -> Result<(), Unreadable> {
        let keys: Vec<Key> = keys.iter().map(|key| key.parse().unwrap()).collect();
        self.readable.may_be_absent(&keys, since).await
    }
}

const UNKNOWN: Result<(), Unreadable> = Err(Unreadable::Unknown);
const DENIED: Result<(), Unreadable> = Err(Unreadable::Denied);

#[tokio::test(start_paused = true)]
async fn an_absence_is_proven_and_then_believed_for_a_while() {
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

    sleep(LOOK_EVERY * 3).await;
    assert_eq!(running.ask(&["canary"]).await, denied);
    running.said.says("canary", Named::Present);
    sleep(LOOK_EVERY + PAUSE).await;
    assert_eq!(running.readable.denial(), None);
    let unknown = Err(Unreadable::Unknown);
    assert_eq!(running.ask(&["canary"]).await, unknown, "not shown yet");
    running.said.says("canary", Named::Absent);
    sleep(LOOK_EVERY + PAUSE).await;
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
async fn a_store_that_fails_or_hangs_proves_nothing_however_long() {
    for hangs in [false, true] {
        let running = running();
        assert_eq!(running.ask(&["before"]).await, Ok(()));
        running.said.says("denied", Named::Denied);
        assert_eq!(running.ask(&["denied"]).await, DENIED);
        running.said.0.lock().unwrap().hangs = hangs;
        running.said.fails(true);
        assert_eq!(running.ask(&["web/a"]).await, UNKNOWN);
        sleep(Duration::from_hours(1)).await;
        assert_eq!(running.ask(&["web/a"]).await, UNKNOWN);
        assert_eq!(running.ask(&["denied"]).await, DENIED, "this is known");
        if hangs {
            continue;
        }
        running.said.says("denied", Named::Absent);
        running.said.fails(false);
        sleep(LOOK_EVERY + PAUSE * 2).await;
        assert_eq!(running.ask(&["web/a", "denied"]).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_proven_is_believed_on_while_the_store_is_away() {
    let running = running();
    assert_eq!(running.ask(&["web/a"]).await, Ok(()));
    running.said.fails(true);
    for _ in 0..60 {
        sleep(Duration::from_mins(1)).await;
        assert_eq!(running.ask(&["web/a"]).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_wait_for_long_are_told() {
    let running = running();
    running.said.fails(true);
    assert_eq!(running.ask(&["web/b", "web/a"]).await, UNKNOWN);
    assert_eq!(running.readable.denial(), None, "not yet");
    sleep(TOLD_AFTER).await;
    let denial = running.readable.denial().unwrap();
    assert_eq!((denial.why, denial.keys), (Unreadable::Unknown, 2));
    assert_eq!(denial.first.as_str(), "web/a");
    assert!(denial.to_string().contains("not answered"), "{denial}");
    running.said.fails(false);
    sleep(PAUSE * 2).await;
    assert_eq!(running.readable.denial(), None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_new_needs_a_proof_from_after_the_change() {
    let running = running();
    assert_eq!(running.ask(&["canary"]).await, Ok(()));
    sleep(Duration::from_secs(8)).await;
    running.said.says("canary", Named::Denied);
    assert_eq!(running.ask(&["canary"]).await, Ok(()), "the answer it has");
    let changed = Some(Instant::now());
    assert_eq!(running.ask_since(&["canary"], changed).await, DENIED);
    assert_eq!(running.ask(&["canary"]).await, DENIED, "known from now on");

    running.said.says("web/a", Named::Absent);
    assert_eq!(running.ask(&["web/a"]).await, Ok(()));
    sleep(Duration::from_millis(1)).await;
    let changed = Some(Instant::now());
    assert_eq!(running.ask_since(&["web/a"], changed).await, Ok(()));
    assert_eq!(running.said.times_asked("web/a"), 2);
    running.said.fails(true);
    sleep(Duration::from_millis(1)).await;
    let changed = Some(Instant::now());
    assert_eq!(running.ask_since(&["web/a"], changed).await, UNKNOWN);
    assert_eq!(running.ask(&["web/a"]).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn proofs_are_made_anew_in_the_background_and_forgotten_when_unused() {
    let running = running();
    assert_eq!(running.ask(&["canary"]).await, Ok(()));
    running.said.says("canary", Named::Denied);
    sleep(PROVE_AGAIN + LOOK_EVERY * 2).await;
    assert_eq!(running.ask(&["canary"]).await, DENIED);

    assert_eq!(running.ask(&["web/a"]).await, Ok(()));
    sleep(UNUSED_AFTER + LOOK_EVERY * 2).await;
    let asked = running.said.times_asked("web/a");
    assert!((5..=6).contains(&asked), "{asked}");
    sleep(PROVE_AGAIN * 3).await;
    assert_eq!(running.said.times_asked("web/a"), asked);
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_that_no_row_asks_for_any_more_is_nobodys_trouble() {
    let running = running();
    running.said.says("mistyped", Named::Denied);
    running.said.says("canary", Named::Denied);
    assert_eq!(running.ask(&["mistyped", "canary"]).await, DENIED);
    for _ in 0..12 {
        sleep(UNUSED_AFTER / 10).await;
        assert_eq!(running.ask(&["canary"]).await, DENIED);
    }
    let denial = running.readable.denial().unwrap();
    assert_eq!((denial.keys, denial.first.as_str()), (1, "canary"));
    let asked = running.said.times_asked("mistyped");
    sleep(LOOK_EVERY * 3).await;
    assert_eq!(running.said.times_asked("mistyped"), asked);
    sleep(UNUSED_AFTER).await;
    assert_eq!(running.readable.denial(), None);
}

#[tokio::test(start_paused = true)]
async fn no_proof_outlives_the_rights_that_it_was_made_with() {
    let running = running();
    assert_eq!(running.ask(&["canary"]).await, Ok(()));
    running.said.says("canary", Named::Denied);
    running.said.0.lock().unwrap().rights += 1;
    sleep(LOOK_EVERY + PAUSE).await;
    assert_eq!(running.ask(&["canary"]).await, DENIED, "another token");

    assert_eq!(running.ask(&["web/a"]).await, Ok(()));
    running.said.says("web/a", Named::Denied);
    let since = haplane_store::Moment::now();
    running.views.send_modify(|view| {
        view.guard = Some(haplane_store::watch::Guarded {
            since,
            reason: Refusal::MarkerMissing,
            detail: String::new(),
        });
    });
    sleep(PAUSE).await;
    assert_eq!(running.ask(&["web/a"]).await, DENIED, "rights were lost");
    running.said.says("web/a", Named::Absent);
    running.views.send_modify(|view| view.guard = None);
    sleep(PAUSE * 2).await;
    assert_eq!(running.ask(&["web/a"]).await, Ok(()), "and are back");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_asked_for_wherever_a_person_may_have_written_it() {
    let running = running();
    running.said.says("web/a:1", Named::Denied);
    assert_eq!(running.ask(&["web/a:1", "web/b:1"]).await, DENIED);
    assert_eq!(running.ask(&["web/b:1"]).await, Ok(()));
    for path in ["web/a,3A1", "web/a:1", "web/b,3A1", "web/b:1"] {
        assert_eq!(running.said.times_asked(path), 1, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hides_nothing_is_not_asked() {
    let (_, views) = watch::channel(View::default());
    let readable = Readable::new(false, views);
    let keys = ["canary".parse().unwrap()];
    assert_eq!(readable.may_be_absent(&keys, None).await, Ok(()));
}
