//! What in a configuration, in a server-state file or in a running process will bite: findings.
//!
//! Each rule is a plain function from what was read to findings, grouped by what it looks at. No rule fails, asks anybody
//! or knows where the texts came from. What each rule means for an operator is written in `docs/rules`.

use std::collections::HashSet;

use haplane_haproxy::cfg::{Backend, Config, Span, StateSource};
use haplane_haproxy::forecast::{ForecastRow, StateFiles, forecast};
use haplane_haproxy::server_state::ServerRow;
use haplane_haproxy::{HaproxyVersion, RowKey};

mod allow;
mod configuration;
mod enrolment;
mod reload;
mod rule;
mod running;
mod sockets;
mod state_files;
mod versions;
mod weights;

pub use haplane_haproxy::cfg::Severity;
pub use rule::Rule;

/// All that an audit looks at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The server-state files, as far as they exist.
    pub files: &'a StateFiles,
    /// The name under which the operator knows the state file of the `global` section.
    pub global_file: Option<&'a str>,
    /// What the running process shows, when it was asked.
    pub running: Option<&'a [ServerRow]>,
    /// The HAProxy that runs or will run, when it is known.
    pub version: Option<HaproxyVersion>,
}

/// Where a finding is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the configuration.
    Config(Span),
    /// In a server-state file.
    StateFile {
        /// The file, as it is known to the operator.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// In the process that runs.
    Process,
}

/// One thing that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// The row that it is about, if it is about one.
    pub row: Option<RowKey>,
    /// What is so, in one sentence.
    pub message: String,
    /// What follows from it.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

/// All findings, in the order of the files, those that a comment allows left out.
pub fn audit(subject: &Subject<'_>) -> Vec<Finding> {
    let forecasts = forecast(subject.config, subject.files);
    let enrolled = subject
        .config
        .rows()
        .filter(|row| row.server.settings.agent.enabled.value);
    let enrolled = enrolled
        .filter_map(|row| row.key().map(|key| key.to_string()))
        .collect();
    let subject = &Looked {
        subject,
        forecasts: &forecasts,
        enrolled,
    };
    let mut findings = Findings::default();
    configuration::check(subject, &mut findings);
    enrolment::check(subject, &mut findings);
    weights::check(subject, &mut findings);
    state_files::check(subject, &mut findings);
    reload::check(subject, &mut findings);
    sockets::check(subject, &mut findings);
    versions::check(subject, &mut findings);
    running::check(subject, &mut findings);
    let mut findings = allow::silence(subject.config(), findings.0);
    findings.sort_by_key(order);
    findings
}

/// The configuration in its own order, then state files, then the process.
fn order(finding: &Finding) -> (u8, Option<Span>, usize, Rule) {
    match &finding.place {
        Place::Config(span) => (0, Some(*span), 0, finding.rule),
        Place::StateFile { line, .. } => (1, None, *line, finding.rule),
        Place::Process => (2, None, 0, finding.rule),
    }
}

/// The subject, with what several rules need to know of it.
struct Looked<'a> {
    subject: &'a Subject<'a>,
    forecasts: &'a [ForecastRow],
    /// The names of the rows that ask an agent.
    enrolled: HashSet<String>,
}

impl<'a> Looked<'a> {
    fn config(&self) -> &'a Config {
        self.subject.config
    }

    /// Whether any row asks an agent.
    fn has_enrolled_rows(&self) -> bool {
        !self.enrolled.is_empty()
    }

    /// The name under which the operator knows a backend's state file, as in `line 3 of …`.
    fn file_name(&self, backend: &Backend) -> String {
        match backend.settings.state_source.value {
            StateSource::Local => self.local_file_name(backend.local_state_file()),
            StateSource::Global | StateSource::None => self.global_file_name().to_owned(),
        }
    }

    fn global_file_name(&self) -> &str {
        self.subject.global_file.unwrap_or("the server-state file")
    }

    /// A relative name counts from `server-state-base`.
    fn local_file_name(&self, name: &str) -> String {
        match &self.config().global().server_state_base {
            Some(base) if !name.starts_with('/') => {
                format!("{}/{name}", base.value.trim_end_matches('/'))
            }
            _ => name.to_owned(),
        }
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding of a rule at its usual severity.
    fn add(
        &mut self,
        rule: Rule,
        place: Place,
        row: Option<RowKey>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Finding {
            rule,
            severity: rule.severity(),
            place,
            row,
            message: message.into(),
            reason: rule.reason().to_owned(),
            fix: fix.into(),
        });
    }

    /// The same at another severity.
    fn add_as(
        &mut self,
        severity: Severity,
        rule: Rule,
        place: Place,
        row: Option<RowKey>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(rule, place, row, message, fix);
        if let Some(last) = self.0.last_mut() {
            last.severity = severity;
        }
    }
}
