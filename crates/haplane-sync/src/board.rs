//! What is known of every process and pool now, for pages, probes and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haplane_core::slots::{
    Homeless, InstanceId, Memory, Moment, Observed, Plan, Stage, Transition,
};
use haplane_haproxy::ServerName;

use crate::clock::Clock;
use crate::pool::Pool;
use crate::settings::SocketPath;

/// A slot as the pages show it.
#[derive(Clone, Debug)]
pub struct SlotView {
    /// The server.
    pub server: ServerName,
    /// Where it is in its life.
    pub stage: Stage,
    /// Since when.
    pub since: Moment,
    /// Who sits in it.
    pub instance: Option<InstanceId>,
    /// Its last transitions, oldest first.
    pub history: Arc<Vec<Transition>>,
    /// What HAProxy says of it.
    pub observed: haplane_core::slots::ObservedSlot,
}

/// One pool in one process.
#[derive(Clone, Debug, Default)]
pub struct PoolStatus {
    /// Its slots.
    pub slots: Vec<SlotView>,
    /// Who has none.
    pub homeless: Vec<Homeless>,
    /// Who waits because it comes and goes.
    pub damped: Vec<InstanceId>,
    /// Who could not be brought in, and is tried again.
    pub failing: Vec<InstanceId>,
    /// Slots that a person changed and that are left alone.
    pub by_hand: Vec<ServerName>,
    /// In how many rounds of late something had to be put right that was changed from outside, once that is often.
    pub contested: Option<usize>,
    /// When a round last went well.
    pub last_success: Option<Moment>,
    /// What is wrong now.
    pub error: Option<String>,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ProcessStatus {
    /// Its number, while it answers.
    pub pid: Option<u32>,
    /// Its version.
    pub version: String,
    /// When its loop last came round, however that went.
    pub last_turn: Moment,
    /// What is wrong with it as a whole.
    pub error: Option<String>,
    /// Restarts and reloads seen.
    pub restarts: u64,
    /// Its pools.
    pub pools: BTreeMap<String, PoolStatus>,
}

/// Everything that is shown.
#[derive(Debug)]
pub struct Board {
    /// The clock of all moments.
    pub clock: Clock,
    /// The pools.
    pub pools: Vec<Arc<Pool>>,
    /// How often everything is compared.
    pub reconcile: Duration,
    processes: Mutex<BTreeMap<SocketPath, ProcessStatus>>,
}

impl Board {
    /// An empty board for these pools and sockets.
    pub fn new(
        clock: Clock,
        pools: Vec<Arc<Pool>>,
        sockets: &[SocketPath],
        reconcile: Duration,
    ) -> Self {
        let new = || ProcessStatus {
            pid: None,
            version: String::new(),
            last_turn: clock.now(),
            error: None,
            restarts: 0,
            pools: BTreeMap::new(),
        };
        let processes = sockets.iter().map(|path| (path.clone(), new())).collect();
        Self {
            clock,
            pools,
            reconcile,
            processes: Mutex::new(processes),
        }
    }

    /// All processes as they are known now.
    pub fn processes(&self) -> BTreeMap<SocketPath, ProcessStatus> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketPath, ProcessStatus>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known of one process.
    pub fn update(&self, path: &SocketPath, change: impl FnOnce(&mut ProcessStatus)) {
        if let Some(process) = self.lock().get_mut(path) {
            change(process);
        }
    }

    /// A loop that has not come round for this long is stuck.
    pub fn patience(&self) -> Duration {
        self.reconcile * 3 + Duration::from_secs(10)
    }

    /// The loops that no longer turn.
    pub fn stuck(&self) -> Vec<String> {
        let late =
            |process: &ProcessStatus| self.clock.ago(process.last_turn) > self.patience() * 2;
        self.lock()
            .iter()
            .filter(|(_, process)| late(process))
            .map(|(path, _)| path.to_string())
            .collect()
    }

    /// When a pool was last in line in every process; none as long as it was not in some.
    pub fn last_success(&self, pool: &str) -> Option<Moment> {
        self.lock()
            .values()
            .map(|process| process.pools.get(pool)?.last_success)
            .min()
            .flatten()
    }

    /// Why this synchroniser is not ready, if it is not.
    pub fn trouble(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for (path, process) in self.lock().iter() {
            for pool in &self.pools {
                let name = &pool.settings.name;
                let status = process.pools.get(name);
                let age = status
                    .and_then(|status| status.last_success)
                    .map(|at| self.clock.ago(at));
                let why = status
                    .and_then(|status| status.error.clone())
                    .or_else(|| process.error.clone());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                match age {
                    None => troubles.push(format!("pool {name} was never in line in {path}{why}")),
                    Some(age) if age > self.patience() => {
                        troubles.push(format!(
                            "pool {name} was last in line in {path} {} s ago{why}",
                            age.as_secs()
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        troubles
    }
}

impl PoolStatus {
    /// Takes in what a round came to.
    pub fn take(&mut self, observed: &Observed, memory: &Memory, plan: &Plan) {
        let ids = |list: &[haplane_core::slots::Instance]| {
            list.iter().map(|instance| instance.id.clone()).collect()
        };
        let view = |slot: &haplane_core::slots::ObservedSlot| {
            let memory = memory.slot(&slot.server)?;
            Some(SlotView {
                server: slot.server.clone(),
                stage: memory.stage,
                since: memory.since,
                instance: memory.occupant.as_ref().map(|instance| instance.id.clone()),
                history: Arc::clone(&memory.history),
                observed: slot.clone(),
            })
        };
        self.slots = observed.slots.iter().filter_map(view).collect();
        self.homeless.clone_from(&plan.homeless);
        self.damped = ids(&plan.damped);
        self.failing = ids(&plan.refused);
        self.by_hand.clone_from(&plan.by_hand);
    }

    /// How many slots are in each stage.
    pub fn stages(&self) -> BTreeMap<Stage, usize> {
        let mut stages: BTreeMap<_, _> = Stage::ALL.into_iter().map(|stage| (stage, 0)).collect();
        for slot in &self.slots {
            *stages.entry(slot.stage).or_default() += 1;
        }
        stages
    }
}
