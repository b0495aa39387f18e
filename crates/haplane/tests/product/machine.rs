//! A machine of its own for one script, with systemd as its process 1: what the package and the
//! units do there is what they do on a real one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::checkout::path;

/// A machine that is not yet booted. It is this one, seen through a layer that is thrown away, with
/// a network of loopback alone.
pub(crate) struct Machine {
    /// Seen as `/given` there.
    given: TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let given = tempfile::tempdir().unwrap();
        fs::copy(in_machine("words.sh"), given.path().join("words.sh")).unwrap();
        Self { given }
    }

    /// The folder that is `/given` there.
    pub(crate) fn given(&self) -> &Path {
        self.given.path()
    }

    /// Boots, runs a script of `machine/` as root, and gives what it said; panics with it when the
    /// script fails.
    #[track_caller]
    pub(crate) fn run(self, script: &str) -> String {
        fs::copy(in_machine(script), self.given().join("script")).unwrap();
        let layer = tempfile::tempdir().unwrap();
        let boot = as_root("sh")
            .arg(in_machine("boot.sh"))
            .arg("enter")
            .arg(layer.path())
            .arg(self.given())
            .arg(path(".peers"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = fs::read_to_string(self.given().join("said")).unwrap_or_default();
        let errors = String::from_utf8_lossy(&boot.stderr);
        assert!(boot.status.success(), "{script}: {said}\n{errors}");
        said
    }
}

fn in_machine(file: &str) -> std::path::PathBuf {
    path("crates/haplane/tests/product/machine").join(file)
}

/// Namespaces, layers and packages need root.
pub(crate) fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}
