//! The running process against the files: what somebody changed at run time, and what was not reloaded.

use std::collections::{HashMap, HashSet};

use haplane_haproxy::RowKey;
use haplane_haproxy::cfg::{Activity, Address, Row, Sourced};
use haplane_haproxy::server_state::{AdminBits, ServerRow};

use super::{Findings, Looked, Place, Rule};

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    let Some(running) = looked.subject.running else {
        return;
    };
    let mut unseen: HashMap<&RowKey, &ServerRow> =
        running.iter().map(|row| (&row.row, row)).collect();
    let mut told: HashSet<RowKey> = HashSet::new();
    for row in looked.config().rows() {
        let Some(key) = row.key() else { continue };
        match unseen.remove(&key) {
            Some(shown) => compare(row, &key, shown, findings),
            // Of the branches of an undecided condition only some are in the running process.
            None if row.server.activity != Activity::Active || !told.insert(key.clone()) => {}
            None => {
                let message = format!("{key} is not in the running process");
                let place = Place::Config(row.server.span);
                let fix = "reload HAProxy, or look whether it reads other files";
                findings.add(Rule::RunningMissing, place, Some(key), message, fix);
            }
        }
    }
    let mut left: Vec<&RowKey> = unseen.into_keys().collect();
    left.sort();
    for key in left {
        let message =
            format!("{key} is in the running process only: added at run time, or not reloaded");
        let fix = "reload HAProxy, or add the server to the configuration: a reload forgets it";
        findings.add(
            Rule::RunningMissing,
            Place::Process,
            Some(key.clone()),
            message,
            fix,
        );
    }
}

fn compare(row: Row<'_>, key: &RowKey, shown: &ServerRow, findings: &mut Findings) {
    let mut add = |rule, message: String, fix: &str| {
        let place = Place::Config(row.server.span);
        findings.add(rule, place, Some(key.clone()), message, fix);
    };
    let differences = differences(row, shown);
    if !differences.is_empty() {
        let message = format!("{key} runs with {}", differences.join(", "));
        let fix = "put into the configuration what shall stay, or reload to forget it";
        add(Rule::RunningDiffers, message, fix);
    }
    if shown.check_status == 0 && shown.check.is_enabled() {
        let message = format!(
            "the health check of {key} has no result in the running process: a state file gave it the status 0"
        );
        let fix = "write a new state file with `haplane seed`, or load none, and reload";
        add(Rule::StateFileCheckStuck, message, fix);
    }
    if shown.agent.is_switched_off() {
        let message = format!("the agent check of {key} is switched off in the running process");
        let fix = format!("`enable agent {key}` on the admin socket");
        add(Rule::AgentDisabled, message, &fix);
    }
}

/// In what the running server differs from its line, each with both values.
fn differences(row: Row<'_>, shown: &ServerRow) -> Vec<String> {
    let settings = &row.server.settings;
    let (agent, check) = (&settings.agent, &settings.check);
    let mut differences = Vec::new();
    let mut compare = |what: &str, running: String, configured: String| {
        if running != configured {
            differences.push(format!("{what} {running} (configured: {configured})"));
        }
    };
    // A slot has its address from whoever filled it: that is what a template is for.
    if row.server.template.is_none() {
        if let (Address::Ip(configured), Some(address)) = (&row.server.address, shown.address) {
            compare("address", address.to_string(), configured.to_string());
        }
        if shown.port != row.server.port.shown() {
            compare("port", shown.port.to_string(), row.server.port.to_string());
        }
    }
    let weight = settings.weight.value.to_string();
    compare("configured weight", shown.iweight.to_string(), weight);
    if check.enabled.value && shown.check_port.is_some() {
        compare(
            "check port",
            show(shown.check_port),
            port(check.port.as_ref()),
        );
    }
    if agent.enabled.value && shown.agent_port.is_some() {
        compare(
            "agent port",
            show(shown.agent_port),
            port(agent.port.as_ref()),
        );
    }
    if let (Some(configured), Some(address)) = (&agent.address, shown.agent_address)
        && let Address::Ip(configured) = configured.value
        && agent.enabled.value
    {
        compare("agent address", address.to_string(), configured.to_string());
    }
    let is_asked = yes_no(shown.agent.is_configured());
    compare("agent-check", is_asked, yes_no(agent.enabled.value));
    let is_disabled = yes_no(shown.admin.contains(AdminBits::CMAINT));
    compare("disabled", is_disabled, yes_no(settings.disabled.value));
    differences
}

fn port(configured: Option<&Sourced<u16>>) -> String {
    show(configured.map(|port| port.value))
}

fn show(port: Option<u16>) -> String {
    port.map_or_else(|| "none".to_owned(), |port| port.to_string())
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}
