//! One table of the document: hands out its keys and notices those that nobody asked for.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::unknown::{self, Unknown};
use super::{Document, Effective, Given, Place, Problem};

/// One table, or the place where it would be.
#[derive(Debug)]
pub struct Section<'d> {
    document: &'d Document<'d>,
    path: String,
    table: Option<&'d DeTable<'d>>,
    /// Where it begins in the file: the place of what it lacks.
    here: Option<Range<usize>>,
    known: RefCell<BTreeSet<String>>,
}

impl<'d> Section<'d> {
    pub(super) fn new(
        document: &'d Document<'_>,
        path: String,
        table: Option<&'d DeTable<'_>>,
    ) -> Self {
        Self {
            document,
            path,
            table,
            here: None,
            known: RefCell::default(),
        }
    }

    fn at(mut self, here: Option<Range<usize>>) -> Self {
        self.here = here;
        self
    }

    /// Notes that somebody asks for this key, so that it is known here and to the documentation's
    /// test.
    fn ask_for(&self, key: &str) {
        self.known.borrow_mut().insert(key.to_owned());
        self.document.asked.borrow_mut().insert(self.name_of(key));
    }

    /// The full name of one of its keys.
    fn name_of(&self, key: &str) -> String {
        unknown::named(&self.path, key)
    }

    /// Reads a key that has a default.
    pub fn or<T>(
        &self,
        key: &str,
        default: &str,
        read: impl Fn(&Given<'_>) -> Result<T, String>,
    ) -> Option<T> {
        if self.is_given(key) {
            return self.optional(key, read);
        }
        self.ask_for(key);
        self.note(Effective {
            key: self.name_of(key),
            value: default_as_toml(default),
            origin: "default".to_owned(),
        });
        read(&Given::Text(default)).ok()
    }

    /// Reads a key that may be absent.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl Fn(&Given<'_>) -> Result<T, String>,
    ) -> Option<T> {
        self.ask_for(key);
        let (given, place) = self.given(key)?;
        match read(&given) {
            Ok(value) => {
                self.note(Effective {
                    key: self.name_of(key),
                    value: given.as_toml(),
                    origin: self.origin(&place),
                });
                Some(value)
            }
            Err(why) => {
                let message = format!("{}: {why}", self.name_of(key));
                self.document.report(Problem::new(place, message));
                None
            }
        }
    }

    /// Whether the key is given at all, here or outside the file.
    pub fn is_given(&self, key: &str) -> bool {
        self.given(key).is_some()
    }

    /// Notes a problem with a key's value that only shows together with other keys.
    pub fn report(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        let here = || self.here.clone().map_or(Place::File, Place::Span);
        let place = self.given(key).map_or_else(here, |(_, place)| place);
        let message = format!("{}: {}", self.name_of(key), message.into());
        self.document
            .report(Problem::new(place, message).help(help));
    }

    /// Notes a problem with something that is not a key at all.
    pub(crate) fn report_outside(&self, origin: &str, message: impl Into<String>) {
        self.document
            .report(Problem::new(Place::Outside(origin.to_owned()), message));
    }

    /// A table within this one; empty when it is not in the file.
    #[must_use]
    pub fn section(&self, key: &str) -> Section<'d> {
        self.known.borrow_mut().insert(key.to_owned());
        let table = match self.in_file(key) {
            Some((_, value)) => {
                let table = value.get_ref().as_table();
                if table.is_none() {
                    let message = format!("{} has to be a table: [{0}]", self.name_of(key));
                    self.document
                        .report(Problem::new(Place::Span(value.span()), message));
                }
                table
            }
            None => None,
        };
        let here = self.in_file(key).map(|(span, _)| span);
        Section::new(self.document, self.name_of(key), table).at(here)
    }

    /// The tables of a table of tables (`[env.NAME]`), by name.
    pub fn sections(&self, key: &str) -> Vec<(String, Section<'d>)> {
        let parent = self.section(key);
        let names: Vec<String> = parent.keys().map(|(name, _)| name).collect();
        names
            .into_iter()
            .map(|name| (name.clone(), parent.section(&name)))
            .collect()
    }

    /// The tables of an array of tables (`[[pool]]`).
    pub fn list(&self, key: &str) -> Vec<Section<'d>> {
        self.known.borrow_mut().insert(key.to_owned());
        let Some((_, value)) = self.in_file(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.get_ref() else {
            let message = format!("{} has to be a list of tables: [[{0}]]", self.name_of(key));
            self.document
                .report(Problem::new(Place::Span(value.span()), message));
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(n, item)| {
                let path = format!("{}[{n}]", self.name_of(key));
                Section::new(self.document, path, item.get_ref().as_table()).at(Some(item.span()))
            })
            .collect()
    }

    /// Marks a key as read by somebody else, so that it does not count as unknown.
    pub fn leave(&self, key: &str) {
        self.known.borrow_mut().insert(key.to_owned());
    }

    /// Reports the keys that nobody asked for.
    pub fn finish(&self) {
        let known = self.known.borrow();
        for (key, span) in self.keys().filter(|(key, _)| !known.contains(key)) {
            self.document.unknown.borrow_mut().push(Unknown {
                table: self.path.clone(),
                key,
                span,
                known: known.iter().cloned().collect(),
            });
        }
    }

    fn keys(&self) -> impl Iterator<Item = (String, Range<usize>)> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        entries.map(|(key, _)| (key.get_ref().to_string(), key.span()))
    }

    fn in_file(&self, key: &str) -> Option<(Range<usize>, &'d Spanned<DeValue<'d>>)> {
        let table = self.table?;
        let (name, value) = table
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)?;
        Some((name.span(), value))
    }

    /// The value: one from outside the file wins over the file's, and of those the last one.
    fn given(&self, key: &str) -> Option<(Given<'d>, Place)> {
        let name = self.name_of(key);
        let outside = self
            .document
            .overrides
            .iter()
            .rev()
            .find(|given| given.key == name);
        if let Some(given) = outside {
            return Some((
                Given::Text(&given.text),
                Place::Outside(given.origin.clone()),
            ));
        }
        let (_, value) = self.in_file(key)?;
        Some((Given::Toml(value.get_ref()), Place::Span(value.span())))
    }

    fn origin(&self, place: &Place) -> String {
        match place {
            Place::Span(span) => {
                format!(
                    "{}:{}",
                    self.document.name,
                    self.document.line_of(span.start)
                )
            }
            Place::File => self.document.name.to_owned(),
            Place::Outside(origin) => origin.clone(),
        }
    }

    fn note(&self, effective: Effective) {
        self.document.effective.borrow_mut().push(effective);
    }
}

fn default_as_toml(default: &str) -> String {
    let is_bare = default.parse::<i64>().is_ok() || default.parse::<bool>().is_ok();
    if is_bare {
        default.to_owned()
    } else {
        Given::Text(default).as_toml()
    }
}
