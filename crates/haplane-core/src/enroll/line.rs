//! One server line: what is missing from it, and where that is inserted.

use haplane_haproxy::cfg::{Activity, Address, Config, Line, MAX_WORDS, Row, Sourced, Span};
use haplane_haproxy::duration::parse_millis;

use super::{Edit, Wanted, name_of, words};

/// What to do with a line.
pub(super) enum Outcome {
    /// Change it so.
    Edits(Vec<Edit>),
    /// Nothing: it is enrolled as wanted.
    AlreadyEnrolled,
    /// Nothing, for this reason.
    Left(String),
}

/// Decides one line.
pub(super) fn plan(config: &Config, row: Row<'_>, wanted: &Wanted) -> Outcome {
    if let Some(reason) = reason_to_leave(config, row, wanted) {
        return Outcome::Left(reason);
    }
    let Some(line) = config.line(row.server.line) else {
        return Outcome::Left("its line was not read".to_owned());
    };
    let send = match words::line_for(row, wanted) {
        Ok(send) => send,
        Err(reason) => return Outcome::Left(reason),
    };
    let edits = Missing {
        line,
        row,
        wanted,
        send: &send,
    }
    .edits();
    if edits.is_empty() {
        return Outcome::AlreadyEnrolled;
    }
    if edits.iter().any(|edit| follows_backslash(config, edit)) {
        return Outcome::Left(
            "its last word ends with a backslash, which would take the blank behind it for its own"
                .to_owned(),
        );
    }
    let added: usize = edits
        .iter()
        .map(|edit| edit.text.split_whitespace().count())
        .sum();
    // A blank after the last word counts as one more word.
    if line.words.len() + added + 1 > MAX_WORDS {
        return Outcome::Left(format!(
            "its line would have more than the {MAX_WORDS} words that HAProxy takes"
        ));
    }
    Outcome::Edits(edits)
}

/// Whether the byte before an edit would change what the edit's first byte means.
fn follows_backslash(config: &Config, edit: &Edit) -> bool {
    let line = config
        .files()
        .get(edit.span.file.index())
        .map_or(&[][..], |file| file.line(edit.span.line));
    let before = (edit.span.start as usize).checked_sub(1);
    before.and_then(|at| line.get(at)) == Some(&b'\\')
}

/// Whether a row asks as wanted: the check after the edits.
pub(super) fn is_as_wanted(row: Row<'_>, name: &str, wanted: &Wanted) -> bool {
    let agent = &row.server.settings.agent;
    name_of(row) == name
        && agent.enabled.value
        && agent
            .port
            .as_ref()
            .is_some_and(|port| port.value == wanted.agent_port)
        && has_address(row, wanted)
        && parse_millis(&wanted.agent_inter) == Ok(agent.inter.value)
        && agent
            .send
            .as_ref()
            .is_some_and(|send| words::line_for(row, wanted) == Ok(send.value.clone()))
}

fn has_address(row: Row<'_>, wanted: &Wanted) -> bool {
    let address = row.server.settings.agent.address.as_ref();
    address.is_some_and(|address| match &address.value {
        Address::Ip(ip) => wanted.agent_address.parse() == Ok(*ip),
        other => other.to_string() == wanted.agent_address,
    })
}

fn reason_to_leave(config: &Config, row: Row<'_>, wanted: &Wanted) -> Option<String> {
    let name = name_of(row);
    let server = row.server;
    let settings = &server.settings;
    if wanted.exclude.iter().any(|glob| glob.matches(&name)) {
        return Some("it is excluded".to_owned());
    }
    if let Some(track) = &settings.track {
        return Some(format!("it follows {}", track.value));
    }
    if row.backend.settings.disabled.value {
        return Some("its backend is disabled".to_owned());
    }
    let from_variable = |line: usize| {
        config
            .line(line)
            .and_then(|line| line.words.get(1))
            .is_some_and(|word| word.from_variable)
    };
    if from_variable(server.line) || from_variable(row.backend.line) {
        return Some("its name depends on an environment variable".to_owned());
    }
    if server.activity == Activity::Undecided {
        return Some(
            "it stands in a branch of .if that cannot be decided here (see --haproxy-version)"
                .to_owned(),
        );
    }
    if settings.disabled.value && server.template.is_none() && !settings.agent.enabled.value {
        return Some(format!(
            "it is disabled: the agent's `ready` would put it into rotation (`haplane set {name} maint --force`, then take `disabled` out)"
        ));
    }
    let agent = &settings.agent;
    if agent.enabled.from.is_some() && !agent.enabled.value {
        return Some("it says no-agent-check".to_owned());
    }
    if agent.enabled.value && !is_ours(row, wanted) {
        let port = agent.port.as_ref().map_or(0, |port| port.value);
        return Some(format!("it already asks another agent, on port {port}"));
    }
    None
}

/// Whether an agent-check on the line is haplane's: it asks our port, or sends words of ours.
pub(super) fn is_ours(row: Row<'_>, wanted: &Wanted) -> bool {
    let agent = &row.server.settings.agent;
    let first = agent
        .send
        .as_ref()
        .and_then(|send| send.value.split_whitespace().next());
    let same_port = agent
        .port
        .as_ref()
        .is_some_and(|port| port.value == wanted.agent_port);
    same_port || first.is_some_and(|word| word == name_of(row) || word.starts_with('@'))
}

/// What one line lacks.
struct Missing<'a> {
    line: &'a Line,
    row: Row<'a>,
    wanted: &'a Wanted,
    send: &'a str,
}

impl Missing<'_> {
    /// Changed values in their own places first, then new parameters after the last word.
    fn edits(&self) -> Vec<Edit> {
        let agent = &self.row.server.settings.agent;
        let wanted = self.wanted;
        let mut edits = Vec::new();
        let mut added = Vec::new();
        let mut set = |keyword: &str, is_right: bool, value: String| match self.own(keyword) {
            _ if is_right => {}
            Some(span) => edits.push(Edit { span, text: value }),
            None => added.push(format!("{keyword} {value}")),
        };
        let has_check = agent.enabled.value;
        let has_port = agent.port.as_ref().map(|port| port.value) == Some(wanted.agent_port);
        // On a newly enrolled line even HAProxy's default interval is written out, for whoever reads it.
        let has_inter = (has_check || agent.inter.from.is_some())
            && parse_millis(&wanted.agent_inter) == Ok(agent.inter.value);
        let has_send = agent
            .send
            .as_ref()
            .is_some_and(|send| send.value == self.send);
        let has_address = has_address(self.row, wanted);
        set("agent-addr", has_address, wanted.agent_address.clone());
        set("agent-port", has_port, wanted.agent_port.to_string());
        set("agent-inter", has_inter, wanted.agent_inter.clone());
        set("agent-send", has_send, words::quoted(self.send));
        let slowstart: Option<&Sourced<_>> = self.row.server.settings.slowstart.as_ref();
        if let (None, Some(wanted)) = (slowstart, &self.wanted.slowstart) {
            added.push(format!("slowstart {wanted}"));
        }
        if !has_check {
            added.insert(0, "agent-check".to_owned());
        }
        if !added.is_empty() {
            edits.push(Edit {
                span: self.end(),
                text: format!(" {}", added.join(" ")),
            });
        }
        edits.sort_by_key(|edit| edit.span);
        edits
    }

    /// Where the value of a keyword stands, if the line itself has it. The last one counts.
    fn own(&self, keyword: &str) -> Option<Span> {
        own_keyword(self.line, self.row, keyword).map(|at| self.line.span_of(at + 1))
    }

    /// After the last word that HAProxy reads: it stops at an empty word.
    fn end(&self) -> Span {
        let read = self
            .line
            .words
            .iter()
            .take_while(|word| !word.text.is_empty())
            .count();
        let last = self.line.span_of(read.saturating_sub(1));
        Span {
            start: last.end,
            ..last
        }
    }
}

/// The index of a keyword's last occurrence among a server line's own parameters.
pub(super) fn own_keyword(line: &Line, row: Row<'_>, keyword: &str) -> Option<usize> {
    let settings = &row.server.settings;
    let span = match keyword {
        "agent-check" => settings.agent.enabled.from,
        "agent-addr" => settings.agent.address.as_ref().and_then(|one| one.from),
        "agent-port" => settings.agent.port.as_ref().and_then(|one| one.from),
        "agent-inter" => settings.agent.inter.from,
        "agent-send" => settings.agent.send.as_ref().and_then(|one| one.from),
        "slowstart" => settings.slowstart.as_ref().and_then(|one| one.from),
        _ => None,
    }?;
    let index = (0..line.words.len()).find(|at| line.span_of(*at).start == span.start)?;
    let on_this_line = (span.file, span.line) == (line.file, line.number);
    // The health check's `port` and `addr` can stand in for the agent's, but are not ours to change.
    (on_this_line && line.argument(index) == keyword).then_some(index)
}
