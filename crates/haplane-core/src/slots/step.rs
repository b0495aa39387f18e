//! Steps, and the commands of the Runtime API that make them.

use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_haproxy::{AdminState, BackendName, Percent, RowKey, ServerName};

use super::model::{Agent, Endpoint, Instance, Opening};
use super::words::{FREE, Words};

/// One thing to do to one slot. Everything about it is decided here; only the state that [`Kind::Open`] and
/// [`Kind::Restate`] take is asked of the responder at the moment they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The slot.
    pub slot: ServerName,
    /// What to do.
    pub kind: Kind,
}

/// What to do to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Take it out of rotation for good: the words of a free slot, then maintenance.
    Retire {
        /// Its agent check.
        agent: Agent,
        /// It will be deleted rather than filled again.
        dynamic: bool,
    },
    /// Cut the sessions that outlived the grace.
    Cut,
    /// Remove a dynamic server.
    Delete,
    /// Tell a slot that keeps its address what it sends and how much it weighs.
    Restate {
        /// Who sits in it.
        instance: Instance,
        /// The words, where the slot has an agent check.
        words: Option<Words>,
        /// Its agent check, which must be on to take words (facts 12.1).
        agent: Agent,
        /// Its weight, where it has none.
        weight: Option<Percent>,
        /// It is out of rotation although it should not be, and has no agent check to put that right.
        reopen: bool,
        /// It has a health check.
        check: bool,
    },
    /// Give a slot that is out of rotation its next address, with its agent check switched off.
    Prepare {
        /// Who will sit in it.
        instance: Instance,
        /// Its agent check.
        agent: Agent,
        /// Set where checks must not go where the configuration sends them.
        check_port: Option<u16>,
    },
    /// Create a dynamic server, which is born in maintenance and with its agent check off.
    Add {
        /// Who will sit in it.
        instance: Instance,
        /// Parameters of `add server`.
        parameters: String,
    },
    /// Put a prepared slot into the state that its instance shall have.
    Open {
        /// Who sits in it.
        instance: Instance,
        /// The words, where the slot has an agent check.
        words: Option<Words>,
        /// Its agent check.
        agent: Agent,
        /// Its weight, where it has none.
        weight: Option<Percent>,
        /// It has a health check.
        check: bool,
        /// Its health check must be started first.
        dynamic: bool,
    },
}

impl Kind {
    /// The word for it in plans, logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Retire { .. } => "retire",
            Self::Cut => "cut",
            Self::Delete => "delete",
            Self::Restate { .. } => "restate",
            Self::Prepare { .. } => "fill",
            Self::Add { .. } => "add",
            Self::Open { .. } => "open",
        }
    }

    /// Whether it brings an instance in, or only makes room or repeats what is.
    pub const fn fills(&self) -> bool {
        matches!(
            self,
            Self::Prepare { .. } | Self::Add { .. } | Self::Open { .. }
        )
    }

    /// The instance that it is about.
    pub const fn instance(&self) -> Option<&Instance> {
        match self {
            Self::Restate { instance, .. }
            | Self::Prepare { instance, .. }
            | Self::Add { instance, .. }
            | Self::Open { instance, .. } => Some(instance),
            Self::Retire { .. } | Self::Cut | Self::Delete => None,
        }
    }

    /// The words that the responder is asked with before the step is taken.
    pub const fn asks(&self) -> Option<&Words> {
        match self {
            Self::Open { words, .. } | Self::Restate { words, .. } => words.as_ref(),
            _ => None,
        }
    }
}

impl Step {
    /// The commands, in the order that keeps every cut-off beginning of them safe. `opening` is what the responder said,
    /// for the steps that ask it.
    pub fn commands(&self, backend: &BackendName, opening: Opening) -> Vec<Command> {
        let row = RowKey {
            backend: backend.clone(),
            server: self.slot.clone(),
        };
        let actions = match &self.kind {
            Kind::Retire { agent, dynamic } => retire(*agent, *dynamic),
            Kind::Cut => vec![Action::ShutdownSessions],
            Kind::Delete => vec![Action::Delete],
            Kind::Restate {
                words,
                agent,
                weight,
                reopen,
                check,
                ..
            } => {
                let mut actions = Vec::new();
                actions.extend(weight.map(Action::Weight));
                actions.extend(speak(words.as_ref(), *agent));
                if *reopen {
                    actions.extend(enter(AdminState::Ready, *check));
                } else if words.is_some() && opening.admin != AdminState::Ready {
                    actions.push(Action::State(opening.admin));
                }
                actions
            }
            Kind::Prepare {
                instance,
                agent,
                check_port,
            } => prepare(instance.endpoint, *agent, *check_port),
            Kind::Add {
                instance,
                parameters,
            } => {
                let Endpoint { address, port } = instance.endpoint;
                vec![Action::Add(address, port.get(), parameters.clone())]
            }
            Kind::Open {
                instance,
                words,
                agent,
                weight,
                check,
                dynamic,
            } => {
                let mut actions = Vec::new();
                if *dynamic && *check {
                    actions.push(Action::EnableHealth);
                }
                let share = if *agent == Agent::Absent {
                    *weight
                } else {
                    opening.weight
                };
                actions.extend(share.map(Action::Weight));
                if !*dynamic {
                    // Read back already; but after a reload in this moment another process takes the commands, whose
                    // slot is in maintenance at its placeholder.
                    let Endpoint { address, port } = instance.endpoint;
                    actions.push(Action::Address(address, port.get()));
                }
                actions.extend(enter(opening.admin, *check));
                actions.extend(speak(words.as_ref(), *agent));
                actions
            }
        };
        actions
            .into_iter()
            .map(|action| Command::new(row.clone(), action))
            .collect()
    }
}

/// Words first: once they are set, every later ask holds the slot in maintenance. Whatever was asked before them is
/// waited for before the slot is used again (facts 12.2).
fn retire(agent: Agent, dynamic: bool) -> Vec<Action> {
    let mut actions = match agent {
        Agent::Absent => Vec::new(),
        // It is about to be deleted, and its parameters said what it sends.
        Agent::On | Agent::Off if dynamic => vec![Action::DisableAgent],
        Agent::On => vec![Action::AgentSend(FREE.to_owned())],
        Agent::Off => vec![Action::EnableAgent, Action::AgentSend(FREE.to_owned())],
    };
    actions.push(Action::State(AdminState::Maint));
    actions
}

/// With its agent check off and no ask under way, nothing but us can open the slot.
fn prepare(
    Endpoint { address, port }: Endpoint,
    agent: Agent,
    check_port: Option<u16>,
) -> Vec<Action> {
    let mut actions = Vec::new();
    if agent == Agent::On {
        actions.push(Action::DisableAgent);
    }
    actions.push(Action::State(AdminState::Maint));
    actions.push(Action::Address(address, port.get()));
    actions.extend(check_port.map(Action::CheckPort));
    actions
}

/// Out of maintenance HAProxy takes a server for up until its first check has failed; `health down` right behind makes
/// it prove itself first. In maintenance the same word would be forgotten (facts 7.2).
fn enter(admin: AdminState, check: bool) -> Vec<Action> {
    let mut actions = vec![Action::State(admin)];
    if check && admin != AdminState::Maint {
        actions.push(Action::HealthDown);
    }
    actions
}

/// Words are only taken while the agent check is on (facts 12.1).
fn speak(words: Option<&Words>, agent: Agent) -> Vec<Action> {
    let Some(words) = words else {
        return Vec::new();
    };
    let mut actions = Vec::new();
    if agent == Agent::Off {
        actions.push(Action::EnableAgent);
    }
    actions.push(Action::AgentSend(words.as_str().to_owned()));
    actions
}
