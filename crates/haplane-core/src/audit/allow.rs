//! `# haplane: allow RULE reason` on a line: one finding that an operator has looked at and keeps.

use std::collections::HashSet;

use haplane_haproxy::cfg::{Activity, Config, FileId, Line};

use super::{Finding, Findings, Place, Rule};

/// What a comment says after `# haplane:`.
pub(super) fn directive<'a>(config: &'a Config, line: &Line) -> Option<std::borrow::Cow<'a, str>> {
    let comment = config.comment(line);
    let at = comment.find("haplane:")?;
    let before = comment.get(..at)?;
    let is_mark = before.chars().all(|c| c == '#' || c.is_whitespace());
    is_mark.then(|| {
        comment
            .get(at + "haplane:".len()..)
            .unwrap_or_default()
            .trim()
            .to_owned()
            .into()
    })
}

/// Leaves out the findings that a comment allows, and adds one for each comment that allows
/// nothing.
pub(super) fn silence(config: &Config, findings: Vec<Finding>) -> Vec<Finding> {
    let mut used: HashSet<(FileId, u32, Rule)> = HashSet::new();
    let mut allowed: HashSet<(FileId, u32, Rule)> = HashSet::new();
    let mut result = Findings::default();
    for line in config
        .lines()
        .iter()
        .filter(|line| line.activity != Activity::Inactive)
    {
        let Some(directive) = directive(config, line) else {
            continue;
        };
        let Some(rest) = directive.strip_prefix("allow ") else {
            continue;
        };
        let (id, reason) = rest
            .trim()
            .split_once(char::is_whitespace)
            .unwrap_or((rest.trim(), ""));
        let place = Place::Config(line.span());
        match Rule::from_id(id) {
            None => {
                let message = format!("`# haplane: allow {id}` names no rule");
                result.add(
                    Rule::AllowUnused,
                    place,
                    None,
                    message,
                    "take the name of the rule from the finding",
                );
            }
            Some(_) if reason.is_empty() => {
                let message = format!("`# haplane: allow {id}` gives no reason");
                result.add(
                    Rule::AllowUnused,
                    place,
                    None,
                    message,
                    "say after the rule why the finding may stand",
                );
            }
            Some(rule) => {
                allowed.insert((line.file, line.number, rule));
            }
        }
    }
    for finding in findings {
        let key = match &finding.place {
            Place::Config(span) => Some((span.file, span.line, finding.rule)),
            Place::StateFile { .. } | Place::Process => None,
        };
        match key.filter(|key| allowed.contains(key)) {
            Some(key) => {
                used.insert(key);
            }
            None => result.0.push(finding),
        }
    }
    for line in config.lines().iter().filter(|_| !allowed.is_empty()) {
        for rule in Rule::ALL {
            let key = (line.file, line.number, *rule);
            if allowed.contains(&key) && !used.contains(&key) {
                let message = format!("`# haplane: allow {rule}` silences nothing here");
                result.add(
                    Rule::AllowUnused,
                    Place::Config(line.span()),
                    None,
                    message,
                    "take the comment out",
                );
            }
        }
    }
    result.0
}
