//! The alert rules, as Prometheus itself understands them.

use std::collections::BTreeSet;
use std::process::Command;

use haplane_testkit::peers::Peer;

use crate::checkout::{files, path, succeed, text};

/// The values of all lines `key: value` of a YAML file that we wrote ourselves, one a line.
fn values(yaml: &str, key: &str) -> Vec<String> {
    yaml.lines()
        .map(|line| line.trim_start().trim_start_matches("- "))
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
        .map(str::to_owned)
        .collect()
}

fn rules() -> String {
    let files = files("alerts", ".rules.yml");
    files
        .iter()
        .map(|file| text(&format!("alerts/{file}")))
        .collect()
}

#[test]
fn prometheus_takes_every_rule_and_every_case_holds() {
    let promtool = || {
        let mut command = Command::new(Peer::Promtool.program());
        command.current_dir(path("alerts"));
        command
    };
    succeed(
        promtool()
            .args(["check", "rules", "--lint-fatal"])
            .args(files("alerts", ".rules.yml")),
    );
    succeed(
        promtool()
            .args(["test", "rules"])
            .args(files("alerts", ".test.yml")),
    );
}

#[test]
fn each_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases: String = files("alerts", ".test.yml")
        .iter()
        .map(|file| text(&format!("alerts/{file}")))
        .collect();
    let firing: BTreeSet<_> = values(&cases, "alertname").into_iter().collect();
    let alerts = values(&rules(), "alert");
    assert_eq!(firing, alerts.iter().cloned().collect());
    for alert in alerts {
        let silent = format!("{{alertname: {alert}, ");
        let silent = cases
            .lines()
            .filter(|line| line.contains(&silent) && line.contains("exp_alerts: []"));
        assert_ne!(silent.count(), 0, "{alert} has no case that stays silent");
    }
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() {
    let rules = rules();
    let alerts = values(&rules, "alert");
    let pages: Vec<_> = alerts
        .iter()
        .map(|alert| format!("docs/runbooks/{alert}.md"))
        .collect();
    assert_eq!(values(&rules, "runbook"), pages);
    assert_eq!(
        values(&rules, "summary").len(),
        alerts.len(),
        "a summary for each alert"
    );
    let mut named: Vec<_> = alerts.iter().map(|alert| format!("{alert}.md")).collect();
    named.sort();
    assert_eq!(files("docs/runbooks", ".md"), named);
    for (alert, page) in alerts.iter().zip(pages) {
        let page = text(&page);
        for part in [
            &format!("# {alert}\n"),
            "## What it means\n",
            "## First three commands\n",
            "## Causes and fixes\n",
        ] {
            assert!(page.contains(part), "the page of {alert} lacks {part:?}");
        }
        let commands = page.split("```").nth(1).expect("a block of commands");
        assert_eq!(
            commands.trim().lines().skip(1).count(),
            3,
            "commands of {alert}"
        );
    }
}

/// An alert whose metric is gone never fires. So what the agents' alerts rest on is itself watched.
#[test]
fn the_dead_man_watches_every_gauge_that_an_alert_on_agents_rests_on() {
    let rules = text("alerts/haplane.rules.yml");
    let (watched, dead_man) = rules.split_once("haplane-dead-man").unwrap();
    let (dead_man, _) = dead_man.split_once("HaplaneAgentsVanished").unwrap();
    for metric in crate::checkout::metric_names(watched) {
        // Counters and histograms may exist only once something was counted; haplane_haproxy_up
        // only where a socket is configured.
        let always = !metric.ends_with("_total") && !metric.ends_with("_bucket");
        if always && metric != "haplane_haproxy_up" {
            let absent = format!("absent({metric}{{");
            assert!(
                dead_man.contains(&absent),
                "the dead-man's rule does not watch {metric}"
            );
        }
    }
}
