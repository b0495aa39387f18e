//! `haplane sync`: keeps slots in line, once or all the time, or says what it would do.

mod confirm;
pub(super) mod running;
mod told;

use haplane_daemon::Settings;
use haplane_sync::once::{self, Deed};
use haplane_sync::{SyncError, SyncSettings};
use tokio_util::sync::CancellationToken;

use crate::cli::{AgentOptions, SyncCommand, SyncOptions};
use crate::config::Source;
use crate::daemon::{self, effective_report, on_a_runtime, right_report};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Runs the synchroniser, or does what else was asked of it.
pub fn run(settings: &Settings, source: &Source, options: &SyncOptions, output: &Output) -> Exit {
    let done = sync_settings(settings, source).and_then(|sync| match &options.command {
        Some(SyncCommand::Confirm(confirm)) => {
            let report = on_a_runtime(confirm::run(&sync, confirm, output))??;
            Ok(output.report(&report))
        }
        None if options.daemon.print_config => {
            Ok(output.report(&effective_report(&effective(settings, source))))
        }
        None if options.daemon.check_config => Ok(output.report(&right_report())),
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

fn serve(sync: SyncSettings, options: &AgentOptions) -> Result<(), Failure> {
    daemon::log_as(options)?;
    let run = haplane_sync::run(sync, env!("CARGO_PKG_VERSION"), CancellationToken::new());
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
