//! Everything that a command prints: the only place that writes to stdout and stderr.
//!
//! Data goes to stdout, as a table for people or, with `--json`, as one document even when the
//! command fails. Notes and progress go to stderr. Colours only on a terminal, and never with
//! `NO_COLOR`. A reader that goes away (`haplane show | head -1`) ends the command quietly.

use std::cell::Cell as Shared;
use std::io::{self, IsTerminal, Write};

use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::{BAD, NOTABLE, Part, Report};

/// Where a command prints.
#[derive(Debug)]
pub struct Output {
    json: bool,
    quiet_progress: bool,
    /// Whether an unfinished progress line stands on the terminal.
    unfinished: Shared<bool>,
}

impl Output {
    /// Output for one run.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            quiet_progress: !is_overwritable(),
            unfinished: Shared::new(false),
        }
    }

    /// Whether a person can be asked something.
    pub fn can_ask(&self) -> bool {
        !self.json && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks for a yes.
    fn confirm(question: &str) -> bool {
        Self::stderr(&format!("{question} [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// Whether somebody agrees. Where nobody can be asked, nobody does.
    pub fn is_agreed(&self, question: &str) -> bool {
        self.can_ask() && Self::confirm(question)
    }

    /// Shows a person what a question is about: beside the data, not among it.
    pub fn preview(&self, report: &Report) {
        self.finish_progress();
        Self::stderr(&Self::render(&report.parts));
    }

    /// Says something beside the data.
    pub fn note(&self, text: &str) {
        self.finish_progress();
        Self::stderr(&format!("{}\n", text.trim_end()));
    }

    /// Says that something is not as it should be; the command goes on.
    pub fn warn(&self, text: &str) {
        self.note(&format!("{NOTABLE}warning:{NOTABLE:#} {text}"));
    }

    /// Shows how far a wait is: one line that is overwritten, on a terminal only.
    pub fn progress(&self, text: &str) {
        if self.quiet_progress {
            return;
        }
        let width = terminal_width(&io::stderr()).unwrap_or(80);
        let shown: String = text.chars().take(width.saturating_sub(1)).collect();
        // Not a colour, so `NO_COLOR` does not apply. If this fails there is nobody to report it to.
        let _ = write!(io::stderr(), "{START_OF_LINE}{shown}");
        self.unfinished.set(true);
    }

    fn finish_progress(&self) {
        if self.unfinished.replace(false) {
            let _ = write!(io::stderr(), "{START_OF_LINE}");
        }
    }

    /// Prints what a command has to say and gives its exit status.
    pub fn report(&self, report: &Report) -> Exit {
        self.finish_progress();
        let text = if self.json {
            pretty(&report.document)
        } else {
            Self::render(&report.parts)
        };
        Self::stdout(&text, report.exit)
    }

    /// Prints a part of what a command has to say to people, before the rest is known. A document is printed
    /// whole, at the end.
    pub fn part(&self, report: &Report) {
        self.finish_progress();
        if !self.json {
            Self::stdout(&Self::render(&report.parts), Exit::Done);
        }
    }

    /// Clears the terminal for a report that is shown again and again; in a pipe the next one follows below.
    pub fn start_over(&self) {
        if io::stdout().is_terminal() && !self.json {
            Self::stdout("\x1b[H\x1b[2J", Exit::Done);
        }
    }

    /// Prints why a command failed and gives its exit status.
    pub fn failure(&self, failure: &Failure) -> Exit {
        self.finish_progress();
        match &failure.styled {
            Some(styled) => Self::stderr(&format!("{}\n", styled.trim_end())),
            None => Self::stderr(&format!(
                "{BAD}error:{BAD:#} {}\n",
                failure.message.trim_end()
            )),
        }
        if !self.json {
            return Self::stdout(&Self::render(&failure.parts), failure.exit);
        }
        let mut document = match &failure.document {
            Some(Value::Object(object)) => object.clone(),
            _ => Map::new(),
        };
        let error = json!({"message": failure.message, "exit": failure.exit.status()});
        document.insert("error".to_owned(), error);
        Self::stdout(&pretty(&Value::Object(document)), failure.exit)
    }

    /// Prints a text as it is: help, a completion script, a configuration.
    pub fn text(&self, text: &str) -> Exit {
        self.finish_progress();
        Self::stdout(text, Exit::Done)
    }

    fn render(parts: &[Part]) -> String {
        let width = terminal_width(&io::stdout());
        let render = |part: &Part| match part {
            Part::Line(line) => format!("{line}\n"),
            Part::Table(table) => table.render(width),
        };
        parts.iter().map(render).collect()
    }

    fn stdout(text: &str, exit: Exit) -> Exit {
        let mut stdout = anstream::AutoStream::auto(io::stdout());
        match stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) => exit,
            // Whoever read has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
            Err(error) => {
                Self::stderr(&format!(
                    "error: cannot write to standard output: {error}\n"
                ));
                Exit::Unexpected
            }
        }
    }

    fn stderr(text: &str) {
        let mut stderr = anstream::AutoStream::auto(io::stderr());
        // Nobody is left to be told.
        let _ = stderr.write_all(text.as_bytes());
    }
}

fn pretty(document: &Value) -> String {
    format!("{document:#}\n")
}

/// Back to the start of the line, and nothing on it.
const START_OF_LINE: &str = "\r\x1b[K";

/// Whether a line of stderr can be written again and again.
fn is_overwritable() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The terminal's width in columns; `None` when there is no terminal.
fn terminal_width(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
