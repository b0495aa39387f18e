//! `haplane sync`: keeps slots in line, once or all the time, or says what it would do.

mod confirm;
mod told;

use std::future::Future;

use haplane_daemon::{Settings, logs};
use haplane_sync::once::{self, Deed};
use haplane_sync::{SyncError, SyncSettings};
use tokio_util::sync::CancellationToken;

use crate::cli::{AgentOptions, LogFormat, SyncCommand, SyncOptions};
use crate::command::agent::printed;
use crate::config::Source;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Sources, pages and the loops of the HAProxy processes.
const WORKERS: usize = 2;

/// Runs the synchroniser, or does what else was asked of it.
pub fn run(settings: &Settings, source: &Source, options: &SyncOptions, output: &Output) -> Exit {
    let done = sync_settings(settings, source).and_then(|sync| match &options.command {
        Some(SyncCommand::Confirm(confirm)) => {
            let report = on_a_runtime(confirm::run(&sync, confirm, output))??;
            Ok(output.report(&report))
        }
        None if options.daemon.print_config => {
            Ok(output.text(&printed(&effective(settings, source))))
        }
        None if options.daemon.check_config => Ok(output.text("the configuration is right\n")),
        None if options.plan => {
            let reports = on_a_runtime(once::run(&sync, Deed::Plan, &[]))?;
            Ok(output.report(&told::report(&reports, Deed::Plan)))
        }
        None if options.once => {
            let reports = on_a_runtime(once::run(&sync, Deed::Apply, &options.accept))?;
            Ok(output.report(&told::report(&reports, Deed::Apply)))
        }
        None => serve(sync, &options.daemon).map(|()| Exit::Done),
    });
    done.unwrap_or_else(|failure| output.failure(&failure))
}

/// `[sync]` and the pools, or everything that is wrong with them.
pub(crate) fn sync_settings(settings: &Settings, source: &Source) -> Result<SyncSettings, Failure> {
    let document = source.document();
    let sync = SyncSettings::read(&document, settings);
    document.finish()?;
    sync.ok_or_else(|| Failure::usage("[sync] could not be read"))
}

fn effective(settings: &Settings, source: &Source) -> Vec<haplane_daemon::config_file::Effective> {
    let document = source.document();
    SyncSettings::read(&document, settings);
    document.effective()
}

/// Runs something to its end on a runtime of its own.
pub(crate) fn on_a_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Unexpected, format!("cannot start: {error}")))?;
    let ended = runtime.block_on(work);
    // A host list on a server that is gone holds its reader in the kernel: nobody waits for it.
    runtime.shutdown_background();
    Ok(ended)
}

fn serve(sync: SyncSettings, options: &AgentOptions) -> Result<(), Failure> {
    let format = match options.log_format {
        LogFormat::Auto => logs::Format::Auto,
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
        LogFormat::Journald => logs::Format::Journald,
    };
    let journal = std::env::var("JOURNAL_STREAM").ok();
    logs::init(format, &options.log, logs::is_journal(journal.as_deref()))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let run = haplane_sync::run::run(sync, env!("CARGO_PKG_VERSION"), CancellationToken::new());
    on_a_runtime(run)?.map_err(Failure::from)
}

impl From<SyncError> for Failure {
    fn from(error: SyncError) -> Self {
        let exit = match &error {
            SyncError::Bind { .. } => Exit::Usage,
            _ => Exit::Unexpected,
        };
        Self::new(exit, format!("{:#}", anyhow::Error::new(error)))
    }
}
