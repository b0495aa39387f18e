//! `haplane agent`: the daemon beside an HAProxy.

use haplane_agent::AgentError;
use haplane_daemon::Settings;
use haplane_daemon::logs;
use tokio_util::sync::CancellationToken;

use crate::cli::AgentOptions;
use crate::config::Source;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::identity;
use crate::output::Output;

/// Runs the agent until a signal ends it, or looks at its configuration.
pub fn run(settings: Settings, source: &Source, options: &AgentOptions, output: &Output) -> Exit {
    if let Err(error) = logs::check(&options.log) {
        return output.failure(&Failure::usage(format!("--log: {error}")));
    }
    if options.print_config {
        return output.report(&daemon::effective_report(&source.effective()));
    }
    if options.check_config {
        return output.report(&daemon::right_report());
    }
    match serve(settings, options) {
        Ok(()) => Exit::Done,
        Err(failure) => output.failure(&failure),
    }
}

fn serve(settings: Settings, options: &AgentOptions) -> Result<(), Failure> {
    daemon::log_as(options)?;
    let node = settings.node.clone().unwrap_or_else(identity::host_name);
    let agent = haplane_agent::run(
        settings,
        node,
        env!("CARGO_PKG_VERSION"),
        CancellationToken::new(),
    );
    daemon::on_a_runtime(agent)?.map_err(Failure::from)
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
