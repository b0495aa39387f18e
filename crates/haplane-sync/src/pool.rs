//! One pool: its source's guard, who flaps, how it grows, and what shall be served now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haplane_core::slots::flap::{Flap, Flaps};
use haplane_core::slots::forecast::Trend;
use haplane_core::slots::hold::{ConfirmError, Guard, Held, HeldReason};
use haplane_core::slots::{
    Endpoint, Instance, InstanceId, Mode, Moment, Rejected, Wanted, without_duplicates,
};
use tokio::sync::watch;

use crate::settings::{PoolSettings, SocketPath};
use crate::source::{Heard, Listing, Reading, Refused};

/// How long a first list waits for a process that does not answer.
const WAIT_FOR_OTHERS: Duration = Duration::from_millis(500);

/// One pool, shared by its source and by the loops of all HAProxy processes.
#[derive(Debug)]
pub struct Pool {
    /// What is configured.
    pub settings: PoolSettings,
    /// How many processes there are.
    processes: usize,
    inner: Mutex<Inner>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Debug)]
struct Inner {
    guard: Guard,
    flaps: Flaps,
    trend: Trend,
    /// The first list waits here until it is known how many are served: its guard measures it by that.
    first: Option<Vec<Instance>>,
    /// The processes that were looked at before that, and since when there is one.
    looked_at: BTreeSet<SocketPath>,
    first_look: Option<Moment>,
    baseline_known: bool,
    refused: Vec<Refused>,
    twins: Vec<String>,
    failures: BTreeMap<&'static str, u64>,
    last_read: Option<Moment>,
    last_change: Moment,
    instances: usize,
}

/// What a pool shows of its source.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// How many instances the last list has.
    pub instances: usize,
    /// What is held.
    pub held: Option<Held>,
    /// When the source was last read well.
    pub last_read: Option<Moment>,
    /// When its list last changed.
    pub last_change: Moment,
    /// Lines that are no instances.
    pub refused: Vec<Refused>,
    /// Instances left out because another one has their id or address.
    pub twins: Vec<String>,
    /// Failed reads by kind.
    pub failures: BTreeMap<&'static str, u64>,
}

impl Pool {
    /// One for each of these settings.
    pub fn all(
        settings: &[PoolSettings],
        processes: usize,
        changed: &Arc<watch::Sender<u64>>,
    ) -> Vec<Arc<Self>> {
        let one = |pool: &PoolSettings| Self::new(pool.clone(), processes, Arc::clone(changed));
        settings.iter().map(one).map(Arc::new).collect()
    }

    /// A pool whose source has not been read; `changed` is told when what shall be served changes.
    pub fn new(settings: PoolSettings, processes: usize, changed: Arc<watch::Sender<u64>>) -> Self {
        let guard = Guard::new(settings.limits);
        Self {
            settings,
            processes,
            inner: Mutex::new(Inner {
                guard,
                flaps: Flaps::default(),
                trend: Trend::default(),
                first: None,
                looked_at: BTreeSet::new(),
                first_look: None,
                baseline_known: false,
                refused: Vec::new(),
                twins: Vec::new(),
                failures: BTreeMap::new(),
                last_read: None,
                last_change: Moment::default(),
                instances: 0,
            }),
            changed,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in one look at the source; whether its list is acted on as it is.
    pub fn take(&self, reading: Reading, now: Moment) -> Heard {
        let before = self.wanted(now);
        let held_before = self.held();
        {
            let mut inner = self.inner();
            match reading {
                Reading::Failed(failure) => {
                    *inner.failures.entry(failure.kind()).or_default() += 1;
                    // They stood in a list that is no longer there; whoever looks for them finds something else.
                    inner.refused.clear();
                    inner.twins.clear();
                    inner.guard.fail(failure.to_string(), now);
                }
                Reading::List(listing) => {
                    let list = self.of_this_pool(&listing, &mut inner);
                    inner.refused = listing.refused;
                    inner.last_read = Some(now);
                    inner.instances = list.len();
                    inner.flaps.note(
                        list.iter().map(|instance| &instance.id),
                        now,
                        self.settings.damping,
                    );
                    inner.trend.note(list.len(), now);
                    if inner.baseline_known {
                        inner.guard.offer(list, now);
                    } else {
                        inner.first = Some(list);
                    }
                }
            }
        }
        self.say_what_changed(held_before.as_ref());
        if before != self.wanted(now) {
            self.inner().last_change = now;
            self.wake();
        }
        if self.standing().held.is_some() {
            Heard::Held
        } else {
            Heard::Taken
        }
    }

    /// The instances of this pool's zone, each id and each address once.
    fn of_this_pool(&self, listing: &Listing, inner: &mut Inner) -> Vec<Instance> {
        let zone = self.settings.zone.as_deref();
        let here = |instance: &Instance| zone.is_none() || instance.zone.as_deref() == zone;
        let list = listing.instances.iter().filter(|one| here(one));
        let list = list.cloned().collect();
        let served: BTreeMap<Endpoint, InstanceId> = inner
            .guard
            .wanted()
            .map(|wanted| {
                wanted
                    .serve
                    .into_iter()
                    .map(|instance| (instance.endpoint, instance.id))
                    .collect()
            })
            .unwrap_or_default();
        let (list, rejected) = without_duplicates(list, &served);
        inner.twins = told(&rejected, listing);
        list
    }

    fn wake(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// A process was seen to serve this many. The first list is measured by the one that serves most, once all were
    /// looked at, or after a moment: one that was just restarted must not make an empty list look harmless.
    pub fn learn_baseline(&self, process: &SocketPath, served: usize, now: Moment) {
        {
            let mut inner = self.inner();
            if inner.baseline_known {
                return;
            }
            inner.guard.set_baseline(served);
            inner.looked_at.insert(process.clone());
            let first_look = *inner.first_look.get_or_insert(now);
            if inner.looked_at.len() < self.processes && now.since(first_look) < WAIT_FOR_OTHERS {
                return;
            }
            inner.baseline_known = true;
            if let Some(first) = inner.first.take() {
                inner.guard.offer(first, now);
                inner.last_change = now;
            }
        }
        self.say_what_changed(None);
    }

    /// Whether there is a first list that waits for other processes to be looked at.
    pub fn waits_for_others(&self) -> bool {
        self.inner().first.is_some()
    }

    /// What shall be served now; none before the first list.
    pub fn wanted(&self, now: Moment) -> Option<Wanted> {
        let mut inner = self.inner();
        let held_before = inner.guard.held();
        inner.guard.tick(now);
        let mut wanted = inner.guard.wanted()?;
        wanted.damped = inner.flaps.damped(now, self.settings.damping);
        let is_over = held_before.is_some() && inner.guard.held().is_none();
        drop(inner);
        if is_over {
            self.say_what_changed(held_before.as_ref());
        }
        Some(wanted)
    }

    /// An operator accepts what is held.
    pub fn confirm(&self, expected: Option<usize>) -> Result<(usize, usize), ConfirmError> {
        let numbers = self.inner().guard.confirm(expected)?;
        tracing::info!(
            pool = self.settings.name,
            had = numbers.0,
            has = numbers.1,
            "an operator confirmed the held list"
        );
        self.wake();
        Ok(numbers)
    }

    fn held(&self) -> Option<Held> {
        self.inner().guard.held()
    }

    /// What there is to say about the source.
    pub fn standing(&self) -> Standing {
        let inner = self.inner();
        Standing {
            instances: inner.instances,
            held: inner.guard.held(),
            last_read: inner.last_read,
            last_change: inner.last_change,
            refused: inner.refused.clone(),
            twins: inner.twins.clone(),
            failures: inner.failures.clone(),
        }
    }

    /// The last comings and goings of an instance.
    pub fn flaps(&self, id: &InstanceId) -> Vec<Flap> {
        self.inner().flaps.of(id).collect()
    }

    /// When the pool will be full at this rate, of slots that there are, or of dynamic servers that there may be; none
    /// as long as no slot was seen.
    pub fn time_to_full(&self, slots: usize, now: Moment) -> Option<Duration> {
        let room = match self.settings.policy.mode {
            Mode::Slots if slots == 0 => return None,
            Mode::Slots => slots,
            Mode::Dynamic { most, .. } => most,
        };
        self.inner().trend.time_to_full(room, now)
    }

    /// One line for each change of what is held: loudly when it begins, once when it ends.
    fn say_what_changed(&self, before: Option<&Held>) {
        let after = self.held();
        let name = &self.settings.name;
        match (before, after) {
            (Some(before), Some(after))
                if (before.reason, before.has) == (after.reason, after.has) => {}
            (_, Some(held)) if held.reason == HeldReason::Failed => tracing::warn!(
                pool = name,
                source = %self.settings.source,
                reason = held.reason.as_str(),
                had = held.had,
                "the source cannot be read, its last list stays: {}",
                held.detail
            ),
            (_, Some(held)) => tracing::warn!(
                pool = name,
                source = %self.settings.source,
                reason = held.reason.as_str(),
                had = held.had,
                has = held.has,
                "the list is held: nothing is removed; if it is right, run `haplane sync confirm {name}`"
            ),
            (Some(held), None) => tracing::info!(
                pool = name,
                reason = held.reason.as_str(),
                "the list is no longer held"
            ),
            (None, None) => {}
        }
    }
}

/// Who was left out, where it stands, and for whom. Of two lines that are all the same, the last one is meant.
fn told(rejected: &[Rejected], listing: &Listing) -> Vec<String> {
    if rejected.is_empty() {
        return Vec::new();
    }
    let places: BTreeMap<_, _> = listing
        .instances
        .iter()
        .map(|instance| (&instance.id, instance.endpoint))
        .zip(&listing.places)
        .collect();
    let one = |twin: &Rejected| {
        let Rejected { instance, kept, .. } = twin;
        let place = places
            .get(&(&instance.id, instance.endpoint))
            .map(|place| format!("{place}, "))
            .unwrap_or_default();
        format!(
            "{place}{} at {} ({kept} has its id or address)",
            instance.id, instance.endpoint
        )
    };
    rejected.iter().map(one).collect()
}
