//! The way that every write takes: read, expand the targets, guard, confirm, write, prove, report.

mod clocks;
mod conflict;
mod guards;
mod kept;
mod report;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::converge::Scope;
use haplane_core::floor::Share;
use haplane_core::log::Changed;
use haplane_core::outlook::Outlook;
use haplane_core::target::{Among, Target, backend_of, is_in_zone, zones_within};
use haplane_core::{Key, Snapshot};
use jiff::Timestamp;

use crate::cli::WriteOptions;
use crate::command::refuse_unknown;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::knowledge::Knowledge;
use crate::report::Report;
use crate::session::Session;
use crate::wait::{Goal, Waited, wait};
use crate::write::{self, Author, Wanted, Written};
use kept::Kept;
pub use report::nothing_written;

/// One command that writes.
pub struct Writer<'s> {
    /// What it runs with.
    pub session: &'s Session,
    /// Its options.
    pub options: &'s WriteOptions,
    /// The state as it was read last.
    pub snapshot: Snapshot,
    /// The agents.
    pub fleet: Fleet,
    /// What they know.
    pub knowledge: Knowledge,
    /// The keys that the targets stand for, in the order of the command.
    pub keys: Vec<Key>,
    /// Whether a glob or a zone found keys that nobody typed.
    is_pattern: bool,
    /// Whether a person, or `--yes`, has said yes to this command.
    confirmed: Cell<bool>,
    /// Whether it was said which rows do not follow.
    warned: Cell<bool>,
    /// Whether it was said whose clocks are others.
    warned_of_clocks: Cell<bool>,
    /// The changes that were reported already, before a wait.
    told: RefCell<Option<Vec<Changed>>>,
}

/// What a write did, or with `--dry-run` would do.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was written.
    pub written: Written,
    /// The rows of which something else is desired now.
    pub moved: Vec<Key>,
    /// What the backends keep in rotation, those that it touches.
    pub shares: Vec<Share>,
    /// The rows that stay in rotation although they are among those that were to leave it.
    pub kept_in: Vec<Kept>,
    /// The rows that stay out although they are among those that were to come back.
    pub kept_out: Vec<Kept>,
    /// Rows that another key kept out of rotation, and that come back.
    pub brought_in: Vec<Kept>,
}

impl Outcome {
    /// This and a later one of the same command, combined: the first `before`, the last `after`.
    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        for late in next.written.changed {
            let changed = &mut self.written.changed;
            match changed.iter_mut().find(|early| early.key == late.key) {
                Some(early) => early.after = late.after,
                None => changed.push(late),
            }
        }
        self.written.changed.retain(|one| one.before != one.after);
        self.written.index = self.written.index.max(next.written.index);
        if !next.written.log_ids.is_empty() {
            self.kept_in = next.kept_in;
            self.kept_out = next.kept_out;
            self.brought_in = next.brought_in;
        }
        self.written.log_ids.extend(next.written.log_ids);
        self.moved.extend(next.moved);
        self.moved.sort();
        self.moved.dedup();
        for late in next.shares {
            match self
                .shares
                .iter_mut()
                .find(|early| early.backend == late.backend)
            {
                Some(early) => early.after = late.after,
                None => self.shares.push(late),
            }
        }
        self
    }
}

impl<'s> Writer<'s> {
    /// Reads the state, asks the agents, and finds the keys that the targets stand for.
    pub async fn prepare(
        session: &'s Session,
        options: &'s WriteOptions,
        targets: &[Target],
        among: Among,
    ) -> Result<Self, Failure> {
        let snapshot = session.read().await?;
        let fleet = session.fleet(&options.fleet).await?.following(&snapshot);
        let knowledge = Knowledge::gather(&fleet, &options.fleet, &snapshot).await?;
        knowledge.tell_absent(session);
        let keys = knowledge.known.expand(targets, among)?;
        for target in targets {
            tell_zones(session, target, &keys);
        }
        session.sure_of_absence(&snapshot, &keys).await?;
        if !options.force {
            refuse_unknown(&knowledge.known, &keys).map_err(|failure| {
                let message = format!("{} (--force takes it all the same)", failure.message);
                Failure { message, ..failure }
            })?;
        }
        let out_of_reach: Vec<&str> = keys
            .iter()
            .filter(|key| knowledge.out_of_reach.contains(key))
            .map(Key::as_str)
            .collect();
        if !out_of_reach.is_empty() {
            session.output.warn(&format!(
                "not enrolled, so no write reaches them: {}",
                out_of_reach.join(", ")
            ));
        }
        Ok(Self {
            session,
            options,
            snapshot,
            fleet,
            knowledge,
            keys,
            is_pattern: targets.iter().any(|one| !matches!(one, Target::Key(_))),
            confirmed: Cell::new(false),
            warned: Cell::new(false),
            warned_of_clocks: Cell::new(false),
            told: RefCell::default(),
        })
    }

    /// The same value, or none, for every key.
    pub fn wanted(&self, value: Option<haplane_core::Value>) -> Vec<Wanted> {
        let keys = self.keys.iter().cloned();
        keys.map(|key| Wanted { key, value }).collect()
    }

    /// Writes what is wanted, or with `--dry-run` says what would be written.
    pub async fn write(&self, wanted: &[Wanted]) -> Result<Outcome, Failure> {
        let steps = write::plan(&self.snapshot, wanted);
        let mut outcome = self.foresee(wanted, &steps);
        self.keep_the_floor(&outcome)?;
        self.refuse_a_sweep(wanted, &outcome)?;
        self.mind_the_clocks(wanted, &outcome)?;
        self.warn_of_kept(&outcome);
        if self.options.dry_run {
            return Ok(outcome);
        }
        if steps.is_empty() {
            let left = "nothing had to be written; `haplane wait` tells when it has taken";
            self.stands(&outcome, left);
            return Ok(outcome);
        }
        let rows = report::count(outcome.moved.len(), "row");
        let what = format!("write {} ({rows} moved)", report::count(steps.len(), "key"));
        self.confirm(&what, &outcome)?;
        self.stands(
            &outcome,
            "the write was on its way; `haplane show` tells whether it came through",
        );
        let written = write::commit(&self.session.store, &steps, &self.author()).await;
        outcome.written = match written {
            Ok(written) => written,
            Err(interrupted) => return Err(self.interrupted(interrupted, &outcome).await),
        };
        self.stands(
            &outcome,
            "the change is written and stays; `haplane wait` tells when it has taken",
        );
        if let Err(error) = write::trim_log(&self.session.store).await {
            let output = &self.session.output;
            output.warn(&format!("the log was not trimmed: {}", error.story()));
        }
        Ok(outcome)
    }

    /// Lets a person say yes, once, where the environment demands it, after they have seen to what.
    pub fn confirm(&self, what: &str, foreseen: &Outcome) -> Result<(), Failure> {
        if !self.confirmed.get() {
            if self.session.will_ask(self.options.yes) {
                self.session.output.preview(&Self::foretold(foreseen));
            }
            let agreed = self.session.confirm(self.options.yes, what);
            agreed.map_err(|failure| self.with_nothing_written(failure, foreseen))?;
            self.confirmed.set(true);
        }
        Ok(())
    }

    /// Notes what is left behind if the command is interrupted from here on.
    pub fn stands(&self, outcome: &Outcome, left: &str) {
        let document = self.document(outcome, None);
        self.session.standing.is(left, document);
    }

    /// The state as it is, and as it will be.
    fn outlooks(&self, wanted: &[Wanted]) -> (Outlook<'_>, Outlook<'_>) {
        let before = Outlook::present(&self.snapshot, Timestamp::now());
        let wanted = wanted.iter().map(|one| (one.key.clone(), one.value));
        let after = before.clone().with(wanted);
        (before, after)
    }

    fn foresee(&self, wanted: &[Wanted], steps: &[write::Step]) -> Outcome {
        let (before, after) = self.outlooks(wanted);
        let moved = self.knowledge.moved(&before, &after);
        let touched: BTreeSet<&str> = moved.iter().filter_map(backend_of).collect();
        let shares = self.knowledge.shares(&before, &after);
        let known = &self.knowledge.known;
        let kept = kept::kept(known, wanted, &after);
        let brought_in = kept::brought_in(known, wanted, &before, &after);
        Outcome {
            written: Written {
                index: Some(self.snapshot.index),
                changed: steps.iter().map(write::Step::changed).collect(),
                ..Written::default()
            },
            shares: shares
                .into_iter()
                .filter(|share| {
                    share.before != share.after || touched.contains(share.backend.as_str())
                })
                .collect(),
            moved,
            kept_in: kept.stay_in,
            kept_out: kept.stay_out,
            brought_in,
        }
    }

    fn author(&self) -> Author {
        Author {
            identity: self.session.identity.clone(),
            reason: self.options.reason.clone(),
            ticket: self.options.ticket.clone(),
        }
    }

    /// Reads the state again, after a write.
    pub async fn refresh(&mut self) -> Result<(), Failure> {
        self.snapshot = self.session.read().await?;
        Ok(())
    }

    /// With `--wait`, waits for the proof.
    pub async fn prove(&mut self, outcome: &Outcome) -> Result<Option<Waited>, Failure> {
        if !self.options.proof.wait || self.options.dry_run {
            return Ok(None);
        }
        self.tell_now(outcome);
        let timeout = self.options.proof.timeout;
        self.prove_within(outcome, timeout).await.map(Some)
    }

    /// Waits for the proof of what was written, or of what was there already.
    pub async fn prove_within(
        &mut self,
        outcome: &Outcome,
        timeout: Duration,
    ) -> Result<Waited, Failure> {
        self.refresh().await?;
        let goal = Goal {
            index: outcome.written.index.unwrap_or(self.snapshot.index),
            scope: Scope::Keys(self.keys.iter().cloned().collect()),
            snapshot: &self.snapshot,
            timeout,
        };
        let standing = &self.session.standing;
        let so_far = |waited| standing.has_come_to(self.document(outcome, Some(&waited)));
        Ok(wait(&self.fleet, &goal, &self.session.output, so_far).await)
    }

    /// Proves with `--wait`, and reports.
    pub async fn finish(&mut self, outcome: &Outcome) -> Result<Report, Failure> {
        let waited = match self.prove(outcome).await {
            Ok(waited) => waited,
            Err(mut failure) => {
                failure.document = Some(self.document(outcome, None));
                return Err(failure);
            }
        };
        self.report(outcome, waited.as_ref())
    }

    /// The report; without the proof that was asked for it is a failure.
    pub fn report(&self, outcome: &Outcome, waited: Option<&Waited>) -> Result<Report, Failure> {
        match waited {
            Some(waited) if !waited.converged => {
                let message = format!("written, but {}", waited.summary());
                let mut failure = Failure::new(Exit::NotConverged, message);
                failure.document = Some(self.document(outcome, Some(waited)));
                Err(failure)
            }
            _ => Ok(self.told(outcome, waited)),
        }
    }
}

/// A zone that is a region is told by its zones.
fn tell_zones(session: &Session, target: &Target, keys: &[Key]) {
    let Target::Zone(zone) = target else {
        return;
    };
    let rows = keys.iter().filter(|key| is_in_zone(key.as_str(), zone));
    let zones: Vec<String> = zones_within(zone, rows).into_iter().collect();
    if zones.len() > 1 {
        let zones = zones.join(", ");
        session
            .output
            .note(&format!("zone {zone} is several: {zones}"));
    }
}
