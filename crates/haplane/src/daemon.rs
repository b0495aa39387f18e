//! How both daemons start: their log, their runtime, and the configuration that they show.

use std::future::Future;

use haplane_daemon::config_file::Effective;
use haplane_daemon::logs;

use crate::cli::{AgentOptions, LogFormat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;

/// For the loops and the pages; what must not wait for them has a thread of its own.
const WORKERS: usize = 2;

/// Starts the log as the options say.
pub fn log_as(options: &AgentOptions) -> Result<(), Failure> {
    let format = match options.log_format {
        LogFormat::Auto => logs::Format::Auto,
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
        LogFormat::Journald => logs::Format::Journald,
    };
    let journal = std::env::var("JOURNAL_STREAM").ok();
    logs::init(format, &options.log, logs::is_journal(journal.as_deref()))
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Runs something to its end on a runtime of its own.
pub fn on_a_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Unexpected, format!("cannot start: {error}")))?;
    let ended = runtime.block_on(work);
    // All parts have ended except those that the kernel keeps waiting for a file; we do not wait
    // for them.
    runtime.shutdown_background();
    Ok(ended)
}

/// The configuration for people, as a file that can be used, and for programs.
pub fn effective_report(effective: &[Effective]) -> Report {
    let file = printed(effective);
    // What is printed is TOML; were it none, people see it all the same.
    let document: serde_json::Value = toml::from_str(&file).unwrap_or_default();
    Report::new(document).line(file.trim_end())
}

/// What a configuration without errors is told.
pub fn right_report() -> Report {
    Report::new(serde_json::json!({"valid": true})).line("the configuration is right")
}

/// The configuration as a TOML file that can be used, each line with where its value comes from.
fn printed(effective: &[Effective]) -> String {
    // A key after a heading belongs to that table, so the keys without a table come first, and each
    // table is written once, in the order in which they were read.
    let mut tables: Vec<(&str, String)> = vec![("", String::new())];
    for one in effective {
        let (table, key) = one.key.rsplit_once('.').unwrap_or(("", &one.key));
        let assignment = format!("{key} = {}", one.value);
        let line = format!("{assignment:<48} # {}\n", one.origin);
        match tables.iter_mut().find(|(name, _)| *name == table) {
            Some((_, lines)) => lines.push_str(&line),
            None => tables.push((table, format!("\n{}\n{line}", heading(table)))),
        }
    }
    tables.into_iter().map(|(_, lines)| lines).collect()
}

/// `[agent]`, or `[[pool]]` for one of a list.
fn heading(table: &str) -> String {
    match table.split_once('[') {
        Some((list, _)) => format!("[[{list}]]"),
        None => format!("[{table}]"),
    }
}

#[cfg(test)]
mod tests {
    use haplane_daemon::{Document, Settings};

    use super::*;

    fn effective(text: &str) -> Vec<Effective> {
        let document = Document::parse("haplane.toml", text, Vec::new());
        assert!(Settings::read(&document, |_| None).is_some());
        document.finish().unwrap();
        document.effective()
    }

    #[test]
    fn what_is_printed_is_a_configuration_that_says_the_same() {
        let text = r#"
store = "consul:http://127.0.0.1:8500"
node = "lb-01"
[consul]
token_file = "/etc/haplane/\"token\""
datacenter = "dc1"
[haproxy]
socket = ["/run/a.sock", "/run/b.sock"]
[env.gprd]
confirm = true
[env.gprd.consul]
ca_file = "/etc/ca.pem"
"#;
        let values = |effective: Vec<Effective>| {
            let pairs = effective.into_iter().map(|one| (one.key, one.value));
            pairs.collect::<std::collections::BTreeMap<_, _>>()
        };
        let first = effective(text);
        let again = effective(&printed(&first));
        assert_eq!(values(first), values(again));
    }
}
