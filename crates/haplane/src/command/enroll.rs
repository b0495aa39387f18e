//! `haplane enroll`: agent-check parameters on server lines, and out again.

mod diff;
mod groups;
mod replace;

use std::path::Path;
use std::process::Command;

use haplane_core::enroll::{EnrollError, Plan, apply, enroll, remove};
use haplane_haproxy::cfg::{Config, Context, Span};
use serde_json::{Value, json};

use crate::cli::EnrollOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::haproxy_files;
use crate::output::Output;
use crate::report::Report;

/// Plans, shows, and with `--write` changes the files.
pub fn run(options: &EnrollOptions, output: &Output) -> Exit {
    match planned(options).and_then(|planned| planned.carry_out(options, output)) {
        Ok(report) => output.report(&report),
        Err(failure) => output.failure(&failure),
    }
}

struct Planned {
    config: Config,
    plan: Plan,
    /// The files after the edits.
    edited: Vec<Vec<u8>>,
    /// What else to change, by hand.
    recommended: Option<&'static str>,
}

fn planned(options: &EnrollOptions) -> Result<Planned, Failure> {
    let wanted = groups::read(options.groups.as_deref())?;
    let context = haproxy_files::context(options.haproxy_version);
    let config = haproxy_files::read_config_in(&options.files.named(), &context)?;
    let plan = plan(&config, &context, &wanted, options.remove)?;
    let edited = apply(&config, &plan.edits);
    let recommended = if options.remove {
        None
    } else {
        recommended(&config)
    };
    Ok(Planned {
        config,
        plan,
        edited,
        recommended,
    })
}

/// The first asks of a new process are spread over an interval unless that is capped (facts 4.1).
fn recommended(config: &Config) -> Option<&'static str> {
    let missing = config.global().max_spread_checks.is_none();
    missing.then_some("max-spread-checks 1 in the global section: the first asks after a reload then take 0.2 s, not 2 s")
}

fn plan(
    config: &Config,
    context: &Context,
    wanted: &haplane_core::enroll::Wanted,
    taking_out: bool,
) -> Result<Plan, Failure> {
    let plan = if taking_out {
        remove(config, context, wanted)
    } else {
        enroll(config, context, wanted)
    };
    plan.map_err(|error| {
        let exit = match error {
            EnrollError::NotAsPlanned(_) => Exit::Unexpected,
            _ => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    })
}

impl Planned {
    fn carry_out(&self, options: &EnrollOptions, output: &Output) -> Result<Report, Failure> {
        let changes = !self.plan.edits.is_empty();
        if let Some(program) = options.haproxy.as_deref().filter(|_| changes) {
            check_with(program, &self.config, &self.edited)?;
        }
        if options.write && changes {
            for (file, bytes) in self.config.files().iter().zip(&self.edited) {
                if file.bytes() != bytes {
                    replace::file(Path::new(file.name()), file.bytes(), bytes)?;
                }
            }
        }
        self.tell_left_alone(output);
        if options.write && changes && !options.remove {
            let files = options.files.named();
            let files: Vec<_> = files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            output.note(&format!(
                "next: `haplane audit {}`, which says what else would bite (weights, slowstart), and a reload",
                files.join(" ")
            ));
        }
        let diff = self.diff();
        let exit = if options.check && changes {
            Exit::Findings
        } else {
            Exit::Done
        };
        let mut report = Report::new(self.document(options.write && changes, &diff)).exit(exit);
        if !options.check && !options.write && changes {
            report = report.line(diff.trim_end_matches('\n'));
        } else {
            report = report.line(self.summary(options));
        }
        Ok(report)
    }

    fn diff(&self) -> String {
        let files = self.config.files().iter().zip(&self.edited);
        files
            .map(|(file, bytes)| diff::unified(file.name(), file.bytes(), bytes))
            .collect()
    }

    fn place(&self, span: Span) -> (String, u32) {
        let location = self.config.locate(span);
        (location.file, location.line)
    }

    fn document(&self, written: bool, diff: &str) -> Value {
        let changed = self.plan.changed.iter().map(|(span, row)| {
            let (file, line) = self.place(*span);
            json!({"row": row, "file": file, "line": line})
        });
        let left_alone = self.plan.left_alone.iter().map(|left| {
            let (file, line) = self.place(left.span);
            json!({"row": left.name, "file": file, "line": line, "reason": left.reason})
        });
        json!({
            "changed": changed.collect::<Vec<_>>(),
            "unchanged": self.plan.unchanged,
            "left_alone": left_alone.collect::<Vec<_>>(),
            "recommended": self.recommended,
            "written": written,
            "diff": diff,
        })
    }

    fn tell_left_alone(&self, output: &Output) {
        for left in &self.plan.left_alone {
            let (file, line) = self.place(left.span);
            output.note(&format!(
                "{file}:{line}: {} is left alone: {}",
                left.name, left.reason
            ));
        }
        if let Some(recommended) = self.recommended {
            output.note(&format!("recommended: {recommended}"));
        }
    }

    fn summary(&self, options: &EnrollOptions) -> String {
        let lines = |number: usize| {
            if number == 1 {
                "1 line".to_owned()
            } else {
                format!("{number} lines")
            }
        };
        let verb = if options.write {
            "changed"
        } else {
            "would change"
        };
        format!(
            "{} {verb}, {} as they should be, {} left alone",
            lines(self.plan.changed.len()),
            self.plan.unchanged,
            self.plan.left_alone.len()
        )
    }
}

/// Puts the edited files into a folder of their own and asks haproxy whether it takes them.
fn check_with(program: &Path, config: &Config, edited: &[Vec<u8>]) -> Result<(), Failure> {
    let unexpected = |error: std::io::Error| {
        Failure::new(
            Exit::Unexpected,
            format!("cannot check the result: {error}"),
        )
    };
    let folder = replace::Scratch::new().map_err(unexpected)?;
    let mut command = Command::new(program);
    command.arg("-c");
    for (number, (file, bytes)) in config.files().iter().zip(edited).enumerate() {
        let name = Path::new(file.name()).file_name().unwrap_or_default();
        let path = folder
            .path()
            .join(format!("{number}-{}", name.to_string_lossy()));
        std::fs::write(&path, bytes).map_err(unexpected)?;
        command.arg("-f").arg(path);
    }
    let program = program.display();
    let said = command
        .output()
        .map_err(|error| Failure::usage(format!("cannot run {program}: {error}")))?;
    // Status 2: no error, but no listener either, as when a file is one of several.
    if matches!(said.status.code(), Some(0 | 2)) {
        return Ok(());
    }
    let messages = String::from_utf8_lossy(&said.stderr).into_owned();
    Err(Failure::refused(format!(
        "{program} does not take the result; nothing is changed:\n{messages}"
    )))
}
