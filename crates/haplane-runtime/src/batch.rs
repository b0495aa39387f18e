//! Many changes over few connections.

use haplane_haproxy::runtime_cmd::{Action, Command, Marks, SEVERITY, read_replies};

use crate::socket::{Socket, SocketError};

/// Commands that belong together: they travel in one batch, in this order, or not at all.
pub type Group = Vec<Command>;

/// The longest line: 2.2 hangs at 16.3 KB, others refuse (facts 7.4).
const MOST_BYTES: usize = 12_000;

/// What became of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// HAProxy acknowledged every command.
    Done,
    /// HAProxy refused a command; the others of the group may have been done all the same.
    Refused(String),
    /// No answer, or none that can be told apart: anything may have been done. Read back.
    Unknown(String),
}

impl Socket {
    /// Changes what the groups say, as many of them over one connection as fit; what became of each, in order. After a
    /// connection on which nothing was answered, the rest is not tried: it is [`Change::Unknown`] too, and nothing of
    /// it was sent.
    pub async fn change(&self, groups: &[Group]) -> Vec<Change> {
        let mut changes = Vec::with_capacity(groups.len());
        for batch in pack(groups, |command| self.routed(&command.to_string()).len()) {
            match self.send(batch).await {
                Ok(answered) => changes.extend(answered),
                Err(error) => {
                    changes.resize(groups.len(), Change::Unknown(error.to_string()));
                    return changes;
                }
            }
        }
        changes
    }

    async fn send(&self, groups: &[Group]) -> Result<Vec<Change>, SocketError> {
        let commands: Vec<Command> = groups.iter().flatten().cloned().collect();
        if commands.is_empty() {
            return Ok(vec![Change::Done; groups.len()]);
        }
        let marks = self.marks();
        let opening = (marks == Marks::Severity).then(|| SEVERITY.to_owned());
        let lines: Vec<String> = opening
            .into_iter()
            .chain(
                commands
                    .iter()
                    .map(|command| self.routed(&command.to_string())),
            )
            .collect();
        let text = self
            .exchange(&lines.join(";"), &lines.get(1).cloned().unwrap_or_default())
            .await?;
        let replies = match read_replies(&commands, marks, &text) {
            Ok(replies) => replies,
            Err(error) => return Ok(vec![Change::Unknown(error.to_string()); groups.len()]),
        };
        let mut replies = replies.into_iter();
        let change = |group: &Group| {
            let refusals: Vec<_> = replies
                .by_ref()
                .take(group.len())
                .filter_map(Result::err)
                .collect();
            refusals
                .first()
                .map_or(Change::Done, |refusal| Change::Refused(refusal.to_string()))
        };
        Ok(groups.iter().map(change).collect())
    }
}

/// Splits groups into batches that fit on one line. `del server` travels with its own kind only: 2.6 ends its reply so
/// that it cannot be told from a silent success behind it.
fn pack(groups: &[Group], length: impl Fn(&Command) -> usize) -> Vec<&[Group]> {
    let deletes = |group: &Group| group.iter().any(|command| command.action == Action::Delete);
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, group) in groups.iter().enumerate() {
        let size: usize = group.iter().map(|command| length(command) + 1).sum();
        let other_kind = index > start
            && groups
                .get(index - 1)
                .is_some_and(|before| deletes(before) != deletes(group));
        if index > start && (other_kind || bytes + size > MOST_BYTES) {
            batches.extend(groups.get(start..index));
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    batches.extend(groups.get(start..).filter(|rest| !rest.is_empty()));
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use haplane_haproxy::{AdminState, RowKey};

    fn group(actions: &[Action]) -> Group {
        let row: RowKey = "web/w-1".parse().unwrap();
        actions
            .iter()
            .map(|action| Command::new(row.clone(), action.clone()))
            .collect()
    }

    #[test]
    fn batches_stay_below_the_limit_and_keep_groups_whole() {
        let long = group(&[
            Action::AgentSend("x".repeat(5000)),
            Action::State(AdminState::Maint),
        ]);
        let groups = vec![long; 5];
        let batches = pack(&groups, |command| command.to_string().len());
        assert_eq!(
            batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(),
            [2, 2, 1]
        );
    }

    #[test]
    fn deletes_travel_alone() {
        let (change, delete) = (group(&[Action::EnableAgent]), group(&[Action::Delete]));
        let groups = [change.clone(), delete.clone(), delete, change];
        let batches = pack(&groups, |_| 10);
        assert_eq!(
            batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(),
            [1, 2, 1]
        );
        assert!(pack(&[], |_| 10).is_empty());
    }
}
