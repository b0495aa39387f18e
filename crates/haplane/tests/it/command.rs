//! The binary under test, in an environment of its own.

use std::process::{Command, Output};

use serde_json::Value;

/// What one run gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The document on stdout. Panics, showing the run, if it is not exactly one.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }

    /// Itself, if it ended with this status; else a panic that shows it.
    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        assert_eq!(self.exit, status, "{self:#?}");
        self
    }
}

/// Runs `haplane` against one store.
#[derive(Clone, Debug)]
pub(crate) struct Haplane {
    store: String,
    variables: Vec<(String, String)>,
}

impl Haplane {
    pub(crate) fn on(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            variables: Vec::new(),
        }
    }

    /// With whatever store the configuration names.
    pub(crate) fn without_store() -> Self {
        Self::on("")
    }

    pub(crate) fn with(&self, variable: &str, value: &str) -> Self {
        let mut one = self.clone();
        one.variables.push((variable.to_owned(), value.to_owned()));
        one
    }

    /// The command, to be run in another way. It knows of no agent, not even of one that really runs on this machine.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haplane"));
        command
            .args(words)
            .env_clear()
            .env("USER", "alice")
            .env("HAPLANE_HTTP_LISTEN", "127.0.0.1:1")
            .env("HAPLANE_STORE", &self.store)
            .envs(self.variables.iter().cloned());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Run {
        let output = self.command(words).output().expect("to run haplane");
        run_of(output)
    }
}

pub(crate) fn run_of(output: Output) -> Run {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Run {
        exit: output.status.code().expect("no signal"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
