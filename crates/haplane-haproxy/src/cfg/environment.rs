//! The variables that a configuration may name. They are handed in as a value: this crate does not read the
//! environment.

use std::collections::BTreeMap;

/// Environment variables, as HAProxy has them at one line of its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables that HAProxy is started with.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        Self {
            variables: pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    /// A variable's value, if it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// `setenv`.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// `presetenv`: only when it is not set yet.
    pub(crate) fn preset(&mut self, name: &str, value: &str) {
        self.variables
            .entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    }

    /// `unsetenv`.
    pub fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// `resetenv`: forgets all but the named ones.
    pub(crate) fn keep_only(&mut self, names: &[&str]) {
        self.variables
            .retain(|name, _| names.contains(&name.as_str()));
    }
}

/// The variables that HAProxy makes up for each line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pseudo<'a> {
    /// `.LINE`.
    pub(super) line: u32,
    /// `.FILE`.
    pub(super) file: &'a str,
    /// `.SECTION`: the name of the section begun last, or its keyword when it has none.
    pub(super) section: Option<&'a str>,
}

impl Pseudo<'_> {
    /// The value of `.LINE`, `.FILE` or `.SECTION` (which may be none yet); none for any other name.
    #[expect(
        clippy::option_option,
        reason = "unknown and known-but-empty are two answers"
    )]
    pub(super) fn get(&self, name: &str) -> Option<Option<String>> {
        match name {
            ".LINE" => Some(Some(self.line.to_string())),
            ".FILE" => Some(Some(self.file.to_owned())),
            ".SECTION" => Some(self.section.map(str::to_owned)),
            _ => None,
        }
    }
}
