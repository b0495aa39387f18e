//! What HAProxy says about load and health: the CSV text of `show stat`.
//!
//! Columns are found by the names in the header: HAProxy 2.2 writes 100 of them, 3.2 writes 208, and their order is not
//! ours to rely on. Unknown columns are left alone; a column that an older version does not have reads as "nothing".
//! An answer that is cut short, and a row that does not fit its header, are errors, never a shorter list.

use std::collections::HashMap;

use thiserror::Error;

use crate::names::RowKey;

mod records;

use records::{Record, Records};

/// Why a text is not a whole answer to `show stat`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StatError {
    /// The text stops before the empty line that ends every answer of HAProxy.
    #[error("the answer to `show stat` was cut short in line {line}: no empty line ends it")]
    CutShort {
        /// The last line that came.
        line: usize,
    },
    /// The text does not begin with the header: usually HAProxy's own refusal, e.g. `Permission denied`.
    #[error("the answer to `show stat` should begin with `# pxname,svname,…`, but reads: {found}")]
    Header {
        /// What stands there, shortened.
        found: String,
    },
    /// A row has another number of fields than the header.
    #[error("line {line} of `show stat` has {found} fields, the header has {expected}")]
    Fields {
        /// Counted from 1.
        line: usize,
        /// How many there are.
        found: usize,
        /// How many the header names.
        expected: usize,
    },
    /// A field holds something that HAProxy does not write.
    #[error("line {line} of `show stat`: column {column} should be {expected}, but reads: {found}")]
    Field {
        /// Counted from 1.
        line: usize,
        /// HAProxy's own name of the column.
        column: &'static str,
        /// What belongs there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// A quoted field is not closed, or something stands between a closing quote and the next comma.
    #[error("line {line} of `show stat` has a stray quotation mark")]
    Quote {
        /// Counted from 1.
        line: usize,
    },
}

/// What a row of `show stat` is about: the `type` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatKind {
    /// 0: a whole frontend.
    Frontend,
    /// 1: a whole backend.
    Backend,
    /// 2: one server.
    Server,
    /// 3: one listening socket (`option socket-stats`).
    Listener,
}

/// The word of a check's last result, such as `L4OK`, `CHECKED` or `INI`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckWord {
    /// HAProxy's word, without the mark of a check in flight.
    pub word: String,
    /// HAProxy writes `* ` before the word while the next check is under way.
    pub in_flight: bool,
}

impl CheckWord {
    /// None for an empty field: no such check is configured, or it is switched off.
    fn from_field(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let (word, in_flight) = text
            .strip_prefix("* ")
            .map_or((text, false), |word| (word, true));
        Some(Self {
            word: word.to_owned(),
            in_flight,
        })
    }
}

/// One row of `show stat`. A number is none where HAProxy leaves the field empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatRow {
    /// Which line of the text it begins on, from 1.
    pub line: usize,
    /// `pxname`: the name of the section.
    pub proxy: String,
    /// `svname`: the server, or `FRONTEND`, `BACKEND`, or a listener's name.
    pub name: String,
    /// `type`.
    pub kind: StatKind,
    /// The backend and server names, for a server.
    pub row: Option<RowKey>,
    /// `status`, as HAProxy words it: `UP`, `DOWN 1/2`, `DRAIN (agent)`, `MAINT (via be/srv)`, `no check`, …
    pub status: String,
    /// `weight`: the effective weight; for a backend the sum of its servers'.
    pub weight: Option<u32>,
    /// `uweight`: the weight in force before slowstart (2.6 and later).
    pub uweight: Option<u32>,
    /// `throttle`: percent of the weight that slowstart allows by now; none unless it runs.
    pub throttle: Option<u32>,
    /// `act`: active servers up.
    pub active: Option<u32>,
    /// `bck`: backup servers up.
    pub backup: Option<u32>,
    /// `scur`: sessions at this moment.
    pub sessions: Option<u64>,
    /// `stot`: sessions since the start.
    pub sessions_total: Option<u64>,
    /// `qcur`: requests in the queue at this moment.
    pub queued: Option<u64>,
    /// `lastchg`: seconds since the operational state changed.
    pub seconds_since_change: Option<i64>,
    /// `check_status`.
    pub check: Option<CheckWord>,
    /// `last_chk`: what the last health check said.
    pub last_check: String,
    /// `agent_status`; none when no agent check is configured, and also while it is switched off.
    pub agent: Option<CheckWord>,
    /// `agent_health`: 0 when the agent check holds the server down, whatever its health check says; none while it is
    /// switched off.
    pub agent_health: Option<u32>,
    /// `last_agt`: HAProxy's words about the last agent check: a health word, a warning or an error, else empty.
    pub last_agent: String,
    /// `addr`: address and port; empty at socket level `user`.
    pub address: String,
    /// `cookie`: the server's cookie value, or the backend's cookie name.
    pub cookie: String,
    /// `mode`: `tcp`, `http`, `health`, …
    pub mode: String,
    /// `algo`: a backend's load balancing algorithm.
    pub algorithm: String,
    /// `tracked`: the row whose state this one follows.
    pub tracked: String,
}

/// Reads the whole answer of a process to `show stat`.
///
/// # Errors
///
/// Anything that is not a complete, understood answer: see [`StatError`]. Nothing is ever left out silently.
pub fn read(text: &str) -> Result<Vec<StatRow>, StatError> {
    let mut records = Records::new(text);
    let header = match records.next() {
        Some(record) => Header::from_record(&record?)?,
        None => return Err(StatError::CutShort { line: 0 }),
    };
    records.map(|record| header.read_row(&record?)).collect()
}

/// Where each column stands.
struct Header {
    columns: HashMap<String, usize>,
    width: usize,
}

impl Header {
    fn from_record(record: &Record<'_>) -> Result<Self, StatError> {
        let first = record.fields.first().map(AsRef::as_ref).unwrap_or_default();
        let Some(first) = first.strip_prefix("# ").filter(|name| *name == "pxname") else {
            return Err(StatError::Header {
                found: records::shorten(first),
            });
        };
        let rest = record.fields.iter().skip(1).map(AsRef::as_ref);
        let columns: HashMap<_, _> = std::iter::once(first)
            .chain(rest)
            .enumerate()
            .map(|(index, name)| (name.to_owned(), index))
            .collect();
        if !columns.contains_key("svname")
            || !columns.contains_key("status")
            || !columns.contains_key("type")
        {
            return Err(StatError::Header {
                found: records::shorten(&record.fields.join(",")),
            });
        }
        Ok(Self {
            columns,
            width: record.fields.len(),
        })
    }

    fn read_row(&self, record: &Record<'_>) -> Result<StatRow, StatError> {
        if record.fields.len() != self.width {
            return Err(StatError::Fields {
                line: record.line,
                found: record.fields.len(),
                expected: self.width,
            });
        }
        let row = Fields {
            header: self,
            record,
        };
        let kind = match row.text("type") {
            "0" => StatKind::Frontend,
            "1" => StatKind::Backend,
            "2" => StatKind::Server,
            "3" => StatKind::Listener,
            _ => return Err(row.wrong("type", "0, 1, 2 or 3")),
        };
        let row_key = match kind {
            StatKind::Server => Some(RowKey {
                backend: row
                    .text("pxname")
                    .parse()
                    .map_err(|_| row.wrong("pxname", "a backend name"))?,
                server: row
                    .text("svname")
                    .parse()
                    .map_err(|_| row.wrong("svname", "a server name"))?,
            }),
            _ => None,
        };
        Ok(StatRow {
            line: record.line,
            proxy: row.text("pxname").to_owned(),
            name: row.text("svname").to_owned(),
            kind,
            row: row_key,
            status: row.text("status").to_owned(),
            weight: row.number("weight")?,
            uweight: row.number("uweight")?,
            throttle: row.number("throttle")?,
            active: row.number("act")?,
            backup: row.number("bck")?,
            sessions: row.number("scur")?,
            sessions_total: row.number("stot")?,
            queued: row.number("qcur")?,
            seconds_since_change: row.number("lastchg")?,
            check: CheckWord::from_field(row.text("check_status")),
            last_check: row.text("last_chk").to_owned(),
            agent: CheckWord::from_field(row.text("agent_status")),
            agent_health: row.number("agent_health")?,
            last_agent: row.text("last_agt").to_owned(),
            address: row.text("addr").to_owned(),
            cookie: row.text("cookie").to_owned(),
            mode: row.text("mode").to_owned(),
            algorithm: row.text("algo").to_owned(),
            tracked: row.text("tracked").to_owned(),
        })
    }
}

/// One row together with the header that names its fields.
struct Fields<'a> {
    header: &'a Header,
    record: &'a Record<'a>,
}

impl<'a> Fields<'a> {
    /// A field's text; empty when this HAProxy has no such column.
    fn text(&self, column: &str) -> &'a str {
        let index = self.header.columns.get(column);
        index
            .and_then(|index| self.record.fields.get(*index))
            .map(AsRef::as_ref)
            .unwrap_or_default()
    }

    fn number<T: std::str::FromStr>(&self, column: &'static str) -> Result<Option<T>, StatError> {
        match self.text(column) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| self.wrong(column, "a number")),
        }
    }

    fn wrong(&self, column: &'static str, expected: &'static str) -> StatError {
        let found = records::shorten(self.text(column));
        StatError::Field {
            line: self.record.line,
            column,
            expected,
            found,
        }
    }
}
