//! The Debian package: what is in it, and its life on a machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use haplane_testkit::ports::Port;
use tempfile::TempDir;

use crate::checkout::{path, succeed};

fn package(version: &str, folder: &Path) -> PathBuf {
    let said = succeed(
        Command::new(path("scripts/package"))
            .args(["deb", env!("CARGO_BIN_EXE_haplane")])
            .arg(folder)
            .env("HAPLANE_VERSION", version)
            .env("HAPLANE_COMPRESSION", "0"),
    );
    said.trim().into()
}

/// On this very machine, but seen through a layer that is thrown away: dpkg, its database, users
/// and folders are the real ones.
#[test]
fn the_package_installs_upgrades_is_removed_and_purged() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (
        package("1.0.0", folder.path()),
        package("1.0.1", folder.path()),
    );
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

    let layer = TempDir::new().unwrap();
    let (checks, http) = (Port::reserve(), Port::reserve());
    succeed(
        Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "sh", "-eu"])
            .arg(path("crates/haplane/tests/product/package_life.sh"))
            .arg(layer.path())
            .args([first, second])
            .args([checks.address().to_string(), http.address().to_string()]),
    );
}
