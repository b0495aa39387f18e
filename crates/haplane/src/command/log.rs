//! `haplane log`: who changed what, when and why.

use haplane_core::key::Key;
use haplane_core::log::{Changed, LogEntry};
use haplane_core::target::Target;
use haplane_store::Store;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::cli::LogOptions;
use crate::command::targets;
use crate::failure::Failure;
use crate::report::{FAINT, Report, STRONG, printable};
use crate::session::Session;
use crate::times;

/// How many keys of one entry are listed, unless keys were asked for by name.
const KEYS_NAMED: usize = 10;

/// Shows the newest entries.
pub async fn run(session: &Session, options: &LogOptions) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let asked = Asked::understand(options, now)?;
    // An empty log and one that may not be read look the same; reading the marker tells them apart.
    session.read().await?;
    let entries = newest(&session.store, &asked, options.limit).await?;
    let report = Report::new(json!({"entries": entries}));
    if entries.is_empty() {
        return Ok(report.line(asked.nothing()));
    }
    Ok(report.line(story(&entries, &asked, now)))
}

/// Which entries are wanted.
#[derive(Debug)]
struct Asked {
    targets: Vec<Target>,
    since: Option<Timestamp>,
}

impl Asked {
    fn understand(options: &LogOptions, now: Timestamp) -> Result<Self, Failure> {
        let since = options.since.map(|ago| {
            let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
            now.checked_sub(ago).unwrap_or(Timestamp::MIN)
        });
        Ok(Self {
            targets: targets(&options.targets, &[])?,
            since,
        })
    }

    fn is_everything(&self) -> bool {
        self.targets.is_empty() && self.since.is_none()
    }

    fn names(&self, key: &Key) -> bool {
        let fits = |target: &Target| match target {
            Target::Key(one) => one == key,
            Target::Glob(glob) => glob.matches(key.as_str()),
            Target::Zone(_) => false,
        };
        self.targets.is_empty() || self.targets.iter().any(fits)
    }

    fn is_too_old(&self, entry: &LogEntry) -> bool {
        self.since.is_some_and(|since| entry.at < since)
    }

    fn wants(&self, entry: &LogEntry) -> bool {
        let is_named = || entry.changes.iter().any(|one| self.names(&one.key));
        !self.is_too_old(entry) && (self.targets.is_empty() || is_named())
    }

    fn nothing(&self) -> &'static str {
        if self.is_everything() {
            "nothing was written by a command yet"
        } else {
            "no entry of the log is about that; what was written by hand leaves none"
        }
    }
}

/// The newest entries that are wanted, at most `limit`. The log is read in ever larger pieces, so
/// that asking about an hour does not read all of it.
async fn newest(store: &impl Store, asked: &Asked, limit: usize) -> Result<Vec<LogEntry>, Failure> {
    let mut read = limit;
    loop {
        let entries = store.log(read).await?;
        let was_all = entries.len() < read;
        let is_past = entries.last().is_some_and(|entry| asked.is_too_old(entry));
        let wanted = entries.into_iter().filter(|entry| asked.wants(entry));
        let wanted: Vec<LogEntry> = wanted.take(limit).collect();
        if was_all || is_past || wanted.len() == limit {
            return Ok(wanted);
        }
        read = read.saturating_mul(5);
    }
}

/// All entries, a blank line between two.
fn story(entries: &[LogEntry], asked: &Asked, now: Timestamp) -> String {
    let told: Vec<String> = entries
        .iter()
        .map(|entry| lines(entry, asked, now).join("\n"))
        .collect();
    told.join("\n\n")
}

/// One entry: when and who, why, how, and then a line for each key. Nothing is cut: what a key was
/// and became is what the log is read for.
fn lines(entry: &LogEntry, asked: &Asked, now: Timestamp) -> Vec<String> {
    let (ago, at) = (times::between(entry.at, now), entry.at);
    let who = printable(&format!("{}@{}", entry.by, entry.host));
    let mut lines = vec![format!("{STRONG}{ago} ago{STRONG:#}  {at:.0}  {who}")];
    let ticket = entry.ticket.as_ref().map(|ticket| format!("({ticket})"));
    let why: Vec<String> = entry.reason.iter().cloned().chain(ticket).collect();
    if !why.is_empty() {
        lines.push(format!("  {}", printable(&why.join(" "))));
    }
    let command = printable(&entry.command);
    lines.push(format!("  {FAINT}{command}{FAINT:#}"));

    let named: Vec<&Changed> = entry
        .changes
        .iter()
        .filter(|one| asked.names(&one.key))
        .collect();
    let most = if asked.targets.is_empty() {
        KEYS_NAMED
    } else {
        named.len()
    };
    let shown = named.get(..most).unwrap_or(&named);
    let width = |one: &&Changed| one.key.as_str().chars().count();
    let widest = shown.iter().map(width).max().unwrap_or(0);
    let text = |text: &Option<String>| text.as_deref().map_or("absent".to_owned(), printable);
    lines.extend(shown.iter().map(|one| {
        let (before, after) = (text(&one.before), text(&one.after));
        format!("  {:widest$}  {before} → {after}", one.key.as_str())
    }));
    if named.len() > shown.len() {
        let more = named.len() - shown.len();
        lines.push(format!("  and {more} keys more: haplane log '**'"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: &str, keys: &[&str]) -> LogEntry {
        let at: Timestamp = at.parse().unwrap();
        let changed = |key: &&str| Changed {
            key: key.parse().unwrap(),
            before: None,
            after: Some("drain until=2026-01-02T00:00:00Z".to_owned()),
        };
        LogEntry {
            id: haplane_core::log::LogId::new(at, 1),
            at,
            by: "alice".to_owned(),
            host: "lb-1".to_owned(),
            command: "haplane drain canary web/a\x1b[2J".to_owned(),
            reason: Some("bad deploy".to_owned()),
            ticket: Some("OPS-7".to_owned()),
            changes: keys.iter().map(changed).collect(),
        }
    }

    fn asked(targets: &[&str]) -> Asked {
        Asked {
            targets: targets.iter().map(|one| one.parse().unwrap()).collect(),
            since: None,
        }
    }

    fn plain(entries: &[LogEntry], asked: &Asked) -> String {
        let now = "2026-01-01T02:03:01Z".parse().unwrap();
        anstream::adapter::strip_str(&story(entries, asked, now)).to_string()
    }

    #[test]
    fn an_entry_says_whole_what_its_keys_became() {
        let entries = [entry("2026-01-01T00:00:00.123Z", &["canary", "web/a"])];
        assert_eq!(
            plain(&entries, &asked(&[])),
            "2h 3m ago  2026-01-01T00:00:00Z  alice@lb-1\n\
             \x20 bad deploy (OPS-7)\n\
             \x20 haplane drain canary web/a\u{fffd}[2J\n\
             \x20 canary  absent → drain until=2026-01-02T00:00:00Z\n\
             \x20 web/a   absent → drain until=2026-01-02T00:00:00Z"
        );
    }

    #[test]
    fn a_long_entry_is_short_until_somebody_asks() {
        let keys: Vec<String> = (0..12).map(|n| format!("web/{n}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let entries = [entry("2026-01-01T00:00:00Z", &keys)];
        let short = plain(&entries, &asked(&[]));
        assert!(
            short.ends_with("and 2 keys more: haplane log '**'"),
            "{short}"
        );
        let whole = plain(&entries, &asked(&["**"]));
        assert_eq!(whole.matches(" → ").count(), 12, "{whole}");
        let one = plain(&entries, &asked(&["web/11"]));
        assert_eq!(one.matches(" → ").count(), 1, "{one}");
    }
}
