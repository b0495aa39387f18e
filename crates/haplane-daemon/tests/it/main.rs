//! The configuration's reference and the code say the same.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

use std::collections::{BTreeMap, BTreeSet};

use haplane_daemon::settings::KEYS;
use haplane_daemon::{Document, Settings};

/// The rows of the reference whose first cell is a key.
fn documented() -> BTreeMap<String, Vec<String>> {
    let page = include_str!("../../../../docs/agent.md");
    let (_, reference) = page.split_once("## Configuration").unwrap();
    let rows = reference.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        (cells[1].trim_matches('`').to_owned(), cells)
    })
    .collect()
}

#[test]
fn every_key_of_the_code_is_documented_and_every_documented_key_exists() {
    let document = Document::parse("", "[env.NAME]\n", Vec::new());
    Settings::read(&document, |_| None);
    let inherited = |key: &str| {
        let key = key.strip_prefix("env.NAME.");
        key.is_some_and(|key| !matches!(key, "confirm" | "dashboard" | "agents"))
    };
    let asked: BTreeSet<String> = document
        .asked()
        .into_iter()
        .filter(|key| !inherited(key))
        .collect();
    let documented: BTreeSet<String> = documented().into_keys().collect();
    assert_eq!(asked, documented);
}

#[test]
fn flags_and_variables_are_as_documented() {
    let documented = documented();
    for doc in &KEYS {
        let cells = &documented[doc.key];
        assert_eq!(cells[3], format!("`--{}`", doc.flag), "{}", doc.key);
        assert_eq!(cells[4], format!("`{}`", doc.variable), "{}", doc.key);
    }
    let with_flag = documented
        .values()
        .filter(|cells| cells[3].starts_with("`--"))
        .count();
    assert_eq!(with_flag, KEYS.len());
}

#[test]
fn defaults_are_as_documented() {
    let document = Document::parse("", "", Vec::new());
    Settings::read(&document, |_| None);
    let documented = documented();
    for effective in document.effective() {
        let value = effective
            .value
            .trim_matches('"')
            .trim_end_matches('/')
            .to_owned();
        assert_eq!(
            documented[&effective.key][2],
            format!("`{value}`"),
            "{}",
            effective.key
        );
    }
}
