//! The writer: a server-state file with nothing in it but admin states and weights.
//!
//! HAProxy takes the port of a row from the file, whatever the configuration says (facts 6.2), so the writer is given the
//! configuration's port; everything else of a row is left to the configuration.

use std::fmt::Write as _;

use super::{HEADER, SEED_MARK};
use crate::admin_state::AdminState;
use crate::names::RowKey;

/// `srv_check_status` of a server that was never checked. With 0, "unknown", no check of the server ever has a result:
/// it stays up when its origin dies, and an HTTP check can crash HAProxy (2.6 and 2.8).
const NEVER_CHECKED: u8 = 1;

/// One row of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedRow {
    /// The row.
    pub row: RowKey,
    /// What it starts as. HAProxy sees a configured `disabled` by itself.
    pub state: AdminState,
    /// The port that the configuration gives: HAProxy will have it from here.
    pub port: u16,
    /// The weight that the configuration gives: a drain is dropped when this is 0 and the configuration's is not.
    pub configured_weight: u16,
    /// The weight to start with.
    pub weight: u16,
}

/// The text of a seed; `note` says who wrote it and when, on one line.
pub fn write(rows: &[SeedRow], note: &str) -> String {
    let note = note.replace(|c: char| c.is_control(), " ");
    let mut text = format!("1\n{HEADER}\n{SEED_MARK} {note}\n");
    for row in rows {
        let admin = match row.state {
            AdminState::Ready => 0,
            AdminState::Drain => 8,
            AdminState::Maint => 1,
        };
        // Running, no check result yet, check and agent configured and enabled: as a server without a row starts.
        let written = writeln!(
            text,
            "0 {} 0 {} - 2 {admin} {} {} 0 {NEVER_CHECKED} 0 0 6 22 0 0 - {} -",
            row.row.backend, row.row.server, row.weight, row.configured_weight, row.port
        );
        debug_assert!(written.is_ok(), "a String takes every text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_state::{Fate, StateFile};

    #[test]
    fn what_is_written_is_what_haproxy_reads() {
        let row = |name: &str, state, port, weight| SeedRow {
            row: name.parse().unwrap(),
            state,
            port,
            configured_weight: 100,
            weight,
        };
        let rows = [
            row("web/a", AdminState::Drain, 80, 100),
            row("web/b", AdminState::Maint, 0, 100),
            row("web/c", AdminState::Ready, 65535, 50),
        ];
        let text = write(&rows, "lb-01\n2026-11-29T12:00:00Z");
        let file = StateFile::read(text.as_bytes());
        assert_eq!(file.fate(), &Fate::Loaded);
        assert!(file.is_seed());
        let read: Vec<_> = file
            .rows()
            .iter()
            .map(|row| {
                let values = row.values.as_ref().unwrap();
                (
                    row.server.as_str(),
                    values.admin.number(),
                    values.port,
                    values.uweight,
                    values.iweight,
                )
            })
            .collect();
        assert_eq!(
            read,
            [
                ("a", 8, 80, 100, 100),
                ("b", 1, 0, 100, 100),
                ("c", 0, 65535, 50, 100)
            ]
        );
    }

    #[test]
    fn a_seed_without_rows_is_valid() {
        assert_eq!(
            StateFile::read(write(&[], "").as_bytes()).fate(),
            &Fate::Loaded
        );
    }
}
