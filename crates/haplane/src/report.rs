//! What a command has to say, before it is printed: for people and for programs.

mod table;

use anstyle::{AnsiColor, Style};
use haplane_core::key::is_unprintable;
use serde_json::Value;

pub use table::{Cell, Table};

use crate::exit::Exit;

/// In rotation, converged, good.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Out of rotation on purpose, pending.
pub const NOTABLE: Style = AnsiColor::Yellow.on_default();
/// Broken, diverged, invalid.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Beside the point.
pub const FAINT: Style = Style::new().dimmed();

/// What the eye looks for.
pub const STRONG: Style = Style::new().bold();

/// The text without line ends and other control characters: nothing from a store or a peer may
/// control the terminal.
pub fn printable(text: &str) -> String {
    text.replace(is_unprintable, "\u{fffd}")
}

/// What a command has to say, in both forms.
#[derive(Debug)]
pub struct Report {
    /// The document for `--json`.
    pub document: Value,
    /// The same for people.
    pub parts: Vec<Part>,
    /// How the command ends.
    pub exit: Exit,
}

/// A piece of a report for people.
#[derive(Debug)]
pub enum Part {
    /// A line, perhaps with style codes in it.
    Line(String),
    /// A table.
    Table(Table),
}

impl Report {
    /// A report of a command that is done.
    pub fn new(document: Value) -> Self {
        Self {
            document,
            parts: Vec::new(),
            exit: Exit::Done,
        }
    }

    /// Adds a line.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.parts.push(Part::Line(line.into()));
        self
    }

    /// Adds a table; one without rows is left out.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        if !table.is_empty() {
            self.parts.push(Part::Table(table));
        }
        self
    }

    /// Ends with another exit status.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }
}
