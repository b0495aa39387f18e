//! The configuration file: one TOML document, overridden key by key by flags and environment.
//!
//! Nothing stops at the first error: every problem is kept with its place and all are shown at once.
//! A key that nobody asked for is a problem too, and the nearest known key is named.

pub mod given;
mod problem;
mod section;
mod unknown;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use toml::Spanned;
use toml::de::DeTable;

pub use given::Given;
pub use problem::{Place, Problem};
pub use section::Section;

/// A value that was given outside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The key as the file would have it, e.g. `agent.listen`.
    pub key: String,
    /// The text given.
    pub text: String,
    /// Where: `--listen` or `HAPLANE_LISTEN`.
    pub origin: String,
}

/// One key as it will be used, for `--print-config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The key, e.g. `agent.listen`.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// Where it comes from: a file with its line, a flag, a variable, or `default`.
    pub origin: String,
}

/// The file's text and everything that overrides it.
#[derive(Debug)]
pub struct Document<'t> {
    name: &'t str,
    text: &'t str,
    root: Option<Spanned<DeTable<'t>>>,
    overrides: Vec<Override>,
    problems: RefCell<Vec<Problem>>,
    effective: RefCell<Vec<Effective>>,
    asked: RefCell<BTreeSet<String>>,
    unknown: RefCell<Vec<unknown::Unknown>>,
}

impl<'t> Document<'t> {
    /// Reads the text of a file; the empty text is a document without keys.
    pub fn parse(name: &'t str, text: &'t str, overrides: Vec<Override>) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let problems = errors
            .into_iter()
            .map(|error| {
                let place = error.span().map_or(Place::File, Place::Span);
                Problem::new(place, error.message().to_owned())
            })
            .collect();
        Self {
            name,
            text,
            root: Some(root),
            overrides,
            problems: RefCell::new(problems),
            effective: RefCell::default(),
            asked: RefCell::default(),
            unknown: RefCell::default(),
        }
    }

    /// The top of the document.
    pub fn root(&self) -> Section<'_> {
        let table = self.root.as_ref().map(Spanned::get_ref);
        Section::new(self, String::new(), table)
    }

    /// Notes a problem.
    pub fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// The keys that were read, as they will be used.
    pub fn effective(&self) -> Vec<Effective> {
        self.effective.borrow().clone()
    }

    /// The full names of all keys that were asked for, given or not: what the documentation has to
    /// explain.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    /// Everything that is wrong, or nothing.
    pub fn finish(&self) -> Result<(), ConfigError> {
        let mut problems = self.problems.borrow().clone();
        let asked = self.asked.borrow();
        problems.extend(self.unknown.borrow().iter().map(|one| one.problem(&asked)));
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|problem| problem.place.order());
        problems.dedup();
        Err(ConfigError::new(self.name, self.text, &problems))
    }

    fn line_of(&self, offset: usize) -> usize {
        self.text
            .get(..offset)
            .unwrap_or_default()
            .matches('\n')
            .count()
            + 1
    }
}

/// All problems of a configuration, rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    plain: String,
    styled: String,
    /// How many problems there are.
    pub count: usize,
}

impl ConfigError {
    fn new(name: &str, text: &str, problems: &[Problem]) -> Self {
        Self {
            plain: problem::render(name, text, problems, problem::Style::Plain),
            styled: problem::render(name, text, problems, problem::Style::Colour),
            count: problems.len(),
        }
    }

    /// The report with colours, for a terminal.
    pub fn styled(&self) -> &str {
        &self.styled
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
