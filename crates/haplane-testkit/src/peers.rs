//! Where the real programs are. `scripts/peers` (`make peers`) fetches them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A real program that tests talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// HAProxy 2.8, the main target.
    Haproxy28,
    /// HAProxy 2.6, the oldest supported.
    Haproxy26,
    /// Consul 1.8.
    Consul,
    /// Prometheus's checker of rules, 2 or 3.
    Promtool,
    /// Kubernetes's client, for its `kustomize`.
    Kubectl,
    /// A checker of Kubernetes manifests.
    KubernetesValidate,
    /// A browser, from the machine's own packages.
    Chromium,
}

impl Peer {
    /// Its name under `.peers/bin/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Haproxy28 => "haproxy-2.8",
            Self::Haproxy26 => "haproxy-2.6",
            Self::Consul => "consul",
            Self::Promtool => "promtool",
            Self::Kubectl => "kubectl",
            Self::KubernetesValidate => "kubernetes-validate",
            Self::Chromium => "chromium",
        }
    }

    /// The environment variable that names the program.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Haproxy28 => "HAPLANE_HAPROXY_28",
            Self::Haproxy26 => "HAPLANE_HAPROXY_26",
            Self::Consul => "HAPLANE_CONSUL",
            Self::Promtool => "HAPLANE_PROMTOOL",
            Self::Kubectl => "HAPLANE_KUBECTL",
            Self::KubernetesValidate => "HAPLANE_KUBERNETES_VALIDATE",
            Self::Chromium => "HAPLANE_CHROMIUM",
        }
    }

    /// The program: the one named by the environment, else the one in the right version
    /// on `PATH`, else the one in `.peers/bin/` of this checkout.
    ///
    /// Panics, with what to do, when there is none.
    pub fn program(self) -> PathBuf {
        if let Some(named) = std::env::var_os(self.variable()).filter(|path| !path.is_empty()) {
            return PathBuf::from(named);
        }
        self.on_path()
            .or_else(|| self.fetched())
            .unwrap_or_else(|| {
                panic!(
                    "no {} here: run `make peers`, or set {}",
                    self.name(),
                    self.variable()
                )
            })
    }

    fn on_path(self) -> Option<PathBuf> {
        let file = self.name().split('-').next()?;
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|folder| folder.join(file))
            .find(|program| self.is(program))
    }

    fn fetched(self) -> Option<PathBuf> {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|folder| folder.join(".peers/bin").join(self.name()))
            .find(|program| program.exists())
    }

    /// Whether the program says that it is this peer.
    fn is(self, program: &Path) -> bool {
        let version = match self {
            Self::Promtool | Self::Chromium => "--version",
            _ => "-v",
        };
        let said = Command::new(program)
            .arg(version)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let Ok(said) = said else { return false };
        let said = String::from_utf8_lossy(&said.stdout).replace("HA-Proxy", "HAProxy");
        let versions: &[&str] = match self {
            Self::Haproxy28 => &["HAProxy version 2.8."],
            Self::Haproxy26 => &["HAProxy version 2.6."],
            Self::Consul => &["Consul v1.8."],
            Self::Promtool => &["promtool, version 2.", "promtool, version 3."],
            // `scripts/peers` has looked, and linked the right one.
            Self::Kubectl | Self::KubernetesValidate => &[],
            Self::Chromium => &["Chromium "],
        };
        versions.iter().any(|version| said.starts_with(version))
    }
}
