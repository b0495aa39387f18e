//! The account of a watch: views for its readers, events for metrics, and lines for the log.
//!
//! Lasting trouble is logged when it begins or changes its kind, then once a minute with a count,
//! and once more when it is over.

use std::sync::Arc;
use std::time::Duration;

use haplane_core::guard::{Arrival, Refusal};
use haplane_core::snapshot::Snapshot;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Event, Failing, Guarded, Moment, View};
use crate::error::{StoreError, StoreErrorKind};

const REPEAT_EVERY: Duration = Duration::from_mins(1);

/// Most keys without a value that one snapshot tells by their names.
const INVALID_TOLD: usize = 20;

pub(super) struct Account<F> {
    views: watch::Sender<View>,
    observe: F,
    trouble: Option<Trouble>,
}

/// From the first refusal or failure until the store is well.
struct Trouble {
    since: Instant,
    what: Kind,
    times: u64,
    told: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Refused(Refusal),
    Failed(StoreErrorKind),
}

impl<F: FnMut(Event<'_>)> Account<F> {
    pub(super) fn new(observe: F) -> (Self, watch::Receiver<View>) {
        let (views, receiver) = watch::channel(View::default());
        let account = Self {
            views,
            observe,
            trouble: None,
        };
        (account, receiver)
    }

    pub(super) fn accepted(&mut self, snapshot: &Arc<Snapshot>, arrival: Arrival) {
        let now = Moment::now();
        let before = self.views.borrow().snapshot.clone();
        let from_index = before.as_ref().map(|old| old.index);
        self.views.send_modify(|view| {
            *view = View {
                snapshot: Some(Arc::clone(snapshot)),
                contact: Some(now),
                changed: Some(now),
                guard: None,
                failure: None,
            };
        });
        (self.observe)(Event::Accepted {
            snapshot,
            arrival,
            from_index,
        });
        tell_arrival(snapshot, arrival, from_index);
        tell_invalid(before.as_deref(), snapshot);
        self.well(now);
    }

    pub(super) fn unchanged(&mut self) {
        let now = Moment::now();
        self.views.send_if_modified(|view| {
            view.contact = Some(now);
            let was_troubled = view.guard.is_some() || view.failure.is_some();
            view.guard = None;
            view.failure = None;
            was_troubled
        });
        (self.observe)(Event::Unchanged);
        self.well(now);
    }

    pub(super) fn refused(&mut self, reason: Refusal, detail: String) {
        let now = Moment::now();
        self.trouble(now, Kind::Refused(reason), &detail);
        self.views.send_if_modified(|view| {
            let before = view.guard.take();
            let since = match &before {
                Some(guarded) if guarded.reason == reason => guarded.since,
                _ => now,
            };
            let guarded = Guarded {
                since,
                reason,
                detail,
            };
            let changed = before.as_ref() != Some(&guarded) || view.failure.is_some();
            view.guard = Some(guarded);
            view.failure = None;
            changed
        });
        (self.observe)(Event::Refused(reason));
    }

    pub(super) fn failed(&mut self, error: &StoreError) {
        let now = Moment::now();
        let what = error.story();
        self.trouble(now, Kind::Failed(error.kind), &what);
        self.views.send_if_modified(|view| {
            let since = view.failure.as_ref().map_or(now, |failing| failing.since);
            let failing = Failing {
                since,
                kind: error.kind,
                what,
            };
            let changed = view.failure.as_ref() != Some(&failing);
            view.failure = Some(failing);
            changed
        });
        (self.observe)(Event::Failed(error.kind));
    }

    fn well(&mut self, now: Moment) {
        if let Some(trouble) = self.trouble.take() {
            let gap = now.instant - trouble.since;
            tracing::info!(?gap, "the store is well again");
            (self.observe)(Event::Recovered { gap });
        }
    }

    fn trouble(&mut self, now: Moment, what: Kind, detail: &str) {
        let now = now.instant;
        let trouble = self.trouble.get_or_insert(Trouble {
            since: now,
            what,
            times: 0,
            // Not logged yet. A time in the far past would do, but it need not exist.
            told: now,
        });
        trouble.times += 1;
        let is_news = trouble.times == 1 || trouble.what != what;
        if is_news || now - trouble.told >= REPEAT_EVERY {
            let stays = if self.views.borrow().snapshot.is_some() {
                "the last snapshot stays"
            } else {
                "and there is no snapshot yet"
            };
            tell_trouble(what, stays, detail, trouble.times, now - trouble.since);
            trouble.told = now;
        }
        trouble.what = what;
    }
}

fn tell_arrival(snapshot: &Snapshot, arrival: Arrival, from_index: Option<u64>) {
    let (index, keys) = (snapshot.index, snapshot.keys().len());
    match arrival {
        Arrival::First => tracing::info!(index, keys, "first snapshot"),
        Arrival::Newer => tracing::info!(index, from_index, keys, "snapshot"),
        Arrival::Restored => {
            tracing::warn!(
                index,
                from_index,
                keys,
                "the store was restored from an earlier time"
            );
        }
        Arrival::Reinitialised => {
            tracing::warn!(index, from_index, keys, "the store was initialised anew");
        }
    }
}

/// A key whose text is no value counts as absent: whoever wrote it by hand learns it here, once for each
/// change.
fn tell_invalid(before: Option<&Snapshot>, now: &Snapshot) {
    let was = |name: &str| before.and_then(|old| old.invalid_text(name));
    let news: Vec<(&str, &str)> = now
        .invalid()
        .map(|(name, bad)| (name, bad.text.as_str()))
        .filter(|(name, text)| was(name) != Some(text))
        .collect();
    for (key, text) in news.iter().take(INVALID_TOLD) {
        tracing::warn!(?key, ?text, "no value, so the key counts as absent");
    }
    if let Some(more) = news
        .len()
        .checked_sub(INVALID_TOLD)
        .filter(|more| *more > 0)
    {
        tracing::warn!(
            more,
            "more keys hold no value and count as absent: /v1/state lists them"
        );
    }
    let mended = before
        .into_iter()
        .flat_map(Snapshot::invalid)
        .filter(|(name, _)| now.invalid_text(name).is_none());
    for (key, _) in mended.take(INVALID_TOLD) {
        tracing::info!(?key, "no longer holds what is no value");
    }
}

fn tell_trouble(what: Kind, stays: &str, detail: &str, times: u64, lasting: Duration) {
    match what {
        Kind::Refused(reason) => tracing::warn!(
            reason = reason.as_str(),
            times,
            ?lasting,
            "what the store says is refused, {stays}: {detail}"
        ),
        Kind::Failed(kind) => tracing::warn!(
            kind = kind.as_str(),
            times,
            ?lasting,
            "the store cannot be read, {stays}: {detail}"
        ),
    }
}
