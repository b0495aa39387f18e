//! One thing wrong with many rows is told once: a `default-server` line can be wrong for a thousand rows, and a backend
//! can lack one word on each of its lines.

use std::collections::HashMap;

use haplane_core::audit::{Finding, Place, Rule, Severity};
use haplane_haproxy::cfg::Span;

/// As many rows are named.
const NAMED: usize = 8;

/// A finding, and those that say the same of other rows.
pub(super) struct Folded<'a> {
    pub(super) first: &'a Finding,
    others: Vec<&'a Finding>,
}

/// What makes two findings one: the same to do, in one place or in one backend.
#[derive(PartialEq, Eq, Hash)]
struct Same<'a> {
    rule: Rule,
    severity: Severity,
    fix: &'a str,
    r#where: Where<'a>,
}

#[derive(PartialEq, Eq, Hash)]
enum Where<'a> {
    Place(Span),
    Backend(&'a str),
}

/// In the order in which they first occur.
pub(super) fn folded(findings: &[Finding]) -> Vec<Folded<'_>> {
    let mut told: Vec<Folded<'_>> = Vec::new();
    let mut seen: HashMap<Same<'_>, usize> = HashMap::new();
    for finding in findings {
        let keys = sames(finding);
        let known = keys.iter().find_map(|same| seen.get(same).copied());
        let index = known.unwrap_or(told.len());
        match told.get_mut(index) {
            Some(folded) => folded.others.push(finding),
            None => told.push(Folded {
                first: finding,
                others: Vec::new(),
            }),
        }
        for same in keys {
            seen.entry(same).or_insert(index);
        }
    }
    told
}

/// A finding that is about no row is like no other.
fn sames(finding: &Finding) -> Vec<Same<'_>> {
    let Some(row) = &finding.row else {
        return Vec::new();
    };
    let place = match &finding.place {
        Place::Config(span) => Some(Where::Place(*span)),
        _ => None,
    };
    let backend = Where::Backend(row.backend.as_str());
    place
        .into_iter()
        .chain([backend])
        .map(|r#where| Same {
            rule: finding.rule,
            severity: finding.severity,
            fix: &finding.fix,
            r#where,
        })
        .collect()
}

impl Folded<'_> {
    /// `99 more: web/b, web/c, …`, if there are any.
    pub(super) fn others(&self) -> Option<String> {
        let names: Vec<String> = self
            .others
            .iter()
            .take(NAMED)
            .filter_map(|other| other.row.as_ref().map(ToString::to_string))
            .collect();
        let ellipsis = if self.others.len() > names.len() {
            ", …"
        } else {
            ""
        };
        let count = self.others.len();
        (count > 0).then(|| format!("{count} more: {}{ellipsis}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use haplane_core::audit::{Subject, audit};
    use haplane_haproxy::cfg::{Config, Context, SourceFile};
    use haplane_haproxy::forecast::StateFiles;

    use super::*;

    fn told(text: &str) -> Vec<(String, Option<String>)> {
        let files = vec![SourceFile::new("haproxy.cfg", text)];
        let config = Config::parse(files, &Context::default());
        let findings = audit(&Subject {
            config: &config,
            files: &StateFiles::default(),
            global_file: None,
            running: None,
            version: None,
        });
        let folded = folded(&findings);
        let one = |one: &Folded<'_>| {
            (
                format!("{}: {}", one.first.rule, one.first.message),
                one.others(),
            )
        };
        folded
            .iter()
            .map(one)
            .filter(|(what, _)| what.starts_with("no-slowstart"))
            .collect()
    }

    #[test]
    fn a_backend_and_a_line_are_told_once() {
        let server = |name: &str, backend: &str| {
            format!(
                "  server {name} 192.0.2.1:80 weight 100 agent-check agent-port 9777 agent-send \"{backend}/{name}\\n\"\n"
            )
        };
        let mut text = "backend a\n".to_owned();
        for number in 0..11 {
            text += &server(&format!("s{number}"), "a");
        }
        text += "backend b\n";
        text += &server("s0", "b");
        let all = told(&text);
        assert_eq!(all.len(), 2, "{all:#?}");
        let others = "10 more: a/s1, a/s2, a/s3, a/s4, a/s5, a/s6, a/s7, a/s8, …";
        assert_eq!(all[0].1.as_deref(), Some(others));
        assert!(all[1].0.contains("b/s0"), "{all:#?}");
        assert_eq!(all[1].1, None);
    }
}
