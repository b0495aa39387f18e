//! What was asked, by whom, and what was answered: one record for each distinct line.
//!
//! The agent does not know which servers exist; HAProxy tells it at every check, and this is where
//! that is remembered.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::Key;
use haplane_core::ask::Ask;
use haplane_core::resolve::Decision;
use haplane_core::verdict::SILENT_AFTER;
use haplane_haproxy::agent_check::Answer;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::served::Served;

/// The most lines that are remembered. An HAProxy with more rows than this is answered all the same.
pub const MAX_ROWS: usize = 50_000;
/// The most bytes of lines that are remembered. 50,000 usual lines take a tenth of it; a peer that makes up
/// long ones cannot fill the memory.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// A line that nobody asked for this long is forgotten.
pub const FORGET_AFTER: Duration = Duration::from_hours(1);
/// How old the proof may be that the first answer to a line rests on.
const FRESH: Duration = Duration::from_secs(5);
/// The interval assumed for a row that has asked only once. It is long, so that no row is called silent
/// before it is known to be.
const ASSUMED_INTERVAL: Duration = Duration::from_secs(10);
/// No interval counts as shorter than this, since checks are not punctual.
const LEAST_INTERVAL: Duration = Duration::from_millis(500);

/// One ask with its answer, to be remembered.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The line as it came, without its line feed.
    pub line: &'a [u8],
    /// The line, understood.
    pub ask: &'a Ask,
    /// The peer.
    pub by: IpAddr,
    /// When.
    pub at: Timestamp,
    /// What was answered, and why.
    pub decision: &'a Decision,
    /// What it was answered from.
    pub served: &'a Served,
}

/// What remembering an ask showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// The row asks for the first time, or gets the answer that it got before.
    AsBefore,
    /// The row's answer changed with the store: this long after the store's change was seen.
    Changed(Duration),
    /// There is no place to remember more rows.
    NoPlace,
}

/// One distinct line and what is known of it.
#[derive(Clone, Debug)]
pub struct RowRecord {
    /// The row: the first key, or `@free`.
    pub row: Arc<str>,
    /// The line, understood.
    pub ask: Arc<Ask>,
    /// The last answer.
    pub answer: Answer,
    /// The index of the snapshot it was answered from.
    pub index: u64,
    /// The key that decided.
    pub decided_by: Option<Key>,
    /// When it asked last.
    pub last_asked: Timestamp,
    /// Who asked last.
    pub asked_by: IpAddr,
    /// How often it asked.
    pub asks: u64,
    /// Since when it gets this answer.
    pub answered_since: Timestamp,
    /// The same moment as `last_asked`.
    pub asked: Instant,
    /// The same moment as `answered_since`.
    pub answered: Instant,
    interval: Option<Duration>,
}

impl RowRecord {
    /// All keys, in order of precedence.
    pub fn keys(&self) -> &[Key] {
        keys_of(&self.ask)
    }

    /// How long ago it asked.
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.asked)
    }

    /// Its own interval between two asks, as seen.
    pub fn interval(&self) -> Duration {
        self.interval
            .unwrap_or(ASSUMED_INTERVAL)
            .max(LEAST_INTERVAL)
    }

    /// Whether it has stopped asking.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.silence(now) > self.interval() * SILENT_AFTER
    }

    fn ask_again(&mut self, asked: &Asked<'_>, now: Instant) -> Remembered {
        // By time and not by index, because an edit by hand in a folder does not raise the index.
        let changed = self.answer != asked.decision.answer && asked.served.since > self.asked;
        let gap = now.saturating_duration_since(self.asked);
        // One late check moves the estimate by a quarter; a new interval is learned in a few asks.
        self.interval = Some(self.interval.map_or(gap, |known| (known * 3 + gap) / 4));
        self.asked = now;
        self.asks += 1;
        self.last_asked = asked.at;
        self.asked_by = asked.by;
        self.index = asked.served.snapshot.index;
        self.decided_by.clone_from(&asked.decision.decided_by);
        if self.answer != asked.decision.answer {
            self.answer = asked.decision.answer;
            self.answered_since = asked.at;
            self.answered = now;
        }
        if changed {
            Remembered::Changed(now.saturating_duration_since(asked.served.since))
        } else {
            Remembered::AsBefore
        }
    }
}

/// All rows that asked within the last hour.
#[derive(Debug, Default)]
pub struct Rows {
    by_line: HashMap<Box<[u8]>, RowRecord>,
    line_bytes: usize,
}

impl Rows {
    /// How recent the store's word that keys are absent has to be for this answer: any will do for the answer
    /// that the row has already; another one needs a word from after the change.
    pub fn proof_since(
        &self,
        line: &[u8],
        answer: Answer,
        served: &Served,
        now: Instant,
    ) -> Option<Instant> {
        match self.by_line.get(line) {
            None => now.checked_sub(FRESH),
            Some(record) if record.answer == answer => None,
            Some(record) => Some(record.asked.max(served.since)),
        }
    }

    /// Notes one ask.
    pub fn remember(&mut self, asked: &Asked<'_>, now: Instant) -> Remembered {
        if let Some(record) = self.by_line.get_mut(asked.line) {
            return record.ask_again(asked, now);
        }
        let bytes = self.line_bytes + asked.line.len();
        if self.by_line.len() >= MAX_ROWS || bytes > MAX_LINE_BYTES {
            return Remembered::NoPlace;
        }
        self.line_bytes = bytes;
        let row = keys_of(asked.ask).first().map_or("@free", Key::as_str);
        let record = RowRecord {
            row: row.into(),
            ask: Arc::new(asked.ask.clone()),
            answer: asked.decision.answer,
            index: asked.served.snapshot.index,
            decided_by: asked.decision.decided_by.clone(),
            last_asked: asked.at,
            asked_by: asked.by,
            asks: 1,
            answered_since: asked.at,
            asked: now,
            answered: now,
            interval: None,
        };
        self.by_line.insert(asked.line.into(), record);
        Remembered::AsBefore
    }

    /// Forgets what nobody asked for an hour, and silent lines of rows that ask by another line now:
    /// a reload has changed their `agent-send`.
    pub fn forget_old(&mut self, now: Instant) {
        let asking: HashSet<Arc<str>> = self
            .by_line
            .values()
            .filter(|record| !record.is_silent(now))
            .map(|record| Arc::clone(&record.row))
            .collect();
        self.by_line.retain(|_, record| {
            record.silence(now) < FORGET_AFTER
                && !(record.is_silent(now) && asking.contains(&record.row))
        });
        self.count_bytes();
        if self.by_line.capacity() > self.by_line.len().saturating_mul(4) {
            self.by_line.shrink_to_fit();
        }
    }

    /// Forgets silent lines of a row that HAProxy does not have any more. Says whether there were any.
    pub fn forget_removed(&mut self, row: &str, now: Instant) -> bool {
        let before = self.by_line.len();
        self.by_line
            .retain(|_, record| *record.row != *row || !record.is_silent(now));
        self.count_bytes();
        self.by_line.len() < before
    }

    fn count_bytes(&mut self) {
        self.line_bytes = self.by_line.keys().map(|line| line.len()).sum();
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &RowRecord> {
        self.by_line.values()
    }

    /// All records, by row and then by line.
    pub fn list(&self) -> Vec<RowRecord> {
        let mut records: Vec<(&[u8], &RowRecord)> = self
            .by_line
            .iter()
            .map(|(line, record)| (line.as_ref(), record))
            .collect();
        records.sort_unstable_by(|a, b| (&a.1.row, a.0).cmp(&(&b.1.row, b.0)));
        records
            .into_iter()
            .map(|(_, record)| record.clone())
            .collect()
    }

    /// How many lines are remembered.
    pub fn len(&self) -> usize {
        self.by_line.len()
    }
}

fn keys_of(ask: &Ask) -> &[Key] {
    match ask {
        Ask::Free => &[],
        Ask::Row(row) => &row.keys,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haplane_core::Snapshot;
    use haplane_core::resolve::{Policy, resolve};
    use haplane_core::snapshot::Pair;
    use std::net::Ipv4Addr;

    fn served(index: u64, canary: &str, since: Instant) -> Served {
        let pair = Pair {
            path: "canary".to_owned(),
            value: canary.as_bytes().to_vec(),
            version: index,
            log_id: None,
        };
        Served {
            snapshot: Arc::new(Snapshot::new(index, [pair])),
            since,
        }
    }

    fn ask(rows: &mut Rows, line: &[u8], served: &Served, now: Instant) -> Remembered {
        let ask = Ask::parse(line).unwrap();
        let at = Timestamp::UNIX_EPOCH;
        let decision = resolve(&ask, &served.snapshot, at, Policy::default());
        let by = Ipv4Addr::LOCALHOST.into();
        rows.remember(
            &Asked {
                line,
                ask: &ask,
                by,
                at,
                decision: &decision,
                served,
            },
            now,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_answer_is_timed_from_the_change_of_the_store() {
        let mut rows = Rows::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let ready = served(1, "ready", start);
        assert_eq!(
            ask(&mut rows, b"web/a canary", &ready, after(2)),
            Remembered::AsBefore
        );
        assert_eq!(
            ask(&mut rows, b"web/a canary", &ready, after(4)),
            Remembered::AsBefore
        );
        let drain = served(2, "drain", after(5));
        let changed = Remembered::Changed(Duration::from_secs(1));
        assert_eq!(ask(&mut rows, b"web/a canary", &drain, after(6)), changed);
        assert_eq!(
            ask(&mut rows, b"web/a canary", &drain, after(8)),
            Remembered::AsBefore
        );
        let record = &rows.list()[0];
        assert_eq!(
            (record.asks, record.index, record.answer),
            (4, 2, Answer::Drain)
        );
        assert_eq!(record.interval(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_lines_are_answered_and_not_remembered_without_end() {
        let mut rows = Rows::default();
        let start = Instant::now();
        let served = served(1, "drain", start);
        let padding = vec!["x".repeat(256); 15].join(" ");
        let mut remembered = Remembered::AsBefore;
        for n in 0..4_400 {
            let line = format!("web/s{n} {padding}");
            remembered = ask(&mut rows, line.as_bytes(), &served, start);
        }
        assert_eq!(remembered, Remembered::NoPlace);
        let bytes: usize = rows.by_line.keys().map(|line| line.len()).sum();
        assert!(
            bytes <= MAX_LINE_BYTES && bytes > MAX_LINE_BYTES / 2,
            "{bytes}"
        );
        rows.forget_old(start + FORGET_AFTER);
        assert_eq!(
            ask(&mut rows, b"web/a canary", &served, start),
            Remembered::AsBefore
        );
    }

    #[tokio::test(start_paused = true)]
    async fn rows_fall_silent_and_are_forgotten() {
        let mut rows = Rows::default();
        let start = Instant::now();
        let served = served(1, "ready", start);
        ask(&mut rows, b"web/a canary", &served, start);
        ask(&mut rows, b"@free", &served, start);
        let silent = |rows: &Rows, seconds| {
            let now = start + Duration::from_secs(seconds);
            rows.iter().filter(|record| record.is_silent(now)).count()
        };
        assert_eq!(silent(&rows, 30), 0);
        assert_eq!(silent(&rows, 31), 2);
        let names: Vec<_> = rows
            .list()
            .iter()
            .map(|record| record.row.to_string())
            .collect();
        assert_eq!(names, ["@free", "web/a"]);
        rows.forget_old(start + FORGET_AFTER);
        assert_eq!(rows.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_forgotten_once_its_row_asks_by_another() {
        let mut rows = Rows::default();
        let start = Instant::now();
        let later = start + Duration::from_secs(31);
        let served = served(1, "ready", start);
        ask(&mut rows, b"web/a canary", &served, start);
        ask(&mut rows, b"web/b canary", &served, start);
        ask(&mut rows, b"web/a", &served, later);
        rows.forget_old(later);
        let lines: Vec<_> = rows
            .list()
            .iter()
            .map(|record| (record.row.to_string(), record.keys().len()))
            .collect();
        assert_eq!(lines, [("web/a".to_owned(), 1), ("web/b".to_owned(), 2)]);
        assert!(!rows.forget_removed("web/a", later), "it asks");
        assert!(rows.forget_removed("web/b", later));
        assert_eq!(rows.len(), 1);
    }
}
