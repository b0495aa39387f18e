//! The Debian package: what is in it, and its life on a machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::checkout::{path, succeed};
use crate::machine::Machine;

/// Packs the program under test.
pub(crate) fn package(version: &str, folder: &Path) -> PathBuf {
    let said = succeed(
        Command::new(path("scripts/package"))
            .args(["deb", env!("CARGO_BIN_EXE_haplane")])
            .arg(folder)
            .env("HAPLANE_VERSION", version)
            .env("HAPLANE_COMPRESSION", "0"),
    );
    said.trim().into()
}

#[test]
fn the_package_installs_upgrades_is_removed_and_purged() {
    let machine = Machine::new();
    let first = package("1.0.0", machine.given());
    let second = package("1.0.1", machine.given());
    let listed = succeed(Command::new("dpkg-deb").arg("--contents").arg(&first));
    for file in [
        "./usr/lib/systemd/system/haplane-agent.service",
        "./usr/share/man/man1/haplane-agent.1.gz",
        "./usr/share/bash-completion/completions/haplane",
        "./usr/share/haplane/consul-acl/agent.hcl",
        "./usr/share/haplane/alerts/haplane.rules.yml",
        "./usr/share/doc/haplane/docs/runbooks/HaplaneStoreStale.md",
        "./usr/share/doc/haplane/copyright",
    ] {
        assert!(listed.contains(file), "{file} is not in:\n{listed}");
    }
    assert!(
        listed.lines().all(|line| line.contains(" root/root ")),
        "{listed}"
    );

    std::fs::rename(first, machine.given().join("first.deb")).unwrap();
    std::fs::rename(second, machine.given().join("second.deb")).unwrap();
    machine.run("package_life.sh");
}
