//! `haplane seed`: the server-state file for the moment of a reload.
//!
//! Whatever happens, no old file is left standing: its ports may be wrong by now. When nobody can say what is desired, a
//! valid file without rows is written and the exit status says so; where not even that can be written, the old file is
//! removed or emptied.

mod agent;
mod sources;

use std::io;
use std::path::Path;
use std::time::Duration;

use haplane_core::seed::{Seed, States, is_loaded_by, seed, write};
use haplane_daemon::Settings;
use haplane_haproxy::cfg::{Config, Severity};
use haplane_haproxy::server_state::write_seed;
use serde_json::{Value, json};

use crate::atomic_file::{self, Gone};
use crate::cli::{Common, SeedOptions};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::haproxy_files;
use crate::identity;
use crate::output::Output;
use crate::report::Report;

use sources::{Asking, Found};

/// How long each source may take, and all of them together: a reload waits for us.
const PATIENCE: Duration = Duration::from_secs(4);
const DEADLINE: Duration = Duration::from_secs(10);

/// What is known of haplane's own configuration.
#[derive(Debug)]
pub enum Known<'a> {
    /// All of it.
    Whole(&'a Settings),
    /// Something is wrong; what can be read is enough to ask the agent and the process, but not the store.
    Broken(Option<&'a Settings>, Failure),
}

impl Known<'_> {
    fn settings(&self) -> Option<&Settings> {
        match self {
            Self::Whole(settings) => Some(settings),
            Self::Broken(settings, _) => *settings,
        }
    }
}

/// Finds out what is desired, and writes it down.
pub fn run(known: Known<'_>, common: &Common, options: &SeedOptions, output: &Output) -> Exit {
    let node = known.settings().and_then(|settings| settings.node.clone());
    let node = node.unwrap_or_else(identity::host_name);
    let config = match haproxy_files::read_config(&options.files.named(), options.haproxy_version)
        .and_then(accepted)
    {
        Ok(config) => config,
        Err(failure) => {
            leave_nothing_old(options, output);
            return output.failure(&failure);
        }
    };
    let asking = Asking::new(&config, &known, common, options, output);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime
        .inspect_err(|error| output.warn(&format!("nobody can be asked: {error}")))
        .ok();
    let found = match &runtime {
        Some(runtime) => runtime.block_on(asking.find()),
        None => Found::Nothing,
    };
    let report = match written(&config, &found, &node, options, output) {
        Ok(report) => report,
        Err(failure) => return output.failure(&failure),
    };
    if let (Some(runtime), Found::Store { snapshot, policy }) = (&runtime, &found) {
        runtime.block_on(asking.wait_for_agent(snapshot, *policy));
    }
    match known {
        Known::Whole(_) => output.report(&report),
        Known::Broken(_, failure) => output.failure(&Failure {
            parts: report.parts,
            document: Some(report.document),
            ..failure
        }),
    }
}

/// An empty, valid file in the place of whatever stood there. For failures before anything is known.
fn leave_nothing_old(options: &SeedOptions, output: &Output) {
    let path = options.output.display();
    let empty = write_seed(&[], "empty: see the exit status of haplane seed");
    match put(options, &empty, output) {
        Ok(()) => output.note(&format!("{path} is valid and without rows")),
        Err(error) => output.warn(&format!("cannot write {path}: {error}")),
    }
}

/// Puts the text into the file's place. Where that fails, at least the old file is removed, which may free the space
/// that was missing.
fn put(options: &SeedOptions, text: &str, output: &Output) -> io::Result<()> {
    let Err(error) = atomic_file::put(&options.output, text.as_bytes()) else {
        return Ok(());
    };
    let path = options.output.display();
    let how = match atomic_file::take_away(&options.output) {
        Ok(Gone::Removed) => "removed",
        Ok(Gone::Emptied) => "emptied",
        Ok(Gone::NeverThere) => return Err(error),
        Err(why) => {
            output.warn(&format!(
                "THE OLD FILE STANDS: {path} can be neither written nor removed ({why}); HAProxy will start as it says, with \
                 its states and its ports"
            ));
            return Err(error);
        }
    };
    output.warn(&format!(
        "cannot write {path}: {error}; the old file is {how}"
    ));
    atomic_file::put(&options.output, text.as_bytes())
}

/// A configuration that HAProxy refuses will not be loaded, and nobody can tell what its rows are.
fn accepted(config: Config) -> Result<Config, Failure> {
    let error = config
        .diagnostics()
        .iter()
        .find(|diagnostic| diagnostic.severity == Severity::Error);
    match error {
        None => Ok(config),
        Some(error) => {
            let place = config.locate(error.span);
            Err(Failure::usage(format!(
                "HAProxy refuses this configuration: {place}: {}",
                error.message
            )))
        }
    }
}

fn written(
    config: &Config,
    found: &Found,
    node: &str,
    options: &SeedOptions,
    output: &Output,
) -> Result<Report, Failure> {
    let now = jiff::Timestamp::now();
    let seed = match found {
        Found::Store { snapshot, policy } | Found::Agent { snapshot, policy } => seed(
            config,
            States::Desired {
                snapshot,
                now,
                policy: *policy,
            },
        ),
        Found::Process(rows) => seed(config, States::Running(rows)),
        Found::Nothing => Seed::default(),
    };
    let note = format!("on {node} at {now} from {}", found.word());
    let text = write(config, &seed, &note).map_err(|error| {
        leave_nothing_old(options, output);
        Failure::new(Exit::Unexpected, error.to_string())
    })?;
    let path = options.output.display();
    put(options, &text, output)
        .map_err(|error| Failure::new(Exit::Unexpected, format!("cannot write {path}: {error}")))?;
    for (row, reason) in &seed.skipped {
        output.warn(&format!(
            "{row} will be in rotation until it is asked: {reason}"
        ));
    }
    advise(config, options, output);
    let rows = if seed.rows.len() == 1 {
        "1 row".to_owned()
    } else {
        format!("{} rows", seed.rows.len())
    };
    let exit = match found {
        Found::Store { .. } | Found::Agent { .. } => Exit::Done,
        Found::Process(_) | Found::Nothing => Exit::Unreachable,
    };
    let line = format!("{path}: {rows} not as configured, from {}", found.word());
    Ok(Report::new(document(&seed, found, options))
        .line(line)
        .exit(exit))
}

/// A seed that is not read changes nothing.
fn advise(config: &Config, options: &SeedOptions, output: &Output) {
    if !is_loaded_by(config) {
        output.warn(
            "no backend loads a state file: add load-server-state-from-file global to the defaults",
        );
    }
    let path = options.output.display();
    match config.global().server_state_file.as_ref() {
        None => output.warn(&format!(
            "the configuration names no server-state-file: add `server-state-file {path}` to global"
        )),
        Some(named) if !leads_to(&named.value, &options.output) => output.warn(&format!(
            "the configuration names {} as server-state-file, not {path}",
            named.value
        )),
        Some(_) => {}
    }
}

/// Whether a name in the configuration, which may have been written for another root folder, stands for this file. Both
/// may be relative or lead there by links.
fn leads_to(named: &str, file: &Path) -> bool {
    let whole = |path: &Path| {
        std::fs::canonicalize(path)
            .or_else(|_| std::path::absolute(path))
            .unwrap_or_else(|_| path.to_owned())
    };
    let file_is = whole(file);
    file_is == whole(Path::new(named)) || file_is.ends_with(named.trim_start_matches('/'))
}

fn document(seed: &Seed, found: &Found, options: &SeedOptions) -> Value {
    let rows = seed.rows.iter().map(|row| {
        json!({"row": row.row.to_string(), "admin": row.state.as_str(), "weight": row.weight, "port": row.port})
    });
    let skipped = seed
        .skipped
        .iter()
        .map(|(row, reason)| json!({"row": row.to_string(), "reason": reason}));
    json!({
        "file": options.output.display().to_string(),
        "source": found.word(),
        "index": found.index(),
        "rows": rows.collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
    })
}
