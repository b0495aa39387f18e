//! The systemd units, as systemd itself judges and runs them.

use std::collections::BTreeSet;
use std::process::Command;

use crate::checkout::{block, files, path, succeed, text};
use crate::machine::Machine;
use crate::packages::package;

/// The exposure that a unit may have at most; 0 is none, 10 is all.
const EXPOSURE: f64 = 1.5;

fn units() -> Vec<String> {
    files("packaging/systemd", ".service")
}

#[test]
fn systemd_finds_every_unit_well_shut_in() {
    for unit in units() {
        let said = succeed(
            Command::new("systemd-analyze")
                .args(["security", "--offline=yes", "--no-pager"])
                .arg(path(&format!("packaging/systemd/{unit}"))),
        );
        let exposure: f64 = said
            .split("Overall exposure level for ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().nth(1))
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("no exposure in:\n{said}"));
        assert!(exposure < EXPOSURE, "{unit}: {exposure}\n{said}");
    }
}

/// `verify` wants the programs in their places, so it gets a folder that has them.
#[test]
fn systemd_understands_every_line_of_every_unit() {
    let root = tempfile::tempdir().unwrap();
    let units_folder = root.path().join("units");
    std::fs::create_dir(&units_folder).unwrap();
    for unit in units() {
        let text = text(&format!("packaging/systemd/{unit}"))
            .replace("/usr/bin/haplane", env!("CARGO_BIN_EXE_haplane"));
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with("Documentation="))
            .flat_map(|line| [line, "\n"])
            .collect();
        let file = units_folder.join(&unit);
        std::fs::write(&file, text).unwrap();
        let said = succeed(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no", "--recursive-errors=no"])
                .arg(&file),
        );
        assert_eq!(said, "", "{unit}");
    }
}

/// What a unit starts, the program has.
#[test]
fn every_unit_starts_a_command_that_there_is() {
    for unit in units() {
        let text = text(&format!("packaging/systemd/{unit}"));
        let started = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/haplane "))
            .unwrap_or_else(|| panic!("{unit} starts something else"));
        succeed(Command::new(env!("CARGO_BIN_EXE_haplane")).args([started, "--help"]));
    }
}

/// The first three commands of every runbook, each once, as for the site that `site.sh` makes.
fn typed_at_night() -> String {
    let commands: BTreeSet<String> = files("docs/runbooks", ".md")
        .iter()
        .flat_map(|page| {
            let page = text(&format!("docs/runbooks/{page}"));
            let (_, block) = page.split_once("```sh\n").unwrap();
            let block = block.split("```").next().unwrap();
            block.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .map(|line| {
            line.replace("BACKEND/SERVER", "web/a")
                .replace("BACKEND", "web")
        })
        .collect();
    commands.into_iter().map(|line| line + "\n").collect()
}

/// Consul, HAProxy with the drop-in that seeds it, agent, synchroniser and heartbeat, shut in as shipped
/// and with the documented tokens.
#[test]
fn a_whole_site_runs_under_its_units() {
    let machine = Machine::new();
    let built = package("1.0.0", machine.given());
    std::fs::rename(built, machine.given().join("haplane.deb")).unwrap();
    let credential = block(
        &text("docs/alerts.md"),
        "# systemctl edit haplane-heartbeat\n",
    );
    std::fs::write(machine.given().join("heartbeat.conf"), credential).unwrap();
    std::fs::write(machine.given().join("commands"), typed_at_night()).unwrap();
    machine.run("site.sh");
}

#[test]
fn the_drop_in_that_is_documented_is_the_one_that_is_shipped() {
    let shipped = text("packaging/systemd/haproxy.service.d/haplane-seed.conf");
    let (_, service) = shipped.split_once("[Service]").unwrap();
    let documented = block(
        &text("docs/reload.md"),
        "# /etc/systemd/system/haproxy.service.d/haplane-seed.conf\n",
    );
    let directives = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("Exec"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(directives(&documented), directives(service));
    assert!(!directives(service).is_empty());
}
