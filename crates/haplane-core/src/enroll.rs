//! Enrolment: which server lines get which agent-check parameters, as edits that leave every other byte alone.
//!
//! Decided per line, from what the line is set to already (its own words, `default-server`, `defaults`): a parameter that is
//! in force is not written again, so a second run changes nothing. What is left alone is listed with its reason. Before
//! anything is handed out, the edited text is read back: each row must ask as planned, and nothing else may have changed.

use std::time::Duration;

use haplane_haproxy::cfg::{Config, Context, Row, Span};

use crate::glob::Glob;
use crate::key::Key;

mod line;
mod remove;
mod words;

/// What to enroll and how: a groups.toml, understood.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `agent-addr`.
    pub agent_address: String,
    /// `agent-port`.
    pub agent_port: u16,
    /// `agent-inter`, as written.
    pub agent_inter: String,
    /// `slowstart`, as written, for rows that have none.
    pub slowstart: Option<String>,
    /// Rows to leave alone.
    pub exclude: Vec<Glob>,
    /// Groups in order of precedence, each with its rows.
    pub groups: Vec<Group>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            agent_address: "127.0.0.1".to_owned(),
            agent_port: 9777,
            agent_inter: "2s".to_owned(),
            slowstart: None,
            exclude: Vec::new(),
            groups: Vec::new(),
        }
    }
}

/// A group: its key, and which rows ask for it.
#[derive(Clone, Debug)]
pub struct Group {
    /// The key.
    pub key: Key,
    /// Its rows.
    pub rows: Vec<Glob>,
}

/// One replacement in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; nothing, for an insertion.
    pub span: Span,
    /// What comes in its place.
    pub text: String,
}

/// A row or template that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// Where its name stands.
    pub span: Span,
    /// Its name as written: `web/a`, or `web/slot-` for a template.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What an enrolment comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The edits, in the order of the files.
    pub edits: Vec<Edit>,
    /// The rows whose lines change, as written: `web/a`, or `web/slot-` for a template.
    pub changed: Vec<(Span, String)>,
    /// What stays as it is, and why. Rows that are enrolled already are not listed.
    pub left_alone: Vec<LeftAlone>,
    /// How many lines are enrolled already and need nothing.
    pub unchanged: usize,
}

/// Why a plan is not handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrollError {
    /// HAProxy refuses the configuration, so we cannot know what an edit makes of it.
    #[error("HAProxy refuses this configuration: {0}")]
    Refused(String),
    /// The groups or the defaults hold something that no server line can say.
    #[error("{0}")]
    Wanted(String),
    /// Reading the result back shows something else than planned. A fault of ours.
    #[error("the edited configuration would not read as planned at {0}; nothing is changed")]
    NotAsPlanned(String),
}

/// Plans the enrolment of all rows.
///
/// # Errors
///
/// See [`EnrollError`].
pub fn enroll(config: &Config, context: &Context, wanted: &Wanted) -> Result<Plan, EnrollError> {
    check_input(config, wanted)?;
    let mut plan = Plan::default();
    for (backend, server) in config
        .backends()
        .iter()
        .flat_map(|one| one.servers.iter().map(move |server| (one, server)))
    {
        let row = Row {
            backend,
            server,
            number: None,
        };
        match line::plan(config, row, wanted) {
            line::Outcome::Edits(edits) => {
                plan.changed.push((server.span, name_of(row)));
                plan.edits.extend(edits);
            }
            line::Outcome::AlreadyEnrolled => plan.unchanged += 1,
            line::Outcome::Left(reason) => plan.left_alone.push(left(row, reason)),
        }
    }
    tell_inactive(config, &mut plan);
    read_back(config, context, &plan, |edited, name| {
        line::is_as_wanted(edited, name, wanted)
    })?;
    Ok(plan)
}

/// Plans to take out again what an enrolment put in.
///
/// # Errors
///
/// See [`EnrollError`].
pub fn remove(config: &Config, context: &Context, wanted: &Wanted) -> Result<Plan, EnrollError> {
    check_input(config, wanted)?;
    let mut plan = Plan::default();
    for (backend, server) in config
        .backends()
        .iter()
        .flat_map(|one| one.servers.iter().map(move |server| (one, server)))
    {
        let row = Row {
            backend,
            server,
            number: None,
        };
        match remove::plan(config, row, wanted) {
            Some(edits) => {
                plan.changed.push((server.span, name_of(row)));
                plan.edits.extend(edits);
            }
            None if server.settings.agent.enabled.value => {
                plan.left_alone.push(left(
                    row,
                    "its agent-check was not put there by an enrolment".to_owned(),
                ));
            }
            None => plan.unchanged += 1,
        }
    }
    read_back(config, context, &plan, |edited, name| {
        edited
            .iter()
            .filter(|row| name_of(**row) == name)
            .all(|row| row.server.settings.agent.send.is_none())
    })?;
    Ok(plan)
}

/// The files after the edits, in the order of the configuration.
pub fn apply(config: &Config, edits: &[Edit]) -> Vec<Vec<u8>> {
    let files = config.files().iter().enumerate();
    files
        .map(|(index, file)| {
            let mut result = Vec::with_capacity(file.bytes().len() + edits.len() * 80);
            let mut done = 0;
            for edit in edits.iter().filter(|edit| edit.span.file.index() == index) {
                let line = file.line_range(edit.span.line);
                let start = line.start + edit.span.start as usize;
                let end = line.start + edit.span.end as usize;
                result.extend_from_slice(file.bytes().get(done..start).unwrap_or_default());
                result.extend_from_slice(edit.text.as_bytes());
                done = end;
            }
            result.extend_from_slice(file.bytes().get(done..).unwrap_or_default());
            result
        })
        .collect()
}

/// `backend/server`, or `backend/prefix` for a template.
fn name_of(row: Row<'_>) -> String {
    format!("{}/{}", row.backend.name, row.server.name)
}

fn left(row: Row<'_>, reason: String) -> LeftAlone {
    LeftAlone {
        span: row.server.span,
        name: name_of(row),
        reason,
    }
}

fn check_input(config: &Config, wanted: &Wanted) -> Result<(), EnrollError> {
    use haplane_haproxy::cfg::Severity;
    let error = config
        .diagnostics()
        .iter()
        .find(|diagnostic| diagnostic.severity == Severity::Error);
    if let Some(error) = error {
        return Err(EnrollError::Refused(format!(
            "{}: {}",
            config.locate(error.span),
            error.message
        )));
    }
    let interval = haplane_haproxy::duration::parse_millis(&wanted.agent_inter);
    if interval.is_err() || interval == Ok(Duration::ZERO) {
        let inter = &wanted.agent_inter;
        return Err(EnrollError::Wanted(format!(
            "agent_inter = {inter:?} is no interval for HAProxy; write 2s"
        )));
    }
    if let Some(slowstart) = &wanted.slowstart
        && haplane_haproxy::duration::parse_millis(slowstart).is_err()
    {
        return Err(EnrollError::Wanted(format!(
            "slowstart = {slowstart:?} is no time for HAProxy; write 60s"
        )));
    }
    if wanted.agent_address.is_empty()
        || wanted
            .agent_address
            .contains(|c: char| c.is_whitespace() || c.is_control())
    {
        let address = &wanted.agent_address;
        return Err(EnrollError::Wanted(format!(
            "agent_addr = {address:?} is no address"
        )));
    }
    if wanted.agent_port == 0 {
        return Err(EnrollError::Wanted("agent_port = 0 is no port".to_owned()));
    }
    Ok(())
}

/// Server lines in branches that are not taken are not looked at, which may surprise.
fn tell_inactive(config: &Config, plan: &mut Plan) {
    use haplane_haproxy::cfg::Activity;
    let inactive = config.lines().iter().filter(|line| {
        line.activity == Activity::Inactive
            && matches!(line.keyword(), "server" | "server-template")
    });
    for line in inactive {
        plan.left_alone.push(LeftAlone {
            span: line.span_of(1),
            name: line.argument(1).to_owned(),
            reason: "it stands in a branch of .if that is not taken here".to_owned(),
        });
    }
}

/// Reads the edited text as HAProxy would and holds it to the plan.
fn read_back(
    config: &Config,
    context: &Context,
    plan: &Plan,
    as_planned: impl Fn(&[Row<'_>], &str) -> bool,
) -> Result<(), EnrollError> {
    let files = config.files().iter().zip(apply(config, &plan.edits));
    let files = files
        .map(|(file, bytes)| haplane_haproxy::cfg::SourceFile::new(file.name(), bytes))
        .collect();
    let edited = Config::parse(files, context);
    let wrong = |place: String| Err(EnrollError::NotAsPlanned(place));
    if let Some(diagnostic) = edited
        .diagnostics()
        .iter()
        .find(|one| one.severity == haplane_haproxy::cfg::Severity::Error)
    {
        return wrong(format!(
            "{}: {}",
            edited.locate(diagnostic.span),
            diagnostic.message
        ));
    }
    let rows: Vec<Row<'_>> = edited
        .backends()
        .iter()
        .flat_map(|backend| {
            backend.servers.iter().map(move |server| Row {
                backend,
                server,
                number: None,
            })
        })
        .collect();
    for (span, name) in &plan.changed {
        let of_line: Vec<Row<'_>> = rows
            .iter()
            .filter(|row| (row.server.span.file, row.server.span.line) == (span.file, span.line))
            .copied()
            .collect();
        if of_line.is_empty() || !as_planned(&of_line, name) {
            return wrong(format!("{} ({name})", config.locate(*span)));
        }
    }
    Ok(())
}
