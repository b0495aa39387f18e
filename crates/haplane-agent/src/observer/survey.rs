//! All rows, those that ask and those that HAProxy has, each with its verdict.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::resolve::{Policy, resolve};
use haplane_core::verdict::{
    Cause, Judgement, Seen, Sight, Stat, Verdict, judge, judge_unasked, judge_unseen,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::asked::AskedRow;
use super::board::{Board, Haproxy, Sighting};
use super::slots::{Fate, Slots};
use crate::rows::{RowRecord, Rows};

/// One row as one HAProxy shows it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The socket.
    pub socket: String,
    /// When it was looked at.
    pub at: Timestamp,
    /// The process.
    pub pid: u32,
    /// The row.
    pub seen: Seen,
    /// Its numbers, up to ten seconds older.
    pub stat: Option<Stat>,
    /// Its sessions, counted since its admin state last changed.
    pub sessions: Option<u64>,
    /// The verdict on the row in this HAProxy.
    pub judgement: Judgement,
}

/// One line of the survey.
#[derive(Debug)]
pub struct Surveyed {
    /// The row.
    pub row: Arc<str>,
    /// What it asked; `None` when it never did.
    pub record: Option<RowRecord>,
    /// The verdict, the worst of all HAProxy.
    pub judgement: Judgement,
    /// Every HAProxy that shows it, the one of the verdict first.
    pub observed: Vec<Observed>,
    /// Whether its server line has `agent-check`; `None` when no HAProxy shows it.
    pub enrolled: Option<bool>,
    /// What workers that finish after a reload still hold; `None` when nobody counts them.
    pub old_sessions: Option<u64>,
}

/// What a survey is made from.
#[derive(Debug)]
pub struct Surveyor<'a> {
    /// What was asked.
    pub rows: &'a Mutex<Rows>,
    /// What every HAProxy showed.
    pub board: &'a Board,
    /// What is answered from; `None` before the first snapshot.
    pub snapshot: Option<&'a Snapshot>,
    /// The site's choices.
    pub policy: Policy,
    /// The responder's port.
    pub port: u16,
}

impl Surveyor<'_> {
    /// All rows by name.
    pub fn survey(&self) -> Vec<Surveyed> {
        let records = self
            .rows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .list();
        let now = Instant::now();
        let asking: HashSet<Arc<str>> = records
            .iter()
            .filter(|record| !record.is_silent(now))
            .map(|record| Arc::clone(&record.row))
            .collect();
        let haproxies = self.board.haproxies();
        let answering_for = self.board.answering_for(now);
        let place = Place {
            surveyor: self,
            slots: Slots::of(&haproxies, &asking, self.port, answering_for, now),
            haproxies,
            answering_for,
            now,
            at: Timestamp::now(),
        };
        let mut asked: HashSet<Arc<str>> = HashSet::with_capacity(records.len());
        let mut surveyed = Vec::with_capacity(records.len());
        for record in records {
            asked.insert(Arc::clone(&record.row));
            // It asks by another line now: its `agent-send` was changed.
            let is_old_line = record.is_silent(now) && asking.contains(&record.row);
            if !is_old_line {
                surveyed.extend(place.asked(record));
            }
        }
        surveyed.extend(place.unasked(&asked));
        surveyed.sort_by(|a, b| a.row.cmp(&b.row));
        let old = self.board.old_workers();
        for one in &mut surveyed {
            one.old_sessions = old.as_ref().and_then(|old| old.sessions(&one.row));
        }
        surveyed
    }
}

/// One moment of a survey.
struct Place<'a> {
    surveyor: &'a Surveyor<'a>,
    haproxies: Vec<Haproxy>,
    /// What holds rows of other names; unknown while a look is missing.
    slots: Option<Slots>,
    answering_for: Duration,
    now: Instant,
    at: Timestamp,
}

impl Place<'_> {
    /// A line that was asked; nothing when nobody has a row of it any more.
    fn asked(&self, record: RowRecord) -> Option<Surveyed> {
        let due = self.surveyor.snapshot.map_or(record.answer, |snapshot| {
            resolve(&record.ask, snapshot, self.at, self.surveyor.policy).answer
        });
        let asked = AskedRow::new(&record, due);
        let mut said = asked.said(self.now);
        // Several HAProxy processes with the same row ask with the same line, so between two asks of
        // one, the others ask too.
        said.interval *= self.sharing(&record.row).max(1);
        let mut observed = Vec::new();
        let mut unseen = Vec::new();
        for haproxy in &self.haproxies {
            match haproxy.present(self.now) {
                Some(sighting) => {
                    let sight = sighting.sight(&record.row, Some(record.answer), self.now);
                    observed.extend(sight.map(|sight| {
                        let judgement = judge(&said, &sight);
                        show(haproxy, sighting, &record.row, &sight, judgement)
                    }));
                }
                None if may_have(haproxy, &record.row) => {
                    unseen.push(judge_unseen(&said, Cause::NoLook(haproxy.absence())));
                }
                None => {}
            }
        }
        let own = |cause| judge_unseen(&said, cause);
        let judgement = if record.keys().is_empty() {
            if said.is_silent() {
                // None is free now.
                return None;
            }
            own(Cause::FreeSlots)
        } else if self.haproxies.is_empty() {
            own(Cause::NoSocket)
        } else if let Some(worst) = worst(&mut observed, unseen) {
            worst
        } else if said.is_silent() {
            own(self.hanging(&asked, &record.row)?)
        } else {
            own(Cause::UnknownRow)
        };
        Some(Surveyed {
            row: Arc::clone(&record.row),
            record: Some(record),
            judgement,
            enrolled: enrolled(&observed),
            observed,
            old_sessions: None,
        })
    }

    /// Why a row that no HAProxy has by its name does not ask any more; nothing when it is gone.
    fn hanging(&self, asked: &AskedRow, row: &str) -> Option<Cause> {
        let Some(slots) = &self.slots else {
            let away = self.haproxies.iter();
            let mut away = away.filter(|haproxy| haproxy.present(self.now).is_none());
            return away.next().map(|haproxy| Cause::NoLook(haproxy.absence()));
        };
        if self.haproxies.iter().any(|haproxy| haproxy.lost(row)) {
            return None;
        }
        match slots.fate(row, asked.silent_since()) {
            Fate::Gone => None,
            Fate::Unclear => Some(Cause::UnknownRow),
            Fate::Hangs(cause) => Some(cause),
        }
    }

    /// How many HAProxy have this row.
    fn sharing(&self, row: &str) -> u32 {
        let has = |haproxy: &&Haproxy| {
            let sighting = haproxy.present(self.now);
            sighting.is_some_and(|sighting| sighting.rows.contains_key(row))
        };
        let sharing = self.haproxies.iter().filter(has).count();
        u32::try_from(sharing).unwrap_or(u32::MAX)
    }

    /// Rows that HAProxy has and that never asked.
    fn unasked(&self, asked: &HashSet<Arc<str>>) -> Vec<Surveyed> {
        let mut by_row: HashMap<Arc<str>, Vec<Observed>> = HashMap::new();
        for haproxy in &self.haproxies {
            let Some(sighting) = haproxy.present(self.now) else {
                continue;
            };
            for row in sighting.rows.keys().filter(|row| !asked.contains(*row)) {
                let Some(sight) = sighting.sight(row, None, self.now) else {
                    continue;
                };
                let sight = Sight {
                    process_age: sight.process_age.min(self.answering_for),
                    ..sight
                };
                let judgement = judge_unasked(&sight, self.surveyor.port);
                let shown = show(haproxy, sighting, row, &sight, judgement);
                by_row.entry(Arc::clone(row)).or_default().push(shown);
            }
        }
        let surveyed = |(row, mut observed): (Arc<str>, Vec<Observed>)| {
            let judgement = worst(&mut observed, Vec::new())?;
            Some(Surveyed {
                row,
                record: None,
                judgement,
                enrolled: enrolled(&observed),
                observed,
                old_sessions: None,
            })
        };
        by_row.into_iter().filter_map(surveyed).collect()
    }
}

/// Whether a HAProxy that cannot be looked at now may have this row: it had it at the last look, or
/// there never was one.
fn may_have(haproxy: &Haproxy, row: &str) -> bool {
    haproxy
        .sighting
        .as_ref()
        .is_none_or(|sighting| sighting.rows.contains_key(row))
}

fn show(
    haproxy: &Haproxy,
    sighting: &Sighting,
    row: &str,
    sight: &Sight<'_>,
    judgement: Judgement,
) -> Observed {
    Observed {
        socket: haproxy.socket.display().to_string(),
        at: sighting.at,
        pid: sighting.process.pid,
        seen: *sight.seen,
        stat: sight.stat.cloned(),
        sessions: sighting.sessions(row),
        judgement,
    }
}

/// The worst judgement; the HAProxy that it speaks of is moved to the front.
fn worst(observed: &mut [Observed], unseen: Vec<Judgement>) -> Option<Judgement> {
    let mut at = 0;
    for (index, one) in observed.iter().enumerate() {
        let best = observed.get(at).map(|known| &known.judgement);
        if best.is_some_and(|best| one.judgement.is_worse_than(best)) {
            at = index;
        }
    }
    if at > 0 {
        observed.swap(0, at);
    }
    let seen = observed.first().map(|one| one.judgement.clone());
    seen.into_iter()
        .chain(unseen)
        .reduce(|a, b| if b.is_worse_than(&a) { b } else { a })
}

fn enrolled(observed: &[Observed]) -> Option<bool> {
    if observed.is_empty() {
        return None;
    }
    Some(observed.iter().all(|one| one.seen.agent.is_configured()))
}

/// How many rows have which verdict, and how many are not enrolled. Free slots are no rows.
pub fn count(surveyed: &[Surveyed]) -> (Vec<(Verdict, usize)>, usize) {
    let is_row = |one: &&Surveyed| {
        !matches!(
            one.judgement.causes.last(),
            Some(Cause::NotEnrolled | Cause::FreeSlots)
        )
    };
    let of = |verdict| {
        let has = |one: &&Surveyed| one.judgement.verdict == verdict;
        surveyed.iter().filter(is_row).filter(has).count()
    };
    let verdicts = Verdict::ALL.map(|verdict| (verdict, of(verdict)));
    let not_enrolled = surveyed
        .iter()
        .filter(|one| one.enrolled == Some(false))
        .count();
    (verdicts.into(), not_enrolled)
}
