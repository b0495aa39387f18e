//! The command line of haplane: one module for each command, and what they share.
//!
//! What belongs here: words typed and words printed, exit statuses, and the thin code that carries
//! a decision of `haplane-core` to a store or an agent. What does not: a decision.

#![expect(
    unreachable_pub,
    reason = "`pub` below means: for the other parts of the program"
)]

mod atomic_file;
pub mod cli;
mod command;
mod config;
mod daemon;
pub mod exit;
mod failure;
mod fleet;
mod haproxy_files;
mod identity;
mod interrupt;
mod knowledge;
#[cfg(test)]
mod memory;
mod names;
mod output;
mod report;
mod session;
mod state;
mod times;
mod wait;
mod write;
mod writer;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};
use clap_complete::CompleteEnv;
use haplane_daemon::Settings;

use cli::{Cli, Command};
use config::Source;
use exit::Exit;
use failure::Failure;
use identity::Identity;
use interrupt::{end_by_signal, unless_interrupted};
use output::Output;
use report::Report;
use session::Session;

/// Runs the command of these words (the program's name first) and gives its exit status.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let completed = CompleteEnv::with_factory(cli::command)
        .var(command::completions::VARIABLE)
        .try_complete(
            words.iter().cloned(),
            std::env::current_dir().ok().as_deref(),
        );
    match completed {
        Ok(true) => return Exit::Done.into(),
        Ok(false) => {}
        Err(error) => return not_parsed(&error, &Output::new(false)).into(),
    }
    let wants_json = words.iter().any(|word| word == "--json");
    let identity = Identity::of_this_process(&words);
    let typed: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into())
        .collect();
    let parsed = cli::command()
        .try_get_matches_from(words)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let parsed = parsed.map_err(|error| cli::tips::improve(error, &cli::command(), &typed));
    match parsed {
        Ok((cli, matches)) => {
            let exit = carry_out(&cli, &matches, identity);
            end_by_signal(exit);
            exit.into()
        }
        Err(error) => not_parsed(&error, &Output::new(wants_json)).into(),
    }
}

/// Each command reads no more than it needs: some no configuration, some no store.
fn carry_out(cli: &Cli, matches: &ArgMatches, identity: Identity) -> Exit {
    let output = Output::new(cli.common.json);
    if let Some(exit) = without_settings(cli, &output) {
        return exit;
    }
    let environment = cli.common.env.as_deref();
    let source = || Source::read(cli.common.config.clone(), environment, matches);
    let read = source().and_then(|source| Ok((source.settings()?, source)));
    let (settings, source) = match read {
        Ok(read) => read,
        Err(failure) => {
            let Command::Seed(options) = &cli.command else {
                return output.failure(&failure);
            };
            // What is wrong with our configuration says nothing about HAProxy's state.
            let source = source().unwrap_or_else(|_| Source::without_file(environment, matches));
            let settings = source.readable();
            let known = command::seed::Known::Broken(settings.as_ref(), failure);
            return command::seed::run(known, &cli.common, options, &output);
        }
    };
    if let Some(exit) = without_session(cli, &settings, &source, &output) {
        return exit;
    }
    match Session::open(settings, &cli.common, output, identity) {
        Ok(session) => in_session(&session, &cli.command),
        Err((output, failure)) => output.failure(&failure),
    }
}

/// The daemons and the commands that ask them: they open what they need by themselves.
fn without_session(
    cli: &Cli,
    settings: &Settings,
    source: &Source,
    output: &Output,
) -> Option<Exit> {
    Some(match &cli.command {
        Command::Agent(options) => command::agent::run(settings.clone(), source, options, output),
        Command::Sync(options) => command::sync::run(settings, source, options, output),
        Command::Slots(options) => command::slots::run(settings, source, options, output),
        Command::Seed(options) => {
            let known = command::seed::Known::Whole(settings);
            command::seed::run(known, &cli.common, options, output)
        }
        _ => return None,
    })
}

fn in_session(session: &Session, command: &Command) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(unless_interrupted(
            &session.standing,
            dispatch(session, command),
        )),
        Err(error) => Err(Failure::new(
            Exit::Unexpected,
            format!("cannot start: {error}"),
        )),
    };
    match done {
        Ok(report) => session.output.report(&report),
        Err(failure) => session.output.failure(&as_a_write(failure, command)),
    }
}

/// A write that failed before it came to anything has its document all the same: nothing was changed.
fn as_a_write(mut failure: Failure, command: &Command) -> Failure {
    if failure.exit != Exit::Usage
        && let Some(options) = command.write_options()
    {
        let document = || writer::nothing_written(options.dry_run);
        failure.document.get_or_insert_with(document);
    }
    failure
}

async fn dispatch(session: &Session, command: &Command) -> Result<Report, Failure> {
    match command {
        Command::Agent(_)
        | Command::Audit(_)
        | Command::Sync(_)
        | Command::Slots(_)
        | Command::Enroll(_)
        | Command::Seed(_)
        | Command::Completions(_)
        | Command::Man(_) => Err(Failure::new(
            Exit::Unexpected,
            "this command needs no store",
        )),
        Command::Drain(options) => command::drain::run(session, options).await,
        Command::Ready(options) => command::ready::run(session, options).await,
        Command::Ramp(options) => command::ramp::run(session, options).await,
        Command::Canary(options) => command::canary::run(session, options).await,
        Command::Status(options) => command::status::run(session, options).await,
        Command::Why(options) => command::why::run(session, options).await,
        Command::Heartbeat(options) => command::heartbeat::run(session, options).await,
        Command::Ui(options) => command::ui::run(session, options).await,
        Command::Wait(options) => command::wait::run(session, options).await,
        Command::Log(options) => command::log::run(session, options).await,
        Command::Forget(options) => command::forget::run(session, options).await,
        Command::Init(options) => command::init::run(session, options).await,
        Command::Show(options) => command::show::run(session, options).await,
        Command::Set(options) => command::set::run(session, options).await,
        Command::Clear(options) => command::clear::run(session, options).await,
    }
}

/// Commands for packagers and shells: no configuration is read for them.
fn without_settings(cli: &Cli, output: &Output) -> Option<Exit> {
    let done = match &cli.command {
        Command::Audit(options) => {
            return Some(command::audit::run(options, output, cli.common.json));
        }
        Command::Enroll(options) => return Some(command::enroll::run(options, output)),
        Command::Completions(options) => {
            let shell = &options.shell;
            let told = |script: String| {
                let document = serde_json::json!({"shell": shell, "script": script});
                Report::new(document).line(script.trim_end())
            };
            command::completions::script(shell).map(|script| output.report(&told(script)))
        }
        Command::Man(options) => {
            command::man::run(&options.folder).map(|report| output.report(&report))
        }
        _ => return None,
    };
    Some(done.unwrap_or_else(|failure| output.failure(&failure)))
}

/// Help and version are answers; everything else is wrong usage.
fn not_parsed(error: &clap::Error, output: &Output) -> Exit {
    let text = error.render();
    if error.use_stderr() {
        let message = text.to_string();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        return output.failure(&Failure {
            styled: Some(text.ansi().to_string()),
            ..Failure::usage(message.trim_end())
        });
    }
    output.text(&text.ansi().to_string())
}
