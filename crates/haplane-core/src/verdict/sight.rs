//! What a verdict rests on: what was answered, and what one HAProxy shows.

use std::time::Duration;

use haplane_haproxy::agent_check::Answer;
use haplane_haproxy::server_state::{AdminBits, CheckBits, OpState, ServerRow};
use haplane_haproxy::stat_csv::StatRow;
use haplane_haproxy::{AdminState, Percent};

/// What the agent knows of a row by its asks. Durations count back from the moment of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// What was answered last.
    pub answer: Answer,
    /// What would be answered now.
    pub due: Answer,
    /// How long ago the row asked.
    pub asked_ago: Duration,
    /// How long ago it got this answer for the first time without another one since.
    pub answered_ago: Duration,
    /// Its own interval between two asks.
    pub interval: Duration,
}

/// A row as `show servers state` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// All bits of its admin state.
    pub admin: AdminBits,
    /// What HAProxy's own checks made of it.
    pub operational: OpState,
    /// The weight in force, without the ramp of `slowstart`.
    pub weight: u16,
    /// The weight of the configuration.
    pub configured_weight: u16,
    /// Its health check.
    pub check: CheckBits,
    /// Its agent check.
    pub agent: CheckBits,
    /// The port that its agent check asks; `None` when HAProxy does not tell.
    pub agent_port: Option<u16>,
}

impl From<&ServerRow> for Seen {
    fn from(row: &ServerRow) -> Self {
        Self {
            admin: row.admin,
            operational: row.op_state,
            weight: row.uweight,
            configured_weight: row.iweight,
            check: row.check,
            agent: row.agent,
            agent_port: row.agent_port.filter(|_| row.agent.is_configured()),
        }
    }
}

impl Seen {
    /// The admin state in force, inherited or not.
    pub fn admin_state(&self) -> AdminState {
        if self.admin.is_maint() {
            AdminState::Maint
        } else if self.admin.is_drain() {
            AdminState::Drain
        } else {
            AdminState::Ready
        }
    }

    /// The admin state that was set on the row itself, by an agent, by hand or by the configuration:
    /// what an answer decides. What a row inherits from the one it tracks no answer can change
    /// (facts 2.2 h).
    pub(crate) fn forced_state(&self) -> AdminState {
        if self.admin.contains(AdminBits::FMAINT) {
            AdminState::Maint
        } else if self.admin.contains(AdminBits::FDRAIN) {
            AdminState::Drain
        } else {
            AdminState::Ready
        }
    }

    /// HAProxy's word for the state, as `show stat` begins it.
    pub fn status(&self) -> &'static str {
        match (self.admin_state(), self.operational) {
            (AdminState::Maint, _) => "MAINT",
            (_, OpState::Stopped) => "DOWN",
            (AdminState::Drain, _) => "DRAIN",
            (AdminState::Ready, OpState::Stopping) => "NOLB",
            (AdminState::Ready, _) if !self.check.is_configured() => "no check",
            (AdminState::Ready, _) => "UP",
        }
    }

    /// Whether the checks let it take traffic: `up`, `down` or `stopping`.
    pub fn operational_word(&self) -> &'static str {
        match self.operational {
            OpState::Stopped => "down",
            OpState::Starting | OpState::Running => "up",
            OpState::Stopping => "stopping",
        }
    }

    /// The weight that HAProxy makes of a percentage: truncated, and 256 at most (facts 2.2 g).
    pub(crate) fn weight_at(&self, percent: Percent) -> u16 {
        let product = u32::from(self.configured_weight) * u32::from(percent.get()) / 100;
        u16::try_from(product.min(256)).unwrap_or(256)
    }

    /// In what the row differs from what an answer makes of it, if it does.
    pub fn differs_from(&self, answer: Answer) -> Option<Difference> {
        let (wanted, weight) = match answer {
            Answer::Keep => return None,
            Answer::Drain => (AdminState::Drain, None),
            Answer::Maint => (AdminState::Maint, None),
            Answer::Ready { weight, .. } => (AdminState::Ready, weight),
        };
        let shown = self.forced_state();
        if shown != wanted {
            return Some(Difference::Admin { wanted, shown });
        }
        let wanted = weight?;
        (self.weight_at(wanted) != self.weight).then_some(Difference::Weight {
            wanted,
            shown: self.weight,
            configured: self.configured_weight,
        })
    }
}

/// In what HAProxy differs from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The admin state.
    Admin {
        /// As answered.
        wanted: AdminState,
        /// As HAProxy has it.
        shown: AdminState,
    },
    /// The weight.
    Weight {
        /// As answered.
        wanted: Percent,
        /// As HAProxy has it.
        shown: u16,
        /// What 100% are.
        configured: u16,
    },
}

/// A row as `show stat` has it: read more rarely, so up to ten seconds older than [`Seen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// HAProxy's whole word, e.g. `DOWN 1/2`, `MAINT (via web/a)`.
    pub status: Box<str>,
    /// The result of the last agent check; `None` without one, and while it is switched off.
    pub agent: Option<Box<str>>,
    /// HAProxy's words about it: a warning or an error.
    pub last_agent: Box<str>,
    /// Sessions at that moment.
    pub sessions: Option<u64>,
    /// How far `slowstart` has come, in percent, while it runs.
    pub throttle: Option<u32>,
    /// Whether it is a `backup`, which HAProxy uses only when no other server is up.
    pub is_backup: bool,
}

impl From<StatRow> for Stat {
    fn from(row: StatRow) -> Self {
        Self {
            status: row.status.into(),
            agent: row.agent.map(|agent| agent.word.into()),
            last_agent: row.last_agent.into(),
            sessions: row.sessions,
            throttle: row.throttle,
            is_backup: row.backup == Some(1),
        }
    }
}

/// One look at a row in one HAProxy, and how it compares with earlier ones.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The row.
    pub seen: &'a Seen,
    /// Its numbers, once they were read.
    pub stat: Option<&'a Stat>,
    /// How long ago this look was.
    pub looked_ago: Duration,
    /// How long the process has been known.
    pub process_age: Duration,
    /// What earlier looks at the same process showed, for the same answer.
    pub past: Past,
}

/// What earlier looks at a row showed since its answer last changed, in the process that runs now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Some look showed what was answered.
    pub agreed: bool,
    /// For how long, from look to look, it has differed without a break.
    pub differs_for: Duration,
}
