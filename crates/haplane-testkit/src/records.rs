//! HAProxy's tables, each row a map by column name.
//!
//! Deliberately simple, and independent of haplane's own readers.

use std::collections::BTreeMap;

/// One row of a table that HAProxy printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(BTreeMap<String, String>);

impl Record {
    /// The text in a column. Panics if HAProxy printed no such column.
    pub fn get(&self, column: &str) -> &str {
        self.find(column)
            .unwrap_or_else(|| panic!("no column {column} in {:?}", self.0.keys()))
    }

    /// The text in a column, if the table has it.
    pub fn find(&self, column: &str) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    /// The integer in a column. Panics if it is none.
    pub fn number(&self, column: &str) -> i64 {
        let text = self.get(column);
        text.parse()
            .unwrap_or_else(|_| panic!("column {column} is {text:?}, not a number"))
    }

    fn new<'a>(
        columns: impl Iterator<Item = &'a str>,
        fields: impl Iterator<Item = &'a str>,
    ) -> Self {
        Self(
            columns
                .zip(fields)
                .map(|(column, field)| (column.to_owned(), field.to_owned()))
                .collect(),
        )
    }
}

/// Reads `show servers state`: a version line, a header after `# `, columns by blanks.
pub fn servers_state(text: &str) -> Vec<Record> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    assert_eq!(lines.next(), Some("1"), "not a servers state: {text:?}");
    let header = lines
        .next()
        .and_then(|line| line.strip_prefix("# "))
        .expect("the header of a servers state");
    lines
        .map(|line| Record::new(header.split(' '), line.split(' ')))
        .collect()
}

/// Reads `show stat`: a header after `# `, columns by commas, some fields quoted.
pub fn stat(text: &str) -> Vec<Record> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let header = lines
        .next()
        .and_then(|line| line.strip_prefix("# "))
        .expect("the header of the statistics");
    let columns: Vec<_> = header.split(',').collect();
    lines
        .map(|line| {
            let fields = quoted_fields(line);
            Record::new(columns.iter().copied(), fields.iter().map(String::as_str))
        })
        .collect()
}

/// Reads `show info`: `Name: value` lines.
pub fn info(text: &str) -> Record {
    Record(
        text.lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

fn quoted_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}
