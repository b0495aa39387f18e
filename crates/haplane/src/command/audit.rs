//! `haplane audit`: what will bite.

mod fold;
mod sarif;
mod text;

use haplane_core::audit::{Finding, Place, Severity, Subject, audit};
use haplane_haproxy::HaproxyVersion;
use haplane_haproxy::cfg::Config;
use haplane_haproxy::forecast::{ForecastRow, Source, StartAddress, Told, forecast};
use haplane_haproxy::server_state::{AdminBits, ServerRow, read_answer};
use haplane_haproxy::show_info;
use haplane_runtime::Socket;
use serde_json::{Value, json};

use crate::cli::{AuditFormat, AuditOptions, FailOn};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::haproxy_files::{self, StateOnDisk};
use crate::output::Output;
use crate::report::Report;

/// Reads everything that was named, and says what is to be said of it.
pub fn run(options: &AuditOptions, output: &Output, json: bool) -> Exit {
    match looked(options) {
        Ok(audited) => audited.tell(options, output, json),
        Err(failure) => output.failure(&failure),
    }
}

/// What was read and found.
struct Audited {
    config: Config,
    state: StateOnDisk,
    findings: Vec<Finding>,
}

fn looked(options: &AuditOptions) -> Result<Audited, Failure> {
    let mut version = options.haproxy_version;
    let mut running = None;
    if let Some(path) = &options.socket {
        let (asked_version, rows) = ask(&Socket::new(path))?;
        version = version.or(asked_version);
        running = Some(rows);
    }
    let config = haproxy_files::read_config(&options.files.named(), version)?;
    let state = haproxy_files::read_state(&config, options.state_file.as_deref())?;
    let subject = Subject {
        config: &config,
        files: &state.files,
        global_file: state.global_name.as_deref(),
        running: running.as_deref(),
        version,
    };
    let findings = audit(&subject);
    Ok(Audited {
        config,
        state,
        findings,
    })
}

/// What the running process says of itself and of its rows. Level `user` is enough.
fn ask(socket: &Socket) -> Result<(Option<HaproxyVersion>, Vec<ServerRow>), Failure> {
    let unreachable = |message: String| Failure::new(Exit::Unreachable, message);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Unexpected, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let info = socket
            .ask("show info")
            .await
            .map_err(|error| unreachable(error.to_string()))?;
        let info = show_info::read(&info).map_err(|error| unreachable(error.to_string()))?;
        let rows = socket
            .ask("show servers state")
            .await
            .map_err(|error| unreachable(error.to_string()))?;
        let rows = read_answer(&rows).map_err(|error| unreachable(error.to_string()))?;
        Ok((info.version.parse().ok(), rows))
    })
}

impl Audited {
    fn tell(&self, options: &AuditOptions, output: &Output, json: bool) -> Exit {
        let exit = if self
            .findings
            .iter()
            .any(|finding| finding.severity >= options.fail_on.severity())
        {
            Exit::Findings
        } else {
            Exit::Done
        };
        let forecasts = options
            .forecast
            .then(|| forecast(&self.config, &self.state.files));
        if options.format == AuditFormat::Sarif {
            let document = sarif::document(&self.config, &self.findings);
            let text = serde_json::to_string_pretty(&document).unwrap_or_default();
            return match output.text(&format!("{text}\n")) {
                Exit::Done => exit,
                trouble => trouble,
            };
        }
        let mut report = Report::new(self.document(forecasts.as_deref())).exit(exit);
        for folded in fold::folded(&self.findings) {
            report = report.line(text::finding(&self.config, &folded));
        }
        if let Some(forecasts) = &forecasts {
            report = report.table(text::forecast_table(forecasts));
        }
        report = report.line(text::summary(&self.findings));
        if options.format == AuditFormat::Json && !json {
            Output::new(true).report(&report)
        } else {
            output.report(&report)
        }
    }

    fn document(&self, forecasts: Option<&[ForecastRow]>) -> Value {
        let count = |severity| {
            self.findings
                .iter()
                .filter(|finding| finding.severity == severity)
                .count()
        };
        let mut document = json!({
            "findings": self.findings.iter().map(|finding| finding_json(&self.config, finding)).collect::<Vec<_>>(),
            "summary": {
                "error": count(Severity::Error),
                "warning": count(Severity::Warning),
                "note": count(Severity::Note),
            },
        });
        if let (Some(forecasts), Some(object)) = (forecasts, document.as_object_mut()) {
            let rows = forecasts.iter().map(forecast_json).collect();
            object.insert("forecast".to_owned(), Value::Array(rows));
        }
        document
    }
}

impl FailOn {
    fn severity(self) -> Severity {
        match self {
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
            Self::Note => Severity::Note,
        }
    }
}

/// File, line and column, as far as the finding has them.
fn place_of(config: &Config, place: &Place) -> (Option<String>, Option<usize>, Option<u32>) {
    match place {
        Place::Config(span) => {
            let location = config.locate(*span);
            (
                Some(location.file),
                Some(location.line as usize),
                Some(location.column),
            )
        }
        Place::StateFile { name, line } => (Some(name.clone()), Some(*line), Some(1)),
        Place::Process => (None, None, None),
    }
}

fn finding_json(config: &Config, finding: &Finding) -> Value {
    let (file, line, column) = place_of(config, &finding.place);
    json!({
        "rule": finding.rule.id(),
        "severity": finding.severity.as_str(),
        "file": file,
        "line": line,
        "column": column,
        "row": finding.row.as_ref().map(ToString::to_string),
        "message": finding.message,
        "reason": finding.reason,
        "fix": finding.fix,
    })
}

fn forecast_json(row: &ForecastRow) -> Value {
    json!({
        "row": row.row.to_string(),
        "address": address_text(&row.address.value),
        "port": row.port.value,
        "check_port": row.check_port.value,
        "agent_address": row.agent_address.value.as_ref().map(ToString::to_string),
        "agent_port": row.agent_port.value,
        "weight": row.weight.value,
        "admin": admin_word(row.admin.value),
        "source": {
            "address": source(&row.address),
            "port": source(&row.port),
            "check_port": source(&row.check_port),
            "agent_address": source(&row.agent_address),
            "agent_port": source(&row.agent_port),
            "weight": source(&row.weight),
            "admin": source(&row.admin),
        },
    })
}

fn source<T>(told: &Told<T>) -> &'static str {
    match told.source {
        Source::Config => "config",
        Source::StateFile => "state-file",
    }
}

/// A host name stands for whatever it resolves to at start, so there is no address before it is
/// looked up.
fn address_text(address: &StartAddress) -> Option<String> {
    match address {
        StartAddress::Ip(ip) => Some(ip.to_string()),
        StartAddress::Lookup(name) => Some(name.clone()),
        StartAddress::Local(text) => Some(text.clone()),
        StartAddress::Unresolved => None,
    }
}

fn admin_word(admin: AdminBits) -> &'static str {
    if admin.is_maint() {
        "maint"
    } else if admin.is_drain() {
        "drain"
    } else {
        "ready"
    }
}
