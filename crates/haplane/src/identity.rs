//! Who runs a command, where, and what was typed: what a log entry says of it.

use std::env;

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user: the one behind sudo, else the one logged in, else the number.
    pub by: String,
    /// The machine.
    pub host: String,
    /// The command line.
    pub command: String,
}

impl Identity {
    /// Who runs this process.
    pub fn of_this_process(words: &[String]) -> Self {
        let named = |variable: &str| env::var(variable).ok().filter(|name| !name.is_empty());
        let by = named("SUDO_USER").or_else(|| named("USER"));
        Self {
            by: by.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw())),
            host: host_name(),
            command: as_typed(words),
        }
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The words as a shell would take them again.
fn as_typed(words: &[String]) -> String {
    let program = words.first().map_or("haplane", |path| {
        path.rsplit_once('/')
            .map_or(path.as_str(), |(_, name)| name)
    });
    let rest = words.iter().skip(1).map(|word| quoted(word));
    std::iter::once(program.to_owned())
        .chain(rest)
        .collect::<Vec<_>>()
        .join(" ")
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
        let words: Vec<String> = [
            "/usr/bin/haplane",
            "drain",
            "web/*",
            "--reason",
            "it's late",
            "",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(
            as_typed(&words),
            r"haplane drain 'web/*' --reason 'it'\''s late' ''"
        );
    }
}
