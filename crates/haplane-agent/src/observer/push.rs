//! Push: sets a row through HAProxy's own socket as the responder would answer it at its next ask.
//!
//! Pull stays the truth and confirms within one interval; push only removes the wait. It sets nothing
//! that the responder would not answer, no row that is switched off or asks somebody else, and no
//! state that was set by hand while the store said nothing new.

use std::collections::HashMap;
use std::sync::Arc;

use haplane_core::verdict::Seen;
use haplane_haproxy::AdminState;
use haplane_haproxy::agent_check::Answer;
use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_runtime::{Change, Group, Socket};
use tokio::time::Instant;

use super::asked::AskedRow;
use super::look::Look;

/// What came of pushing one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pushed {
    /// HAProxy took it, and shows it.
    Applied,
    /// HAProxy took it, and shows something else: an agent's answer may have come in between.
    NotApplied,
    /// HAProxy refused it.
    Refused,
    /// No answer that can be understood.
    Unknown,
}

impl Pushed {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Applied,
        Self::NotApplied,
        Self::Refused,
        Self::Unknown,
    ];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NotApplied => "not_applied",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether the process that is looked at is the one of the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The same.
    Same,
    /// A new one: it knows nothing of what the old one was answered.
    New,
}

/// One row to set.
#[derive(Debug)]
pub struct Wanted {
    row: Arc<str>,
    due: Answer,
    group: Group,
}

/// Pushes through one socket.
#[derive(Debug)]
pub struct Pusher {
    /// The responder's port: rows that ask another are not ours.
    port: u16,
    /// What was pushed since a row last asked, and when: each change is pushed once, pull does the
    /// rest.
    pushed: HashMap<Arc<str>, (Answer, Instant)>,
}

impl Pusher {
    /// Pushes to rows that ask this port.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            pushed: HashMap::new(),
        }
    }

    /// What has to be set, by a look that shows HAProxy as it is now.
    pub fn wanted(
        &mut self,
        asked: &HashMap<Arc<str>, AskedRow>,
        look: &Look,
        generation: Generation,
    ) -> Vec<Wanted> {
        if generation == Generation::New {
            self.pushed.clear();
        }
        self.pushed
            .retain(|row, (_, at)| asked.get(row).is_some_and(|asked| asked.asked < *at));
        let wanted = |(row, asked): (&Arc<str>, &AskedRow)| {
            let seen = look.rows.get(row)?;
            let group = self.change(row, asked, seen, generation, look.ended)?;
            Some(Wanted {
                row: Arc::clone(row),
                due: asked.due,
                group,
            })
        };
        asked.iter().filter_map(wanted).collect()
    }

    fn change(
        &self,
        row: &Arc<str>,
        asked: &AskedRow,
        seen: &Seen,
        generation: Generation,
        now: Instant,
    ) -> Option<Group> {
        // What HAProxy was told last, by an answer or by a push since.
        let told = self.pushed.get(row).map_or(asked.answer, |(due, _)| *due);
        let has_changed = match generation {
            Generation::Same => asked.due != told && !asked.is_silent(now),
            Generation::New => true,
        };
        let asks_us =
            seen.agent.is_enabled() && seen.agent_port.is_none_or(|asked| asked == self.port);
        if !has_changed || !asks_us || asked.is_ambiguous {
            return None;
        }
        seen.differs_from(asked.due)?;
        commands(row, asked.due)
    }

    /// Sets them; what HAProxy said to each.
    pub async fn push(&mut self, socket: &Socket, wanted: &[Wanted]) -> Vec<Change> {
        let now = Instant::now();
        for one in wanted {
            self.pushed.insert(Arc::clone(&one.row), (one.due, now));
        }
        let groups: Vec<Group> = wanted.iter().map(|one| one.group.clone()).collect();
        socket.change(&groups).await
    }
}

/// What an answer does, as commands: the weight first, so that no row gets more traffic than it should
/// for a moment. The word `up` is left to the answer itself.
fn commands(row: &str, due: Answer) -> Option<Group> {
    let row: haplane_haproxy::RowKey = row.parse().ok()?;
    let actions = match due {
        Answer::Keep => return None,
        Answer::Drain => vec![Action::State(AdminState::Drain)],
        Answer::Maint => vec![Action::State(AdminState::Maint)],
        Answer::Ready { weight, .. } => weight
            .map(Action::Weight)
            .into_iter()
            .chain([Action::State(AdminState::Ready)])
            .collect(),
    };
    let command = |action| Command::new(row.clone(), action);
    Some(actions.into_iter().map(command).collect())
}

/// The result for each row, judged by what HAProxy shows afterwards, and the first trouble if there
/// was any.
pub fn results(
    wanted: &[Wanted],
    changes: &[Change],
    after: Option<&Look>,
) -> (Vec<Pushed>, Option<String>) {
    let mut trouble = None;
    let result = |(one, change): (&Wanted, &Change)| match change {
        Change::Done => {
            let shows = after
                .and_then(|look| look.rows.get(&one.row))
                .is_some_and(|seen| seen.differs_from(one.due).is_none());
            if shows {
                Pushed::Applied
            } else {
                Pushed::NotApplied
            }
        }
        Change::Refused(why) => {
            trouble.get_or_insert_with(|| why.clone());
            Pushed::Refused
        }
        Change::Unknown(why) => {
            trouble.get_or_insert_with(|| why.clone());
            Pushed::Unknown
        }
    };
    let results = wanted.iter().zip(changes).map(result).collect();
    (results, trouble)
}

#[cfg(test)]
mod tests;
