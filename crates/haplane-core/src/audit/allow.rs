//! `# haplane: allow RULE reason` on a line: one finding that an operator has looked at and keeps.

use std::collections::BTreeMap;

use haplane_haproxy::cfg::{Activity, Config, FileId, Line, Span};

use super::{Finding, Findings, Place, Rule};

/// What a comment says after `# haplane:`.
pub(super) fn directive(config: &Config, line: &Line) -> Option<String> {
    let comment = config.comment(line);
    let (before, directive) = comment.split_once("haplane:")?;
    let is_mark = before.chars().all(|c| c == '#' || c.is_whitespace());
    is_mark.then(|| directive.trim().to_owned())
}

/// The comments that allow something, by their line and by what they allow there.
type Allowances = BTreeMap<(FileId, u32, Rule), Allowance>;

struct Allowance {
    place: Span,
    is_used: bool,
}

/// Leaves out the findings that a comment allows, and adds one for each comment that allows
/// nothing.
pub(super) fn silence(config: &Config, findings: Vec<Finding>) -> Vec<Finding> {
    let mut result = Findings::default();
    let mut allowances = allowances(config, &mut result);
    for finding in findings {
        let allowance = match &finding.place {
            Place::Config(span) => allowances.get_mut(&(span.file, span.line, finding.rule)),
            Place::StateFile { .. } | Place::Process => None,
        };
        match allowance {
            Some(allowance) => allowance.is_used = true,
            None => result.0.push(finding),
        }
    }
    let unused = allowances.iter().filter(|(_, one)| !one.is_used);
    for ((_, _, rule), allowance) in unused {
        let message = format!("`# haplane: allow {rule}` silences nothing here");
        vain(
            &mut result,
            allowance.place,
            message,
            "take the comment out",
        );
    }
    result.0
}

/// What the comments allow. One that cannot be understood is a finding.
fn allowances(config: &Config, findings: &mut Findings) -> Allowances {
    let mut allowances = Allowances::new();
    let lines = config.lines().iter();
    for line in lines.filter(|line| line.activity != Activity::Inactive) {
        let directive = directive(config, line).unwrap_or_default();
        let Some(allowed) = directive.strip_prefix("allow ").map(str::trim) else {
            continue;
        };
        let (id, reason) = allowed
            .split_once(char::is_whitespace)
            .unwrap_or((allowed, ""));
        let place = line.span();
        match Rule::from_id(id) {
            None => {
                let message = format!("`# haplane: allow {id}` names no rule");
                vain(
                    findings,
                    place,
                    message,
                    "take the name of the rule from the finding",
                );
            }
            Some(_) if reason.is_empty() => {
                let message = format!("`# haplane: allow {id}` gives no reason");
                vain(
                    findings,
                    place,
                    message,
                    "say after the rule why the finding may stand",
                );
            }
            Some(rule) => {
                let is_used = false;
                let allowance = Allowance { place, is_used };
                allowances.insert((line.file, line.number, rule), allowance);
            }
        }
    }
    allowances
}

fn vain(findings: &mut Findings, place: Span, message: String, fix: &str) {
    findings.add(Rule::AllowUnused, Place::Config(place), None, message, fix);
}
