//! The strict reader: what a running process answered to `show servers state`.

use std::net::IpAddr;

use thiserror::Error;

use super::{AdminBits, COLUMNS_SHORT, CheckBits, OpState, ServerRow};
use crate::names::{BackendName, RowKey, ServerName};

/// Why a text is not a whole answer to `show servers state`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StateError {
    /// The text stops before the empty line that ends every answer of HAProxy.
    #[error(
        "the answer to `show servers state` was cut short after line {line}: no empty line ends it"
    )]
    CutShort {
        /// The last line that came.
        line: usize,
    },
    /// The text is something else: usually HAProxy's own refusal, e.g. `Permission denied`.
    #[error(
        "line {line} of the answer to `show servers state` should be {expected}, but reads: {found}"
    )]
    Unexpected {
        /// Counted from 1.
        line: usize,
        /// What belongs there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// A row has too few columns.
    #[error(
        "line {line} of the server state has {found} columns, a row has at least {COLUMNS_SHORT}"
    )]
    Columns {
        /// Counted from 1.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A column holds something that HAProxy does not write.
    #[error(
        "line {line} of the server state: column {column} should be {expected}, but reads: {found}"
    )]
    Column {
        /// Counted from 1.
        line: usize,
        /// HAProxy's own name of the column.
        column: &'static str,
        /// What belongs there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
}

/// Reads the whole answer of a process to `show servers state` or `show servers state BACKEND`.
///
/// # Errors
///
/// Anything that is not a complete, understood answer: see [`StateError`]. Nothing is ever left out silently.
pub fn read_answer(text: &str) -> Result<Vec<ServerRow>, StateError> {
    let lines = whole_lines(text)?;
    let mut lines = lines
        .iter()
        .enumerate()
        .map(|(index, line)| (index + 1, *line));
    expect_line(lines.next(), "the format version `1`", |line| line == "1")?;
    expect_line(lines.next(), "the header `# be_id …`", |line| {
        line.starts_with("# be_id be_name ")
    })?;
    lines.map(|(number, line)| read_row(number, line)).collect()
}

/// The lines before the empty line that ends the answer. Only the prompt of an interactive session may follow that.
fn whole_lines(text: &str) -> Result<Vec<&str>, StateError> {
    let mut lines = Vec::new();
    let mut rest = text.trim_start_matches('\n');
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if line.is_empty() {
            return match rest.trim_end() {
                "" | ">" => Ok(lines),
                _ => Err(StateError::Unexpected {
                    line: lines.len() + 2,
                    expected: "nothing, after the empty line that ends the answer",
                    found: shorten(rest.lines().next().unwrap_or_default()),
                }),
            };
        }
        lines.push(line);
    }
    // A refusal says more than "cut short": report the first line that is no part of an answer.
    expect_line(
        lines.first().map(|line| (1, *line)),
        "the format version `1`",
        |line| line == "1",
    )?;
    Err(StateError::CutShort { line: lines.len() })
}

fn expect_line(
    line: Option<(usize, &str)>,
    expected: &'static str,
    fits: impl Fn(&str) -> bool,
) -> Result<(), StateError> {
    match line {
        Some((_, text)) if fits(text) => Ok(()),
        Some((line, text)) => Err(StateError::Unexpected {
            line,
            expected,
            found: shorten(text),
        }),
        None => Err(StateError::CutShort { line: 0 }),
    }
}

/// At most 80 characters of a text, for a message.
pub(super) fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn read_row(line: usize, text: &str) -> Result<ServerRow, StateError> {
    let fields: Vec<&str> = text.split(' ').filter(|field| !field.is_empty()).collect();
    if fields.len() < COLUMNS_SHORT {
        return Err(StateError::Columns {
            line,
            found: fields.len(),
        });
    }
    let row = Fields {
        line,
        fields: &fields,
    };
    Ok(ServerRow {
        line,
        backend_id: row.number(0, "be_id")?,
        server_id: row.number(2, "srv_id")?,
        row: RowKey {
            backend: row.parsed::<BackendName>(1, "be_name", "a backend name")?,
            server: row.parsed::<ServerName>(3, "srv_name", "a server name")?,
        },
        address: row.address(4, "srv_addr")?,
        op_state: OpState::from_number(row.number(5, "srv_op_state")?)
            .ok_or_else(|| row.wrong(5, "srv_op_state", "0, 1, 2 or 3"))?,
        admin: AdminBits::from_number(row.number(6, "srv_admin_state")?),
        uweight: row.number(7, "srv_uweight")?,
        iweight: row.number(8, "srv_iweight")?,
        seconds_since_change: row.number(9, "srv_time_since_last_change")?,
        check_status: row.number(10, "srv_check_status")?,
        check_result: row.number(11, "srv_check_result")?,
        check_health: row.number(12, "srv_check_health")?,
        check: CheckBits::from_number(row.number(13, "srv_check_state")?),
        agent: CheckBits::from_number(row.number(14, "srv_agent_state")?),
        fqdn: row.text(17).map(str::to_owned),
        port: row.number(18, "srv_port")?,
        check_port: row.port(21, "srv_check_port")?,
        check_address: row.address(22, "srv_check_addr")?,
        agent_address: row.address(23, "srv_agent_addr")?,
        agent_port: row.port(24, "srv_agent_port")?,
    })
}

/// One row, taken apart at its blanks.
struct Fields<'a> {
    line: usize,
    fields: &'a [&'a str],
}

impl<'a> Fields<'a> {
    /// A column's text; none when it holds `-` or is not there (20-column rows).
    fn text(&self, index: usize) -> Option<&'a str> {
        self.fields.get(index).copied().filter(|text| *text != "-")
    }

    fn parsed<T: std::str::FromStr>(
        &self,
        index: usize,
        column: &'static str,
        expected: &'static str,
    ) -> Result<T, StateError> {
        let text = self.fields.get(index).copied().unwrap_or_default();
        text.parse()
            .map_err(|_| self.wrong(index, column, expected))
    }

    fn number<T: std::str::FromStr>(
        &self,
        index: usize,
        column: &'static str,
    ) -> Result<T, StateError> {
        self.parsed(index, column, "a number in range")
    }

    fn port(&self, index: usize, column: &'static str) -> Result<Option<u16>, StateError> {
        match self.text(index) {
            None | Some("0") => Ok(None),
            Some(_) => self.parsed(index, column, "a port").map(Some),
        }
    }

    fn address(&self, index: usize, column: &'static str) -> Result<Option<IpAddr>, StateError> {
        match self.text(index) {
            None => Ok(None),
            Some(_) => self.parsed(index, column, "an IP address or `-`").map(Some),
        }
    }

    fn wrong(&self, index: usize, column: &'static str, expected: &'static str) -> StateError {
        let found = shorten(self.fields.get(index).copied().unwrap_or_default());
        StateError::Column {
            line: self.line,
            column,
            expected,
            found,
        }
    }
}
