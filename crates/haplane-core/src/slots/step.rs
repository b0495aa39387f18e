//! Steps, and the commands of the Runtime API that make them.

use std::net::{IpAddr, Ipv4Addr};

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
    /// Take it out of rotation for good: held down by its agent check, the words of a free slot, maintenance.
    Retire {
        /// Its agent check.
        agent: Agent,
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
        /// Its agent check was off, where nobody sees whether it is down: once on, it must not hold a slot that serves.
        lift: bool,
        /// Its weight, where it has none.
        weight: Option<Percent>,
        /// It is out of rotation although it should not be, and has no agent check to put that right.
        reopen: bool,
        /// It has a health check.
        check: bool,
        /// Its health check was switched off.
        start_check: bool,
    },
    /// Tell a slot once more what it sends: nobody can see that somebody else told it something since.
    Say {
        /// The words of its instance, or that it is free.
        words: String,
    },
    /// Give a slot that is out of rotation its next address, with its agent check switched off.
    Prepare {
        /// Who will sit in it.
        instance: Instance,
        /// Its agent check.
        agent: Agent,
        /// Where checks must go, if not where the configuration sends them.
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
        start_check: bool,
        /// It is a dynamic server, born with its address.
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
            Self::Say { .. } => "say",
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
            Self::Retire { .. } | Self::Cut | Self::Delete | Self::Say { .. } => None,
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
            Kind::Retire { agent } => retire(*agent),
            Kind::Cut => vec![Action::ShutdownSessions],
            Kind::Delete => delete(),
            Kind::Say { words } => vec![Action::AgentSend(words.clone())],
            Kind::Restate {
                words,
                agent,
                lift,
                weight,
                reopen,
                check,
                start_check,
                ..
            } => {
                let mut actions = Vec::new();
                actions.extend(start_check.then_some(Action::EnableHealth));
                actions.extend(weight.map(Action::Weight));
                if let Some(words) = words {
                    actions.extend(agent_on(*agent));
                    actions.extend(lift.then_some(Action::AgentUp));
                    actions.push(say(words));
                }
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
                start_check,
                dynamic,
            } => {
                let mut actions = Vec::new();
                actions.extend(start_check.then_some(Action::EnableHealth));
                let share = if *agent == Agent::Absent {
                    *weight
                } else {
                    opening.weight
                };
                actions.extend(share.map(Action::Weight));
                if words.is_some() {
                    actions.extend(agent_on(*agent));
                    actions.push(Action::AgentUp);
                }
                if !*dynamic {
                    // Read back already; but after a reload in this moment another process takes the commands, whose
                    // slot is in maintenance at its placeholder.
                    let Endpoint { address, port } = instance.endpoint;
                    actions.push(Action::Address(address, port.get()));
                }
                actions.extend(enter(opening.admin, *check));
                actions.extend(words.as_ref().map(say));
                actions
            }
        };
        actions
            .into_iter()
            .map(|action| Command::new(row.clone(), action))
            .collect()
    }
}

/// Held down first: the answer to an ask from before may still lift maintenance, but only the word `up`, which no
/// answer to our words has, lifts that. Then the words with which every later ask keeps the slot in maintenance.
fn retire(agent: Agent) -> Vec<Action> {
    let mut actions = agent_on(agent);
    if agent != Agent::Absent {
        actions.extend([Action::AgentDown, Action::AgentSend(FREE.to_owned())]);
    }
    actions.push(Action::State(AdminState::Maint));
    actions
}

/// 2.8 keeps idle connections to the server for half a minute, and does not delete it before they are gone. A change of
/// its address closes them; and a silent reply could not be told from the end of 2.6's reply to `del server`.
fn delete() -> Vec<Action> {
    let nobody = Action::Address(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    vec![nobody, Action::Delete]
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

/// Out of maintenance HAProxy takes a server for up until its first check has failed, and in maintenance `health down`
/// is forgotten (facts 7.2). So a checked one goes by way of drain, where nobody is sent to it: between two commands of
/// one line HAProxy serves requests.
fn enter(admin: AdminState, check: bool) -> Vec<Action> {
    let state = Action::State(admin);
    let unproven = [Action::State(AdminState::Drain), Action::HealthDown];
    match admin {
        AdminState::Ready if check => unproven.into_iter().chain([state]).collect(),
        AdminState::Drain if check => unproven.into(),
        AdminState::Ready | AdminState::Drain | AdminState::Maint => vec![state],
    }
}

/// Words are only taken, and health only set, while the agent check is on (facts 12.1).
fn agent_on(agent: Agent) -> Vec<Action> {
    match agent {
        Agent::Off => vec![Action::EnableAgent],
        Agent::On | Agent::Absent => Vec::new(),
    }
}

fn say(words: &Words) -> Action {
    Action::AgentSend(words.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::sample;

    fn commands(kind: Kind, opening: Opening) -> Vec<String> {
        let step = Step {
            slot: "w".parse().unwrap(),
            kind,
        };
        let backend = "web".parse().unwrap();
        let commands = step.commands(&backend, opening);
        commands.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn who_leaves_is_held_down_before_anything_else() {
        let mut expected = vec![
            "set server web/w agent down",
            "set server web/w agent-send @free",
            "set server web/w state maint",
        ];
        let retire = |agent| commands(Kind::Retire { agent }, Opening::READY);
        assert_eq!(retire(Agent::On), expected);
        assert_eq!(retire(Agent::Absent), expected[2..]);
        expected.insert(0, "enable agent web/w");
        assert_eq!(retire(Agent::Off), expected);
    }

    #[test]
    fn who_comes_is_nobodys_before_it_is_proven() {
        let instance = sample::instance(7);
        let words = Words::of(&instance, &sample::policy(), 100).unwrap();
        let open = |admin, check| {
            let kind = Kind::Open {
                instance: instance.clone(),
                words: Some(words.clone()),
                agent: Agent::Off,
                weight: None,
                check,
                start_check: false,
                dynamic: false,
            };
            let weight = None;
            commands(kind, Opening { admin, weight })[3..].join("; ")
        };
        let words = "set server web/w agent-send web/i7";
        let (drain, down) = (
            "set server web/w state drain",
            "set server web/w health down",
        );
        for (admin, check, states) in [
            (
                AdminState::Ready,
                true,
                format!("{drain}; {down}; set server web/w state ready"),
            ),
            (AdminState::Drain, true, format!("{drain}; {down}")),
            (
                AdminState::Maint,
                true,
                "set server web/w state maint".into(),
            ),
            (
                AdminState::Ready,
                false,
                "set server web/w state ready".into(),
            ),
        ] {
            assert_eq!(open(admin, check), format!("{states}; {words}"));
        }
    }
}
