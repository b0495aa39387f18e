//! Who runs a command, where, and what was typed: what a log entry says of it.

use std::env;
use std::ffi::OsString;

/// The most characters of a command line that a log entry keeps.
const MAX_COMMAND: usize = 2_000;

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user: the one behind sudo, else the one logged in, else the number.
    pub by: String,
    /// The machine.
    pub host: String,
    /// The command line.
    pub command: String,
    /// Its words, the program's name first.
    pub words: Vec<String>,
}

impl Identity {
    /// Who runs this process.
    pub fn of_this_process(words: &[OsString]) -> Self {
        let named = |variable: &str| env::var(variable).ok().filter(|name| !name.is_empty());
        let by = named("SUDO_USER").or_else(|| named("USER"));
        let words: Vec<String> = words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Self {
            by: by.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw())),
            host: host_name(),
            command: as_typed(&words),
            words,
        }
    }

    /// The same command with all of its options, and `new` in the place of its word `old`.
    pub fn again(&self, old: &str, new: &str) -> String {
        let mut words = self.words.clone();
        if let Some(word) = words.iter_mut().rev().find(|word| *word == old) {
            new.clone_into(word);
        }
        as_typed(&words)
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The words as a shell would take them again; of a very long command line the beginning.
fn as_typed(words: &[String]) -> String {
    let mut words = words.iter().map(String::as_str);
    let program = words.next().unwrap_or_default();
    let name = program.rsplit_once('/').map_or(program, |(_, name)| name);
    let typed = words.fold(name.to_owned(), |typed, word| {
        format!("{typed} {}", quoted(word))
    });
    match typed.char_indices().nth(MAX_COMMAND) {
        Some((end, _)) => format!("{}…", typed.get(..end).unwrap_or_default()),
        None => typed,
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=%@,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_kept_as_typed() {
        let words = [
            "/usr/bin/haplane",
            "drain",
            "web/*",
            "--reason",
            "it's late",
            "",
        ]
        .map(String::from);
        assert_eq!(
            as_typed(&words),
            r"haplane drain 'web/*' --reason 'it'\''s late' ''"
        );
        let long = ["haplane".to_owned(), "é".repeat(5_000)];
        assert_eq!(as_typed(&long).chars().count(), MAX_COMMAND + 1);
    }

    #[test]
    fn the_rest_of_a_command_keeps_its_options() {
        let words = "haplane --env gprd ramp web/* 10%,50% --every 2m --yes"
            .split(' ')
            .map(OsString::from);
        let identity = Identity::of_this_process(&words.collect::<Vec<_>>());
        assert_eq!(
            identity.again("10%,50%", "50%"),
            "haplane --env gprd ramp 'web/*' 50% --every 2m --yes"
        );
    }
}
