//! A key that nobody asked for, and where it may have been meant to stand.

use std::collections::BTreeSet;
use std::ops::Range;

use haplane_core::nearest::nearest;

use super::{Place, Problem};

/// A key that its table does not have. What to say of it is known only when all tables were read.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    /// The table, empty for the top of the file.
    pub table: String,
    /// The key.
    pub key: String,
    /// Where it stands.
    pub span: Range<usize>,
    /// The keys that its table has.
    pub known: Vec<String>,
}

impl Unknown {
    /// The problem, with the most likely remedy. `asked` are the full names of all keys of all
    /// tables.
    pub(super) fn problem(&self, asked: &BTreeSet<String>) -> Problem {
        let name = named(&self.table, &self.key);
        Problem::new(
            Place::Span(self.span.clone()),
            format!("unknown key {name}"),
        )
        .help(self.advice(asked))
    }

    fn advice(&self, asked: &BTreeSet<String>) -> String {
        if self.key == "token" {
            return "a token is never a key of the file: put it into a file of its own, and name that \
                    with consul.token_file"
                .to_owned();
        }
        let split = |name: &'_ String| -> (String, String) {
            let (table, key) = name.rsplit_once('.').unwrap_or(("", name));
            (table.to_owned(), key.to_owned())
        };
        let elsewhere: Vec<(String, String)> = asked
            .iter()
            .map(split)
            .filter(|(table, _)| *table != self.table)
            .collect();
        let mut homes: Vec<&str> = elsewhere
            .iter()
            .filter(|(_, key)| *key == self.key)
            .map(|(table, _)| table.as_str())
            .collect();
        // The tables of an environment repeat those of the top.
        if homes.iter().any(|table| !table.starts_with("env.")) {
            homes.retain(|table| !table.starts_with("env."));
        }
        if !homes.is_empty() {
            let homes: Vec<String> = homes.into_iter().map(heading).collect();
            return format!("{} belongs to {}", self.key, homes.join(" or "));
        }
        if let Some(near) = nearest(&self.key, self.known.iter().map(String::as_str)).first() {
            return format!("did you mean {near}?");
        }
        let near = nearest(&self.key, elsewhere.iter().map(|(_, key)| key.as_str()));
        let far = near.first().and_then(|near| {
            let mut fitting = elsewhere.iter().filter(|(_, key)| key == near);
            fitting.next()
        });
        match far {
            Some((table, key)) => format!("did you mean {key}, of {}?", heading(table)),
            None => format!("known here: {}", self.known.join(", ")),
        }
    }
}

/// The full name of a key.
pub(super) fn named(table: &str, key: &str) -> String {
    if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    }
}

fn heading(table: &str) -> String {
    match table.split_once('[') {
        None if table.is_empty() => "the top of the file, before all tables".to_owned(),
        None => format!("[{table}]"),
        Some((list, _)) => format!("[[{list}]]"),
    }
}
