//! A watch loop that remembers everything that it published.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use haplane_core::guard::{Arrival, Guard, Refusal};
use haplane_core::snapshot::Snapshot;
use haplane_store::{Event, Store, StoreErrorKind, View, Watch, WatchSettings};
use haplane_testkit::eventually::eventually;
use tokio::sync::watch::Receiver;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::contract::key;

/// How soon after the store is well the loop has to be, too.
pub(crate) const RECOVERY: Duration = Duration::from_secs(3);
/// For the store itself to come to what is waited for.
pub(crate) const SOON: Duration = Duration::from_secs(10);

type Accepted = Arc<Mutex<Vec<(Arc<Snapshot>, Arrival)>>>;

pub(crate) struct Follower {
    views: Receiver<View>,
    accepted: Accepted,
    failures: Arc<Mutex<Vec<StoreErrorKind>>>,
    _stop: DropGuard,
}

impl Follower {
    pub(crate) fn start(store: impl Store + 'static) -> Self {
        Self::start_with(store, WatchSettings::default())
    }

    /// One that reads as often as it can, to see what is there for a moment only.
    pub(crate) fn start_eager(store: impl Store + 'static) -> Self {
        let settings = WatchSettings {
            spacing: Duration::from_millis(1),
            ..WatchSettings::default()
        };
        Self::start_with(store, settings)
    }

    pub(crate) fn start_with(store: impl Store + 'static, settings: WatchSettings) -> Self {
        let accepted = Accepted::default();
        let failures: Arc<Mutex<Vec<_>>> = Arc::default();
        let (remember, fail) = (Arc::clone(&accepted), Arc::clone(&failures));
        let observe = move |event: Event<'_>| match event {
            Event::Accepted {
                snapshot, arrival, ..
            } => remember
                .lock()
                .unwrap()
                .push((Arc::clone(snapshot), arrival)),
            Event::Failed(kind) => fail.lock().unwrap().push(kind),
            _ => {}
        };
        let (watch, views) = Watch::new(store, Guard::new(true), settings, observe);
        let stop = CancellationToken::new();
        tokio::spawn(watch.run(stop.clone()));
        Self {
            views,
            accepted,
            failures,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn view(&self) -> View {
        self.views.borrow().clone()
    }

    /// How often it failed in this way so far.
    pub(crate) fn failures(&self, kind: StoreErrorKind) -> usize {
        let failures = self.failures.lock().unwrap();
        failures.iter().filter(|&&failure| failure == kind).count()
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let accepted = self.accepted.lock().unwrap();
        accepted.iter().map(|(_, arrival)| *arrival).collect()
    }

    /// Waits until the view is like this.
    #[track_caller]
    pub(crate) fn until(
        &self,
        what: &str,
        within: Duration,
        mut reached: impl FnMut(&View) -> bool,
    ) -> impl Future<Output = View> {
        eventually(what, within, async move || {
            let view = self.view();
            let seen = (
                view.snapshot.as_ref().map(|snapshot| snapshot.index),
                view.guard.clone(),
                view.failure.clone(),
            );
            if reached(&view) { Ok(view) } else { Err(seen) }
        })
    }

    /// Waits until the key has this value, and nothing is wrong any more.
    #[track_caller]
    pub(crate) fn until_says(
        &self,
        name: &str,
        value: &str,
        within: Duration,
    ) -> impl Future<Output = View> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.until("a key with its value", within, move |view| {
            let is_well = view.guard.is_none() && view.failure.is_none();
            let is = view.snapshot.as_deref().and_then(|s| says(s, &name));
            is_well && is.as_ref() == Some(&value)
        })
    }

    #[track_caller]
    pub(crate) fn until_refused(&self, reason: Refusal) -> impl Future<Output = View> {
        self.until(reason.as_str(), SOON, move |view| {
            view.guard
                .as_ref()
                .is_some_and(|guarded| guarded.reason == reason)
        })
    }

    #[track_caller]
    pub(crate) fn until_failing(&self) -> impl Future<Output = View> {
        self.until("a failure", SOON, |view| view.failure.is_some())
    }

    /// In every snapshot so far, the key had this value.
    #[track_caller]
    pub(crate) fn has_always_said(&self, name: &str, value: &str) {
        for (snapshot, arrival) in self.accepted.lock().unwrap().iter() {
            assert_eq!(
                says(snapshot, name).as_deref(),
                Some(value),
                "{name} at index {} ({arrival:?})",
                snapshot.index
            );
        }
    }

    /// Every snapshot so far satisfies this.
    #[track_caller]
    pub(crate) fn every_snapshot(&self, holds: impl Fn(&Snapshot) -> Result<(), String>) {
        for (snapshot, arrival) in self.accepted.lock().unwrap().iter() {
            if let Err(seen) = holds(snapshot) {
                panic!("at index {} ({arrival:?}): {seen}", snapshot.index);
            }
        }
    }
}

pub(crate) fn says(snapshot: &Snapshot, name: &str) -> Option<String> {
    snapshot
        .get(&key(name))
        .map(|stored| stored.value.to_string())
}
