//! `haplane sync --plan` and `--once`: read the sources, look, and say or do what is to be done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::slots::hold::Held;
use haplane_core::slots::{Homeless, Memory, Plan, Planned, Stage};
use haplane_store::consul::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::observe::served;
use crate::pool::Pool;
use crate::process::{Process, RoundError, Taken};
use crate::responder::Responder;
use crate::settings::{Source, SyncSettings};
use crate::source::consul::Selection;
use crate::source::{Reading, Refused, consul, file};

/// What is to be done, or was done, about one pool in one HAProxy.
#[derive(Debug)]
pub struct PoolReport {
    /// The pool.
    pub pool: String,
    /// The HAProxy, by its socket.
    pub socket: String,
    /// The steps, in order; with what went wrong, where they were taken.
    pub steps: Vec<(Planned, Option<String>)>,
    /// Who has no slot in the end.
    pub homeless: Vec<Homeless>,
    /// What is held.
    pub held: Option<Held>,
    /// Lines that are no instances.
    pub refused: Vec<Refused>,
    /// Instances left out because another one has their id or address.
    pub twins: Vec<String>,
    /// Its source is a file, not a peer.
    pub from_file: bool,
    /// Why nothing is known.
    pub error: Option<RoundError>,
}

/// Whether steps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Only said.
    Plan,
    /// Taken.
    Apply,
}

/// How long a run goes on after the longest drain.
const PATIENCE: Duration = Duration::from_secs(15);
/// Steps that HAProxy has not taken for this long, tried again and again, it will not take.
const PATIENCE_WITH_FAILURES: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(10);

/// Reads every source once and goes through every HAProxy, all at the same time. What would be held of the pools in
/// `accept` is accepted.
pub async fn run(settings: &SyncSettings, deed: Deed, accept: &[String]) -> Vec<PoolReport> {
    let clock = Clock::start();
    let changed = Arc::new(watch::Sender::new(0));
    let pools = Pool::all(&settings.pools, settings.sockets.len(), &changed);
    let client = Client::new(settings.consul.clone());
    for pool in &pools {
        let reading = read_source(&client, pool).await;
        let _asked_once = pool.take(reading, clock.now());
    }
    let mut running = tokio::task::JoinSet::new();
    for path in &settings.sockets {
        let process = Process::new(
            path.clone(),
            Arc::new(Responder::new(settings.agent)),
            clock,
        );
        running.spawn(go_through(process, pools.clone(), deed, accept.to_vec()));
    }
    let mut reports: Vec<_> = running.join_all().await.into_iter().flatten().collect();
    reports.sort_by(|a, b| (&a.pool, &a.socket).cmp(&(&b.pool, &b.socket)));
    reports
}

async fn read_source(client: &Client, pool: &Pool) -> Reading {
    match &pool.settings.source {
        Source::Consul(service) => {
            consul::read(client, &Selection::new(service, &pool.settings)).await
        }
        Source::File(path) => file::read(path, pool.settings.limits.allow_empty).await,
    }
}

/// The pools by backend: those of one are looked at together.
pub fn by_backend(pools: &[Arc<Pool>]) -> Vec<Vec<Arc<Pool>>> {
    let mut backends: BTreeMap<&str, Vec<Arc<Pool>>> = BTreeMap::new();
    for pool in pools {
        backends
            .entry(pool.settings.policy.backend.as_str())
            .or_default()
            .push(Arc::clone(pool));
    }
    backends.into_values().collect()
}

async fn go_through(
    mut process: Process,
    pools: Vec<Arc<Pool>>,
    deed: Deed,
    accept: Vec<String>,
) -> Vec<PoolReport> {
    let mut reports = Vec::new();
    for together in by_backend(&pools) {
        for pool in &together {
            let mut report = PoolReport {
                pool: pool.settings.name.clone(),
                socket: process.path().to_string(),
                steps: Vec::new(),
                homeless: Vec::new(),
                held: None,
                refused: Vec::new(),
                twins: Vec::new(),
                from_file: matches!(pool.settings.source, Source::File(_)),
                error: None,
            };
            let done = match deed {
                Deed::Plan => plan_one(&mut process, pool, &mut report).await,
                Deed::Apply => {
                    apply_one(
                        &mut process,
                        pool,
                        &mut report,
                        accept.contains(&pool.settings.name),
                    )
                    .await
                }
            };
            let standing = pool.standing();
            report.error = done.err();
            report.held = standing.held;
            report.refused = standing.refused;
            report.twins = standing.twins;
            reports.push(report);
        }
    }
    reports
}

async fn plan_one(
    process: &mut Process,
    pool: &Arc<Pool>,
    report: &mut PoolReport,
) -> Result<(), RoundError> {
    let socket = process.socket().await?;
    let foreseen = loop {
        let backend = process.look(&socket, std::slice::from_ref(pool)).await?;
        match process.foresee(&backend, pool).await {
            Err(RoundError::NoList) if pool.waits_for_others() => tokio::time::sleep(PAUSE).await,
            foreseen => break foreseen?,
        }
    };
    report.steps = foreseen
        .steps
        .into_iter()
        .map(|planned| (planned, None))
        .collect();
    report.homeless = foreseen.homeless;
    Ok(())
}

async fn apply_one(
    process: &mut Process,
    pool: &Arc<Pool>,
    report: &mut PoolReport,
    mut accept: bool,
) -> Result<(), RoundError> {
    let deadline = Instant::now() + pool.settings.policy.drain_grace + PATIENCE;
    let mut failing_since = None;
    loop {
        let socket = process.socket().await?;
        let backend = process.look(&socket, std::slice::from_ref(pool)).await?;
        let observed = backend.of(&pool.settings);
        pool.learn_baseline(process.path(), served(&observed), process.now());
        if accept && pool.confirm(None).is_ok() {
            accept = false;
        }
        let round = match process.round(&socket, &backend, pool).await {
            Err(RoundError::NoList) if pool.waits_for_others() => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            round => round?,
        };
        for taken in round.taken {
            note(&mut report.steps, taken);
        }
        report.homeless.clone_from(&round.plan.homeless);
        if is_done(process, pool, &round.plan) {
            return Ok(());
        }
        if process.memory(pool).is_some_and(Memory::is_failing) {
            failing_since.get_or_insert_with(Instant::now);
        } else {
            failing_since = None;
        }
        let gives_up =
            failing_since.is_some_and(|since: Instant| since.elapsed() > PATIENCE_WITH_FAILURES);
        if gives_up || Instant::now() > deadline {
            return Err(RoundError::NotSettled);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A step that is taken again takes the place of the attempt that failed.
fn note(steps: &mut Vec<(Planned, Option<String>)>, taken: Taken) {
    let Taken { planned, trouble } = taken;
    let again = |(earlier, trouble): &(Planned, Option<String>)| {
        trouble.is_some() && earlier.step.slot == planned.step.slot
    };
    steps.retain(|step| !again(step));
    if trouble.is_some() || planned.telling {
        steps.push((planned, trouble));
    }
}

/// Sessions that are still draining are waited for only where somebody needs their slot.
fn is_done(process: &Process, pool: &Pool, plan: &Plan) -> bool {
    let Some(memory) = process.memory(pool) else {
        return true;
    };
    let any = |stage| memory.slots().any(|(_, slot)| slot.stage == stage);
    let leaving = any(Stage::Draining);
    plan.is_empty()
        && !any(Stage::Filling)
        && !any(Stage::Idle)
        && (!plan.under_way || leaving)
        && (plan.homeless.is_empty() || !leaving)
}
