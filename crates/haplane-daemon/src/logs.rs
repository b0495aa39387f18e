//! Logs: text, with its priority when systemd collects us; JSON or the journal's fields by request.
//!
//! Standard output stays free for data; every log line goes to standard error or to the journal.

use std::io::{self, IsTerminal, Stderr, Write};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text; when the journal collects us (`JOURNAL_STREAM`), without a time and with the priority.
    #[default]
    Auto,
    /// One line a person reads.
    Text,
    /// One JSON object a line.
    Json,
    /// The journal's own protocol, with a field for each value. `journalctl` shows only the message, and
    /// the fields with `--output verbose`: good for programs, not for people at night.
    Journald,
}

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not of the form `info,hyper=warn`.
    #[error("{0:?} is no log filter; write a level such as info, or info,haplane_store=debug")]
    Filter(String),
    /// Logs were set up before.
    #[error("logs are already set up")]
    Twice,
}

/// Whether standard error goes to the journal: `JOURNAL_STREAM` names the device and inode of the
/// stream that systemd connected to it (systemd.exec(5)).
pub fn is_journal(journal_stream: Option<&str>) -> bool {
    let named = journal_stream.and_then(|text| text.split_once(':'));
    let stderr = rustix::fs::fstat(io::stderr());
    match (named, stderr) {
        (Some((device, inode)), Ok(stderr)) => {
            device.parse() == Ok(stderr.st_dev) && inode.parse() == Ok(stderr.st_ino)
        }
        _ => false,
    }
}

/// Says whether a filter is right.
pub fn check(filter: &str) -> Result<(), LogError> {
    targets(filter).map(drop)
}

/// A word without `=` has to be a level: a mistyped `inof` would otherwise be taken for the name of a
/// module, and silence all others.
fn targets(filter: &str) -> Result<Targets, LogError> {
    let wrong = || LogError::Filter(filter.to_owned());
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let is_sound = |part: &str| part.contains('=') || is_level(part);
    if !filter.split(',').all(|part| is_sound(part.trim())) {
        return Err(wrong());
    }
    filter.parse().map_err(|_| wrong())
}

/// Sets up the process's logs. `under_journal` says that standard error is the journal's.
pub fn init(format: Format, filter: &str, under_journal: bool) -> Result<(), LogError> {
    let targets = targets(filter)?;
    let layer = match format {
        Format::Journald => journald().unwrap_or_else(text),
        Format::Auto if under_journal => prioritised(),
        Format::Auto | Format::Text => text(),
        Format::Json => json(),
    };
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(targets));
    subscriber.try_init().map_err(|_| LogError::Twice)
}

type Boxed<S> = Box<dyn Layer<S> + Send + Sync>;

fn text<S: Subscriber + for<'s> LookupSpan<'s>>() -> Boxed<S> {
    let colour = io::stderr().is_terminal();
    tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .boxed()
}

/// Text for the journal: a line that begins with `<N>` has this priority (sd-daemon(3)); time and
/// process are its own.
fn prioritised<S: Subscriber + for<'s> LookupSpan<'s>>() -> Boxed<S> {
    tracing_subscriber::fmt::layer()
        .with_writer(Prioritised)
        .with_ansi(false)
        .with_target(false)
        .with_level(false)
        .without_time()
        .boxed()
}

/// Standard error, with the priority of each event before its line.
struct Prioritised;

impl<'w> MakeWriter<'w> for Prioritised {
    type Writer = Line<Stderr>;

    fn make_writer(&'w self) -> Self::Writer {
        Line::new(Level::INFO, io::stderr())
    }

    fn make_writer_for(&'w self, event: &Metadata<'_>) -> Self::Writer {
        Line::new(*event.level(), io::stderr())
    }
}

/// One event's line.
struct Line<W> {
    priority: Option<&'static str>,
    to: W,
}

impl<W> Line<W> {
    fn new(level: Level, to: W) -> Self {
        let priority = match level {
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        };
        Self {
            priority: Some(priority),
            to,
        }
    }
}

impl<W: Write> Write for Line<W> {
    /// In one piece, so that no other thread's line comes between.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let priority = self.priority.take().unwrap_or_default();
        self.to.write_all(&[priority.as_bytes(), text].concat())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn json<S: Subscriber + for<'s> LookupSpan<'s>>() -> Boxed<S> {
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_writer(io::stderr)
        .boxed()
}

fn journald<S: Subscriber + for<'s> LookupSpan<'s>>() -> Option<Boxed<S>> {
    tracing_journald::layer().ok().map(Layer::boxed)
}

/// An error with its causes, on one line.
pub fn story(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_told_how_bad_it_is_once_a_line() {
        let mut line = Line::new(Level::WARN, Vec::new());
        line.write_all(b"cannot register error=denied").unwrap();
        line.write_all(b"\n").unwrap();
        assert_eq!(line.to, b"<4>cannot register error=denied\n");
    }

    #[test]
    fn a_word_that_is_no_level_is_no_filter() {
        for good in [
            "info",
            "WARN",
            "off",
            "info,haplane_store=debug",
            "warn, hyper=off",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "inof",
            "info,",
            "info,hyper",
            "info,,x=y=z",
            "haplane_store=loud",
        ] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.contains("is no log filter"), "{bad}: {error}");
        }
    }
}
