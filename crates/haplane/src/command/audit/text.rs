//! Findings for people: the place, the line with a caret, why and what to do.

use std::fmt::Write as _;

use anstyle::Style;
use haplane_core::audit::{Finding, Place, Severity};
use haplane_haproxy::cfg::Config;
use haplane_haproxy::forecast::{ForecastRow, Source};

use super::fold::Folded;
use super::{address_text, admin_word, place_of};
use crate::report::{BAD, Cell, FAINT, GOOD, NOTABLE, Table};

/// As much of a line as is shown around the place.
const SHOWN: usize = 120;

fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Error => BAD,
        Severity::Warning => NOTABLE,
        Severity::Note => FAINT,
    }
}

/// One finding, with an empty line behind it.
pub(super) fn finding(config: &Config, folded: &Folded<'_>) -> String {
    let finding = folded.first;
    let style = style_of(finding.severity);
    let word = finding.severity.as_str();
    let mut text = format!(
        "{style}{word}[{}]{style:#} {}\n",
        finding.rule, finding.message
    );
    let (file, line, column) = place_of(config, &finding.place);
    let place = match (file, line, column) {
        (Some(file), Some(line), Some(column)) => format!("{file}:{line}:{column}"),
        _ => "the process".to_owned(),
    };
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "  {FAINT}at{FAINT:#}  {place}");
    if let Place::Config(span) = &finding.place {
        let location = config.locate(*span);
        let number = location.line.to_string();
        let margin = " ".repeat(number.len());
        let (shown, before) = window(&location.text, location.column as usize - 1);
        let width = (location.width as usize)
            .min(SHOWN.saturating_sub(before.chars().count()))
            .max(1);
        let indent: String = before
            .chars()
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let _ = writeln!(text, "      {FAINT}{number} |{FAINT:#} {shown}");
        let _ = writeln!(
            text,
            "      {FAINT}{margin} |{FAINT:#} {indent}{style}{}{style:#}",
            "^".repeat(width)
        );
    }
    if let Some(others) = folded.others() {
        let _ = writeln!(text, "  {FAINT}and{FAINT:#} {others}");
    }
    let _ = writeln!(text, "  {FAINT}why{FAINT:#} {}", finding.reason);
    let _ = writeln!(text, "  {FAINT}fix{FAINT:#} {}", finding.fix);
    text
}

/// The part of a long line that holds the column, and what stands before it there.
fn window(line: &str, column: usize) -> (String, String) {
    let start = if column < SHOWN {
        0
    } else {
        column - SHOWN / 2
    };
    let printable = |c: char| {
        if c.is_control() && c != '\t' {
            '\u{fffd}'
        } else {
            c
        }
    };
    let shown: String = line
        .chars()
        .skip(start)
        .take(SHOWN)
        .map(printable)
        .collect();
    let before: String = shown.chars().take(column.saturating_sub(start)).collect();
    (shown, before)
}

/// `2 errors, 1 warning, no notes`.
pub(super) fn summary(findings: &[Finding]) -> String {
    let count = |severity: Severity| {
        let number = findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count();
        let style = if number > 0 { style_of(severity) } else { GOOD };
        match number {
            0 => format!("no {}s", severity.as_str()),
            1 => format!("{style}1 {}{style:#}", severity.as_str()),
            _ => format!("{style}{number} {}s{style:#}", severity.as_str()),
        }
    };
    format!(
        "{}, {}, {}",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Note)
    )
}

/// What each row will be after a reload; what comes from the state file is marked.
pub(super) fn forecast_table(forecasts: &[ForecastRow]) -> Table {
    let mut table = Table::new(&[
        "row",
        "address",
        "port",
        "check port",
        "agent",
        "weight",
        "admin",
    ]);
    for row in forecasts {
        let agent = match (&row.agent_address.value, row.agent_port.value) {
            (Some(address), Some(port)) => format!("{address}:{port}"),
            (None, Some(port)) => format!(":{port}"),
            _ => String::new(),
        };
        let agent_source = match (row.agent_address.source, row.agent_port.source) {
            (Source::Config, Source::Config) => Source::Config,
            _ => Source::StateFile,
        };
        let check_port = row
            .check_port
            .value
            .map(|port| port.to_string())
            .unwrap_or_default();
        table.push(vec![
            row.row.to_string().into(),
            marked(
                row.address.source,
                address_text(&row.address.value).unwrap_or_default(),
            ),
            marked(row.port.source, row.port.value.to_string()),
            marked(row.check_port.source, check_port),
            marked(agent_source, agent),
            marked(row.weight.source, row.weight.value.to_string()),
            marked(row.admin.source, admin_word(row.admin.value).to_owned()),
        ]);
    }
    table
}

/// A cell; a star marks what the state file says.
fn marked(source: Source, text: String) -> Cell {
    match source {
        Source::StateFile if !text.is_empty() => Cell::styled(format!("{text}*"), NOTABLE),
        _ => text.into(),
    }
}
