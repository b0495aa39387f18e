//! One beat: the row is drained and brought back, and both is proven. Whatever happens on the way there, the way back
//! is taken; and should this process be killed in between, the value ends by itself.
//!
//! Its log entry lives as long as its value, so that whoever looks meanwhile sees whose it is: one a minute would push
//! everybody else's out of the log.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::converge::Scope;
use haplane_core::desired::Desired;
use haplane_core::log::LogId;
use haplane_core::{Key, Snapshot, Value};
use haplane_store::{Change, Expected, Store, Transaction};
use jiff::{Timestamp, Unit};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::HeartbeatOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{Census, Depth, Fleet, Missing};
use crate::identity::Identity;
use crate::report::{GOOD, Report};
use crate::session::Session;
use crate::wait::{Goal, Waited, wait};
use crate::write::{self, Author, Wanted};

/// Who writes, as the log tells it.
const BY: &str = "heartbeat";
/// Why, as the log tells it.
const REASON: &str = "a test of the whole way; it brings the row back by itself";
/// Longer than any beat takes beside its waiting.
const MARGIN: Duration = Duration::from_mins(1);
/// Between two tries of the way back.
const RETRY: Duration = Duration::from_millis(500);
/// How long the way back is tried when the command is to end: a supervisor does not wait for long.
const LAST_TRIES: Duration = Duration::from_secs(5);
/// The most other rows that a refusal names.
const NAMED: usize = 3;

/// What beats.
pub(super) struct Heart<'s> {
    pub(super) session: &'s Session,
    pub(super) options: &'s HeartbeatOptions,
    pub(super) key: Key,
    /// How long each way may take.
    pub(super) timeout: Duration,
    /// Ends the waiting, never the way back.
    pub(super) stop: CancellationToken,
}

/// A beat that was proven.
pub(super) struct Beat {
    there: Waited,
    back: Waited,
}

/// The JSON: the way there as of any wait, and the way back beside it.
#[derive(Serialize)]
struct Told<'b> {
    #[serde(flatten)]
    there: &'b Waited,
    back: &'b Waited,
}

impl Beat {
    /// From each write to its proof.
    pub(super) fn ways(&self) -> [Duration; 2] {
        [&self.there, &self.back].map(|way| Duration::from_millis(way.elapsed_ms))
    }

    pub(super) fn report(&self) -> Report {
        let document = json!(Told {
            there: &self.there,
            back: &self.back,
        });
        let [there, back] = self.ways().map(|way| way.as_secs_f64());
        let nodes = self.back.nodes;
        Report::new(document).line(format!(
            "{GOOD}proven{GOOD:#}: drained in {there:.1} s, back in {back:.1} s: {}/{} load balancers",
            nodes.converged, nodes.total
        ))
    }
}

/// What the way there left to undo.
struct Drained {
    index: u64,
    /// The log entry that says whose it is.
    entry: Option<LogId>,
    until: Timestamp,
}

impl Heart<'_> {
    /// There and back; nothing when it was stopped on the way.
    pub(super) async fn beat(&self) -> Result<Option<Beat>, Failure> {
        let snapshot = self.session.read().await?;
        let fleet = self.session.fleet(&self.options.fleet).await?;
        let fleet = fleet.following(&snapshot);
        let census = fleet.ask(Depth::Rows).await;
        self.is_mine(&census)?;
        let begun = Instant::now();
        let drained = self.drain().await?;
        let there = self.prove(&fleet, drained.index, begun).await;
        let begun = Instant::now();
        let index = self.bring_back(&drained).await?;
        let Some(there) = there? else {
            return Ok(None);
        };
        let back = self.prove(&fleet, index, begun).await?;
        Ok(back.map(|back| Beat { there, back }))
    }

    /// Whether the row is there, and nobody's traffic depends on it.
    fn is_mine(&self, census: &Census) -> Result<(), Failure> {
        let key = &self.key;
        if census.nodes.is_empty() {
            let absent = census.absent.iter().map(Missing::absentee);
            let absent: Vec<String> = absent
                .map(|one| format!("{}: {}", one.node, one.why))
                .collect();
            let message = format!("no agent can be asked: {}", absent.join("; "));
            return Err(Failure::new(Exit::Unreachable, message));
        }
        if !census.rows().contains_key(key) {
            return Err(Failure::refused(format!(
                "no HAProxy asks for {key}, nothing was written: give every haproxy.cfg the heartbeat's \
                 backend (docs/alerts.md of haplane), or name another row"
            )));
        }
        let others = neighbours(key, census);
        if others.is_empty() || self.options.force {
            return Ok(());
        }
        let more = others.len().saturating_sub(NAMED);
        let mut named: Vec<String> = others.into_iter().take(NAMED).collect();
        if more > 0 {
            named.push(format!("{more} more"));
        }
        Err(Failure::refused(format!(
            "{key} is not alone in its backend ({}): it may take traffic, which every beat would take \
             away; nothing was written. Give the heartbeat a backend of its own (docs/alerts.md of haplane); \
             --force drains it all the same",
            named.join(", ")
        )))
    }

    /// The way there.
    async fn drain(&self) -> Result<Drained, Failure> {
        let before = self.session.read().await?;
        let left = self.left_behind(&before).await?;
        let until = self.end();
        let wanted = Wanted {
            key: self.key.clone(),
            value: Some(Value {
                desired: Desired::DRAIN,
                until: Some(until),
            }),
        };
        let author = Author {
            identity: Identity {
                by: BY.to_owned(),
                ..self.session.identity.clone()
            },
            reason: Some(REASON.to_owned()),
            ticket: None,
        };
        let steps = write::plan(&before, &[wanted]);
        let written = write::commit(&self.session.store, &steps, &author)
            .await
            .map_err(|interrupted| Failure::from(interrupted.error))?;
        self.forget(left).await;
        Ok(Drained {
            index: written.index.unwrap_or(before.index),
            entry: written.log_ids.first().copied(),
            until,
        })
    }

    /// Whatever becomes of us, nobody's row stays out for longer.
    fn end(&self) -> Timestamp {
        let end = Timestamp::now()
            .checked_add(self.timeout * 2 + MARGIN)
            .unwrap_or(Timestamp::MAX);
        end.round(Unit::Second).unwrap_or(end)
    }

    /// The log entry of a beat that was killed. A value of anybody else is theirs.
    async fn left_behind(&self, before: &Snapshot) -> Result<Option<LogId>, Failure> {
        let key = &self.key;
        let (text, entry) = match (before.get(key), before.get_invalid(key)) {
            (Some(stored), _) if !stored.value.holds_at(Timestamp::now()) => {
                return Ok(stored.log_id);
            }
            (Some(stored), _) => (stored.value.to_string(), stored.log_id),
            (None, Some(invalid)) => (invalid.text.trim().to_owned(), invalid.log_id),
            (None, None) => return Ok(None),
        };
        let writer = match entry {
            Some(id) => self
                .session
                .store
                .log_entry(id)
                .await?
                .map(|entry| entry.by),
            None => None,
        };
        if writer.as_deref() == Some(BY) {
            return Ok(entry);
        }
        let writer = writer.unwrap_or_else(|| "hand".to_owned());
        Err(Failure::refused(format!(
            "{key} is {text}, written by {writer}: the heartbeat needs a row of its own; \
             `haplane clear {key}` frees it"
        )))
    }

    /// The way back, tried until it is done. Gives the index to wait for.
    async fn bring_back(&self, drained: &Drained) -> Result<u64, Failure> {
        let begun = Instant::now();
        loop {
            let failure = match self.undo(drained).await {
                Ok(index) => {
                    self.forget(drained.entry).await;
                    return Ok(index);
                }
                Err(failure) => failure,
            };
            let patience = if self.stop.is_cancelled() {
                self.timeout.min(LAST_TRIES)
            } else {
                self.timeout
            };
            if failure.exit == Exit::Refused || begun.elapsed() >= patience {
                let message = format!(
                    "{} stays drained until {}: {}",
                    self.key, drained.until, failure.message
                );
                return Err(Failure { message, ..failure });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Deletes the value that this beat wrote. What somebody else wrote over it is theirs, and gone is gone.
    async fn undo(&self, drained: &Drained) -> Result<u64, Failure> {
        let now = self.session.read().await?;
        let stored = now.get(&self.key);
        let ours =
            stored.filter(|stored| stored.log_id.is_some() && stored.log_id == drained.entry);
        let Some(stored) = ours else {
            return Ok(now.index);
        };
        let change = Change {
            key: self.key.clone(),
            path: now.path_of(&self.key),
            expected: Expected::Version(stored.version),
            text: None,
        };
        let transaction = Transaction {
            changes: vec![change],
            log: None,
        };
        let committed = self.session.store.commit(&transaction).await?;
        Ok(committed.index)
    }

    /// A log entry that stays is trimmed one day, as any other.
    async fn forget(&self, entry: Option<LogId>) {
        if let Some(id) = entry
            && let Err(error) = self.session.store.forget_log_entry(id).await
        {
            let output = &self.session.output;
            output.warn(&format!(
                "the heartbeat's log entry {id} stays: {}",
                error.story()
            ));
        }
    }

    /// Waits for the proof, measured from the write's beginning; nothing when it was stopped.
    async fn prove(
        &self,
        fleet: &Fleet,
        index: u64,
        begun: Instant,
    ) -> Result<Option<Waited>, Failure> {
        let snapshot = self.session.read().await?;
        let goal = Goal {
            index,
            scope: Scope::Keys([self.key.clone()].into()),
            snapshot: &snapshot,
            timeout: self.timeout,
        };
        let proof = wait(fleet, &goal, &self.session.output, |_| {});
        let Some(mut waited) = self.stop.run_until_cancelled(proof).await else {
            return Ok(None);
        };
        waited.elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if waited.converged && waited.rows.total > 0 {
            return Ok(Some(waited));
        }
        let message = if waited.converged {
            format!("no HAProxy asks for {} any more", self.key)
        } else {
            waited.summary()
        };
        let mut failure = Failure::new(Exit::NotConverged, message);
        failure.document = Some(json!(waited));
        Err(failure)
    }

    /// Somebody would not wait for the way back.
    pub(super) fn torn_off(&self, by: Exit) -> Failure {
        let message = format!(
            "{}: {} may stay drained until its time is over, {} at the latest; `haplane clear {}` frees it",
            by.word(),
            self.key,
            self.end(),
            self.key
        );
        Failure::new(by, message)
    }
}

/// Other rows of the same backend, on any node, whether they ask or not.
fn neighbours(key: &Key, census: &Census) -> BTreeSet<String> {
    let backend = |row: &str| row.split_once('/').map(|(backend, _)| backend.to_owned());
    let mine = backend(key.as_str());
    let rows = census.nodes.iter().flat_map(|node| &node.rows);
    rows.map(|row| row.row.as_str())
        .filter(|row| *row != key.as_str() && backend(row) == mine)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Node;
    use crate::fleet::answers::{NodeAnswer, RowAnswer};

    #[test]
    fn neighbours_are_of_the_same_backend_on_any_node() {
        let node = |rows: &[&str]| Node {
            address: "127.0.0.1:9".parse().unwrap(),
            answer: NodeAnswer::default(),
            ahead: None,
            rows: rows
                .iter()
                .map(|&row| RowAnswer {
                    row: row.to_owned(),
                    ..RowAnswer::default()
                })
                .collect(),
        };
        let census = Census {
            nodes: vec![
                node(&["web/a", "beat/self", "@free"]),
                node(&["web/a", "web/b"]),
            ],
            absent: Vec::new(),
        };
        let of = |key: &str| {
            let found = neighbours(&key.parse().unwrap(), &census);
            found.into_iter().collect::<Vec<_>>()
        };
        assert!(of("beat/self").is_empty());
        assert_eq!(of("web/a"), ["web/b"]);
        assert_eq!(of("web/x"), ["web/a", "web/b"]);
    }
}
