//! Enrolment: which server lines get which agent-check parameters, as edits that leave every other byte alone.
//!
//! Decided per line, from what the line is set to already (its own words, `default-server`, `defaults`): a parameter that is
//! in force is not written again, so a second run changes nothing. What is left alone is listed with its reason. Before
//! anything is handed out, the edited text is read back: each row must ask as planned, and nothing else may have changed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use haplane_haproxy::cfg::{Activity, Config, Context, FileId, Row, Severity, SourceFile, Span};

use crate::glob::Glob;
use crate::key::Key;

mod line;
mod remove;
mod words;

/// The most rounds of reading back. Each takes lines out, and that hardly ever makes another line wrong.
const ROUNDS: usize = 5;

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
    /// The groups or the defaults hold something that cannot be written on a server line.
    #[error("{0}")]
    Wanted(String),
    /// Read back, the result is not what was planned: a fault of ours.
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
    for row in lines_of(config) {
        match line::plan(config, row, wanted) {
            line::Outcome::Edits(edits) => {
                plan.changed.push((row.server.span, name_of(row)));
                plan.edits.extend(edits);
            }
            line::Outcome::AlreadyEnrolled => plan.unchanged += 1,
            line::Outcome::Left(reason) => plan.left_alone.push(left(row, reason)),
        }
    }
    tell_inactive(config, &mut plan);
    keep_what_reads_back(config, context, &mut plan, |row, name| {
        line::is_as_wanted(row, name, wanted)
    })?;
    Ok(plan)
}

/// Plans the removal of what an enrolment put in.
///
/// # Errors
///
/// See [`EnrollError`].
pub fn remove(config: &Config, context: &Context, wanted: &Wanted) -> Result<Plan, EnrollError> {
    check_input(config, wanted)?;
    let mut plan = Plan::default();
    for row in lines_of(config) {
        match remove::plan(config, row, wanted) {
            Some(edits) => {
                plan.changed.push((row.server.span, name_of(row)));
                plan.edits.extend(edits);
            }
            None if row.server.settings.agent.enabled.value => {
                plan.left_alone.push(left(
                    row,
                    "its agent-check was not put there by an enrolment".to_owned(),
                ));
            }
            None => plan.unchanged += 1,
        }
    }
    keep_what_reads_back(config, context, &mut plan, |row, name| {
        name_of(row) == name && row.server.settings.agent.send.is_none()
    })?;
    Ok(plan)
}

/// The files after the edits, in the order of the configuration.
pub fn apply(config: &Config, edits: &[Edit]) -> Vec<Vec<u8>> {
    let mut of_files: Vec<Vec<&Edit>> = vec![Vec::new(); config.files().len()];
    for edit in edits {
        if let Some(of_file) = of_files.get_mut(edit.span.file.index()) {
            of_file.push(edit);
        }
    }
    let files = config.files().iter().zip(of_files);
    files
        .map(|(file, edits)| {
            let mut result = Vec::with_capacity(file.bytes().len() + edits.len() * 80);
            let mut done = 0;
            for edit in edits {
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

/// Notes server lines in branches that are not taken: they are left alone, which may surprise.
fn tell_inactive(config: &Config, plan: &mut Plan) {
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

/// Takes out of the plan the lines that would not read as planned, until all that are left do.
///
/// This happens where the end of a line is not what it seems to be: a variable that is not set here swallows the
/// quotation mark behind it, and what follows.
fn keep_what_reads_back(
    config: &Config,
    context: &Context,
    plan: &mut Plan,
    as_planned: impl Fn(Row<'_>, &str) -> bool,
) -> Result<(), EnrollError> {
    for _ in 0..ROUNDS {
        let wrong = lines_read_otherwise(config, context, plan, &as_planned);
        if wrong.is_empty() {
            return Ok(());
        }
        let is_wrong = |span: &Span| wrong.contains(&(span.file, span.line));
        plan.edits.retain(|edit| !is_wrong(&edit.span));
        for (span, name) in plan.changed.extract_if(.., |(span, _)| is_wrong(span)) {
            let reason = "the edited line would not read as planned: edit it by hand".to_owned();
            plan.left_alone.push(LeftAlone { span, name, reason });
        }
    }
    let first = plan
        .changed
        .first()
        .map_or_else(String::new, |(_, name)| name.clone());
    Err(EnrollError::NotAsPlanned(first))
}

/// The changed lines that do not read as planned, and those that HAProxy would refuse.
fn lines_read_otherwise(
    config: &Config,
    context: &Context,
    plan: &Plan,
    as_planned: &impl Fn(Row<'_>, &str) -> bool,
) -> HashSet<(FileId, u32)> {
    let files = config.files().iter().zip(apply(config, &plan.edits));
    let files = files
        .map(|(file, bytes)| SourceFile::new(file.name(), bytes))
        .collect();
    let edited = Config::parse(files, context);
    let errors = edited
        .diagnostics()
        .iter()
        .filter(|one| one.severity == Severity::Error);
    let mut wrong: HashSet<(FileId, u32)> = errors
        .map(|error| (error.span.file, error.span.line))
        .collect();
    let rows: HashMap<(FileId, u32), Row<'_>> = lines_of(&edited)
        .map(|row| ((row.server.span.file, row.server.span.line), row))
        .collect();
    for (span, name) in &plan.changed {
        let place = (span.file, span.line);
        if !rows.get(&place).is_some_and(|row| as_planned(*row, name)) {
            wrong.insert(place);
        }
    }
    wrong
}

/// The server and template lines of all backends.
fn lines_of(config: &Config) -> impl Iterator<Item = Row<'_>> {
    let backends = config.backends().iter();
    backends.flat_map(|backend| {
        backend.servers.iter().map(move |server| Row {
            backend,
            server,
            number: None,
        })
    })
}
