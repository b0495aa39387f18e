//! Findings in SARIF 2.1.0, for code-scanning pages.

use haplane_core::audit::{Finding, Place, Rule, Severity};
use haplane_haproxy::cfg::Config;
use serde_json::{Value, json};

/// The whole document.
pub(super) fn document(config: &Config, findings: &[Finding]) -> Value {
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "haplane audit",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": Rule::ALL.iter().map(|rule| rule_json(*rule)).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": findings.iter().map(|finding| result(config, finding)).collect::<Vec<_>>(),
        }],
    })
}

/// SARIF's word for a severity happens to be ours.
fn level(severity: Severity) -> &'static str {
    severity.as_str()
}

fn rule_json(rule: Rule) -> Value {
    json!({
        "id": rule.id(),
        "shortDescription": { "text": rule.reason() },
        "defaultConfiguration": { "level": level(rule.severity()) },
    })
}

fn result(config: &Config, finding: &Finding) -> Value {
    let region = match &finding.place {
        Place::Config(span) => {
            let location = config.locate(*span);
            let end = location.column.saturating_add(location.width);
            let region = json!({ "startLine": location.line, "startColumn": location.column, "endColumn": end });
            Some((location.file, region))
        }
        Place::StateFile { name, line } => Some((name.clone(), json!({ "startLine": line }))),
        Place::Process => None,
    };
    let locations: Vec<Value> = region
        .into_iter()
        .map(|(file, region)| json!({ "physicalLocation": { "artifactLocation": { "uri": file }, "region": region } }))
        .collect();
    json!({
        "ruleId": finding.rule.id(),
        "level": level(finding.severity),
        "message": { "text": format!("{}. {} Fix: {}.", finding.message, finding.reason, finding.fix) },
        "locations": locations,
    })
}
