//! `haplane agent`: the daemon beside an HAProxy.

use std::fmt::Write as _;

use haplane_agent::AgentError;
use haplane_daemon::Settings;
use haplane_daemon::config_file::Effective;
use haplane_daemon::logs;
use tokio_util::sync::CancellationToken;

use crate::cli::{AgentOptions, LogFormat};
use crate::config::Source;
use crate::exit::{Exit, Failure};
use crate::identity;
use crate::output::Output;

/// The watch loop, the pages and the rest; the responder has a thread of its own.
const WORKERS: usize = 2;

/// Runs the agent until a signal ends it, or looks at its configuration.
pub fn run(settings: Settings, source: &Source, options: &AgentOptions, output: &Output) -> Exit {
    if options.print_config {
        return output.text(&printed(&source.effective()));
    }
    if options.check_config {
        return output.text("the configuration is right\n");
    }
    match serve(settings, options) {
        Ok(()) => Exit::Done,
        Err(failure) => output.failure(&failure),
    }
}

fn serve(settings: Settings, options: &AgentOptions) -> Result<(), Failure> {
    let format = match options.log_format {
        LogFormat::Auto => logs::Format::Auto,
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
        LogFormat::Journald => logs::Format::Journald,
    };
    let journal = std::env::var("JOURNAL_STREAM").ok();
    logs::init(format, &options.log, logs::is_journal(journal.as_deref()))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let node = settings.node.clone().unwrap_or_else(identity::host_name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unexpected, format!("cannot start: {error}")))?;
    let agent = haplane_agent::run(
        settings,
        node,
        env!("CARGO_PKG_VERSION"),
        CancellationToken::new(),
    );
    let ended = runtime.block_on(agent);
    // All parts have ended but those that the kernel holds in a file: nobody waits for them.
    runtime.shutdown_background();
    ended.map_err(Failure::from)
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        let exit = match &error {
            AgentError::Open(_) | AgentError::Bind { .. } => Exit::Usage,
            AgentError::NoSnapshot { .. } => Exit::Unreachable,
            _ => Exit::Unexpected,
        };
        Self::new(exit, format!("{:#}", anyhow::Error::new(error)))
    }
}

/// The configuration as a TOML file that can be used, each line with where its value comes from.
pub(super) fn printed(effective: &[Effective]) -> String {
    let mut text = String::new();
    let mut section = "";
    for one in effective {
        let (path, key) = one.key.rsplit_once('.').unwrap_or(("", &one.key));
        if path != section {
            // Writing to a String cannot fail.
            let list = path.split_once('[').map(|(name, _)| format!("[[{name}]]"));
            let _ = writeln!(text, "\n{}", list.unwrap_or_else(|| format!("[{path}]")));
            section = path;
        }
        let assignment = format!("{key} = {}", one.value);
        let _ = writeln!(text, "{assignment:<48} # {}", one.origin);
    }
    text
}
