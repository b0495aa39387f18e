//! What the watch loop does, over hours that take no time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use haplane_core::guard::{Arrival, Guard, Mode, Refusal};
use haplane_core::marker;
use haplane_core::snapshot::Snapshot;
use haplane_store::{Event, StoreErrorKind, View, Watch, WatchSettings};
use tokio::sync::watch::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::scripted::{Say, Scripted};

const MARKER: (&str, &str) = (marker::PATH, "m");
const DRAINED: &[(&str, &str)] = &[MARKER, ("canary", "drain")];
const READY: &[(&str, &str)] = &[MARKER, ("canary", "ready")];
const GONE: &[(&str, &str)] = &[MARKER];
const NOTHING: &[(&str, &str)] = &[];

struct Loop {
    views: Receiver<View>,
    told: Arc<Mutex<Vec<Told>>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Accepted(Arrival, Option<u64>, u64),
    Unchanged,
    Refused(Refusal),
    Failed(StoreErrorKind),
    Recovered(Duration),
}

impl Loop {
    fn start(store: &Scripted, require_marker: bool) -> Self {
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let telling = Arc::clone(&told);
        let observe = move |event: Event<'_>| {
            let event = match event {
                Event::Accepted {
                    snapshot,
                    arrival,
                    from_index,
                } => Told::Accepted(arrival, from_index, snapshot.index),
                Event::Unchanged => Told::Unchanged,
                Event::Refused(reason) => Told::Refused(reason),
                Event::Failed(kind) => Told::Failed(kind),
                Event::Recovered { gap } => Told::Recovered(gap),
            };
            telling.lock().unwrap().push(event);
        };
        let guard = Guard::new(require_marker);
        let (watch, views) = Watch::new(store.clone(), guard, WatchSettings::default(), observe);
        let stop = CancellationToken::new();
        let task = tokio::spawn(watch.run(stop.clone()));
        Self {
            views,
            told,
            stop,
            task,
        }
    }

    fn view(&self) -> View {
        self.views.borrow().clone()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.view().snapshot.expect("a snapshot")
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    async fn until(&mut self, what: &str, reached: impl Fn(&View) -> bool) {
        let wait = self.views.wait_for(|view| reached(view));
        let waited = timeout(Duration::from_hours(1), wait).await;
        assert!(waited.is_ok_and(|view| view.is_ok()), "never: {what}");
    }
}

fn is_at(index: u64) -> impl Fn(&View) -> bool {
    move |view| view.snapshot.as_ref().is_some_and(|one| one.index == index)
}

fn says_drain(snapshot: &Snapshot) -> bool {
    let canary = snapshot.get(&"canary".parse().unwrap());
    canary.is_some_and(|stored| stored.value.to_string() == "drain")
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_changes_nothing_and_ends_within_two_seconds() {
    let store = Scripted::default();
    store.say([Say::These(5, DRAINED)]);
    store.then(Say::Fail(StoreErrorKind::Unreachable, Duration::ZERO));
    let mut watch = Loop::start(&store, true);
    watch
        .until("a failure", |view| view.failure.is_some())
        .await;
    let contact = watch.view().contact.unwrap();
    let begun = Instant::now();
    sleep(Duration::from_hours(1)).await;
    assert!(!watch.task.is_finished());
    assert!(says_drain(&watch.snapshot()));
    assert_eq!(
        watch.view().contact,
        Some(contact),
        "a failed read is no contact"
    );
    let reads = store.reads();
    let pauses = reads.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(
        pauses
            .clone()
            .all(|pause| pause >= Duration::from_millis(100))
    );
    assert!(pauses.clone().all(|pause| pause <= Duration::from_secs(2)));
    assert!(reads.len() < 7_200, "{} reads in an hour", reads.len());
    assert!(reads[2..].iter().all(|(_, mode)| *mode == Mode::Consistent));
    store.then(Say::These(9, DRAINED));
    let well_at = Instant::now();
    watch
        .until("the end of it", |view| view.failure.is_none())
        .await;
    assert!(
        well_at.elapsed() <= Duration::from_secs(2),
        "{:?}",
        well_at.elapsed()
    );
    assert!(watch.view().contact.unwrap().instant >= well_at);
    let told = watch.told();
    let gap = told.iter().find_map(|event| match event {
        Told::Recovered(gap) => Some(*gap),
        _ => None,
    });
    assert!(gap.unwrap() >= well_at - begun);
    assert!(told.contains(&Told::Accepted(Arrival::Newer, Some(5), 9)));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_store_is_asked_every_eight_seconds_and_wakes_nobody() {
    let store = Scripted::default();
    store.say([Say::These(5, DRAINED)]);
    store.then(Say::Quiet);
    let mut watch = Loop::start(&store, true);
    watch
        .until("a snapshot", |view| view.snapshot.is_some())
        .await;
    watch.views.mark_unchanged();
    sleep(Duration::from_mins(10)).await;
    assert!(!watch.views.has_changed().unwrap());
    let since_contact = watch.view().contact.unwrap().instant.elapsed();
    assert!(since_contact <= Duration::from_secs(9), "{since_contact:?}");
    let reads = store.reads();
    assert!((75..=77).contains(&reads.len()), "{}", reads.len());
    assert!(
        reads[1..]
            .iter()
            .all(|(_, mode)| *mode == Mode::Blocking(5))
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_store_cannot_spin_the_loop() {
    let store = Scripted::default();
    store.then(Say::These(5, DRAINED));
    let watch = Loop::start(&store, true);
    sleep(Duration::from_mins(1)).await;
    assert!(store.reads().len() <= 601, "{}", store.reads().len());
    assert_eq!(
        watch.told()[..2],
        [Told::Accepted(Arrival::First, None, 5), Told::Unchanged]
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_marker_is_refused_with_its_cause() {
    let store = Scripted::default();
    store.then(Say::These(1, NOTHING));
    let mut watch = Loop::start(&store, true);
    watch.until("a refusal", |view| view.guard.is_some()).await;
    let refused = watch.view();
    assert!(refused.snapshot.is_none() && refused.contact.is_none());
    let guarded = refused.guard.unwrap();
    assert_eq!(guarded.reason, Refusal::MarkerMissing);
    assert!(
        guarded.detail.contains("haplane init"),
        "{}",
        guarded.detail
    );
    // The same emptiness, now with the word that we may not look.
    store.by_name(marker::PATH, Err(StoreErrorKind::Denied));
    watch
        .until("the other cause", |view| {
            let detail = view.guard.as_ref().map(|guarded| guarded.detail.as_str());
            detail.is_some_and(|detail| !detail.contains("haplane init"))
        })
        .await;
    assert_eq!(watch.view().guard.unwrap().since, guarded.since);
    store.then(Say::These(7, DRAINED));
    watch
        .until("a snapshot", |view| view.snapshot.is_some())
        .await;
    assert!(watch.view().guard.is_none() && says_drain(&watch.snapshot()));
}

#[tokio::test(start_paused = true)]
async fn lost_keys_are_asked_for_by_name() {
    let store = Scripted::default();
    store.say([Say::These(5, DRAINED)]);
    store.then(Say::These(6, GONE));
    store.by_name("canary", Err(StoreErrorKind::Denied));
    let mut watch = Loop::start(&store, true);
    watch.until("a refusal", |view| view.guard.is_some()).await;
    assert_eq!(watch.view().guard.unwrap().reason, Refusal::Denied);
    // The list is wrong, or is past.
    store.by_name("canary", Ok(Some("drain")));
    sleep(Duration::from_mins(1)).await;
    assert!(says_drain(&watch.snapshot()));
    let per_second = store.reads().len() as u64 / 60;
    assert!(
        per_second <= 10,
        "doubt does not hurry: {per_second} reads a second"
    );
    let failing = watch.view().failure.expect("a contradiction is told");
    assert!(failing.what.contains("contradicts itself"), "{failing:?}");
    // Asked for by name, it fails: that is a failure like any other.
    store.by_name("canary", Err(StoreErrorKind::Timeout));
    watch
        .until("a failure", |view| {
            let kind = view.failure.as_ref().map(|failing| failing.kind);
            kind == Some(StoreErrorKind::Timeout)
        })
        .await;
    assert!(says_drain(&watch.snapshot()));
    store.by_name("canary", Ok(None));
    watch
        .until("belief", |view| {
            view.snapshot.as_ref().unwrap().keys().len() == 0
        })
        .await;
    assert!(watch.view().guard.is_none() && watch.view().failure.is_none());
}

#[tokio::test(start_paused = true)]
async fn doubt_is_cleared_up_at_once() {
    let store = Scripted::default();
    // An index that went back, in an ordinary read: Consul was restored, or is not what it was.
    store.say([
        Say::These(50, DRAINED),
        Say::Unvouched(40, READY),
        Say::These(60, DRAINED),
    ]);
    let mut watch = Loop::start(&store, true);
    watch.until("it", is_at(60)).await;
    let reads = store.reads();
    assert_eq!(reads[2].1, Mode::Consistent);
    assert!(reads[2].0 - reads[1].0 <= Duration::from_millis(100));
    let accepted: Vec<_> = watch
        .told()
        .into_iter()
        .filter(|t| matches!(t, Told::Accepted(..)))
        .collect();
    assert_eq!(accepted.len(), 2, "{accepted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restored_store_is_obeyed_and_told() {
    let store = Scripted::default();
    store.by_name("canary", Ok(Some("ready")));
    store.say([
        Say::These(50, DRAINED),
        Say::Unvouched(40, READY),
        Say::These(40, READY),
    ]);
    let mut watch = Loop::start(&store, true);
    watch.until("it", is_at(40)).await;
    assert!(
        watch
            .told()
            .contains(&Told::Accepted(Arrival::Restored, Some(50), 40))
    );
}

/// A cache on the way gives the same old list for ever.
#[tokio::test(start_paused = true)]
async fn an_old_list_that_a_second_read_contradicts_is_no_restored_store() {
    let store = Scripted::default();
    store.by_name("canary", Ok(None));
    store.say([Say::These(50, DRAINED)]);
    store.then(Say::These(40, READY));
    let mut watch = Loop::start(&store, true);
    watch
        .until("a failure", |view| view.failure.is_some())
        .await;
    sleep(Duration::from_mins(1)).await;
    assert!(says_drain(&watch.snapshot()));
}

/// A Consul that is restored ends the queries that wait with what they knew, and lets the next one
/// wait for an index that is long to come.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_early_with_nothing_new_is_followed_by_a_consistent_look() {
    let store = Scripted::default();
    store.by_name("canary", Ok(Some("ready")));
    store.say([
        Say::These(50, DRAINED),
        Say::Unvouched(50, DRAINED),
        Say::These(40, READY),
    ]);
    let mut watch = Loop::start(&store, true);
    watch.until("it", is_at(40)).await;
    let modes: Vec<_> = store.reads().iter().map(|read| read.1).collect();
    assert_eq!(
        modes[..3],
        [Mode::Consistent, Mode::Blocking(50), Mode::Consistent]
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_marker_an_emptied_store_is_believed_after_a_second_look() {
    let store = Scripted::default();
    store.say([
        Say::These(5, &[("canary", "drain")]),
        Say::Unvouched(6, NOTHING),
        Say::These(6, NOTHING),
    ]);
    let mut watch = Loop::start(&store, false);
    watch.until("it", is_at(6)).await;
    assert_eq!(store.reads()[2].1, Mode::Consistent);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_read_that_is_parked() {
    let store = Scripted::default();
    store.say([Say::These(5, DRAINED), Say::Hang]);
    let mut watch = Loop::start(&store, true);
    watch
        .until("a snapshot", |view| view.snapshot.is_some())
        .await;
    sleep(Duration::from_secs(5)).await;
    watch.stop.cancel();
    let begun = Instant::now();
    watch.task.await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(10));
}

#[test]
fn a_trouble_is_logged_when_it_begins_once_a_minute_and_when_it_ends() {
    let text = log_of(async {
        let store = Scripted::default();
        store.say([Say::These(5, DRAINED)]);
        store.then(Say::Fail(StoreErrorKind::Unreachable, Duration::ZERO));
        let mut watch = Loop::start(&store, true);
        sleep(Duration::from_secs(60 * 10 + 5)).await;
        store.then(Say::Fail(StoreErrorKind::Denied, Duration::ZERO));
        sleep(Duration::from_secs(10)).await;
        store.then(Say::These(5, DRAINED));
        watch.until("the end", |view| view.failure.is_none()).await;
    });
    let count = |needle: &str| text.lines().filter(|line| line.contains(needle)).count();
    assert_eq!(count("INFO"), 2, "first snapshot and recovery: {text}");
    assert_eq!(count("well again"), 1, "{text}");
    assert!((10..=11).contains(&count("unreachable")), "{text}");
    assert_eq!(count("denied"), 1, "another kind is news: {text}");
}

#[test]
fn a_text_that_is_no_value_is_logged_once_for_each_change() {
    const WRONG: Say = Say::These(7, &[("canary", "50"), ("zone/b", "down\nERROR forged")]);
    let text = log_of(async {
        let store = Scripted::default();
        store.say([
            Say::These(5, &[("canary", "drain"), ("zone/b", "DOWN")]),
            Say::These(6, &[("canary", "maint"), ("zone/b", "DOWN")]),
            // A drain that is gone is read twice.
            WRONG,
            WRONG,
            Say::These(8, &[("canary", "50%"), ("zone/b", "drain")]),
        ]);
        let mut watch = Loop::start(&store, false);
        watch.until("the last one", is_at(8)).await;
    });
    let count = |needle: &str| text.lines().filter(|line| line.contains(needle)).count();
    assert_eq!(count("no value, so the key counts as absent"), 3, "{text}");
    assert_eq!(count("DOWN"), 1, "{text}");
    assert_eq!(count("\"canary\"") - 1, 1, "once wrong, once right: {text}");
    assert_eq!(count("no longer holds"), 2, "{text}");
    assert!(
        !text.lines().any(|line| line.starts_with("ERROR")),
        "{text}"
    );
}

#[test]
fn a_last_snapshot_stays_only_where_there_is_one() {
    let text = log_of(async {
        let store = Scripted::default();
        store.say([
            Say::Fail(StoreErrorKind::Denied, Duration::ZERO),
            Say::These(5, DRAINED),
        ]);
        store.then(Say::Fail(StoreErrorKind::Unreachable, Duration::ZERO));
        let mut watch = Loop::start(&store, true);
        let lost = |view: &View| view.snapshot.is_some() && view.failure.is_some();
        watch.until("the store is lost", lost).await;
    });
    let about = |kind: &str| {
        let line = text.lines().find(|line| line.contains(kind));
        line.unwrap_or_else(|| panic!("{kind} in {text}"))
    };
    assert!(
        about("denied").contains("and there is no snapshot yet"),
        "{text}"
    );
    assert!(
        about("unreachable").contains("the last snapshot stays"),
        "{text}"
    );
}

/// What is logged meanwhile.
fn log_of(work: impl Future<Output = ()>) -> String {
    let log: Lines = Lines::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || lines.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(work);
    log.text()
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
