//! The Kubernetes manifests: rendered, validated, and what they say to haplane and HAProxy tried.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use haplane_daemon::settings::KEYS;
use haplane_testkit::agent_peer::ask;
use haplane_testkit::eventually::eventually;
use haplane_testkit::peers::Peer;

use crate::agent::Agent;
use crate::checkout::{path, succeed, text};
use crate::command::Haplane;

const VARIANTS: [&str; 2] = ["configmap", "consul"];

fn rendered(variant: &str) -> String {
    succeed(
        Command::new(Peer::Kubectl.program())
            .arg("kustomize")
            .arg(path(&format!("packaging/kubernetes/{variant}"))),
    )
}

/// 1.29 is the first with native sidecars.
#[test]
fn kubernetes_takes_every_manifest() {
    let folder = tempfile::tempdir().unwrap();
    for variant in VARIANTS {
        let file = folder.path().join(format!("{variant}.yaml"));
        std::fs::write(&file, rendered(variant)).unwrap();
        for version in ["1.29", "1.33"] {
            succeed(
                Command::new(Peer::KubernetesValidate.program())
                    .args(["--strict", "--quiet", "-k", version])
                    .arg(&file),
            );
        }
    }
}

#[test]
fn no_container_has_more_rights_than_it_needs() {
    for variant in VARIANTS {
        let manifests = rendered(variant);
        let containers = manifests.matches("image: ").count();
        assert_eq!(containers, 3, "agent, seed and HAProxy");
        for (line, times) in [
            ("readOnlyRootFilesystem: true", containers),
            ("allowPrivilegeEscalation: false", containers),
            ("drop:", containers),
            ("- ALL", containers),
            ("memory: ", containers * 2),
            ("runAsNonRoot: true", 1),
            ("automountServiceAccountToken: false", 1),
            ("type: RuntimeDefault", 1),
            ("restartPolicy: Always", 1),
            ("path: /readyz", 1),
        ] {
            let found = manifests.matches(line).count();
            assert_eq!(found, times, "{variant}: {line}\n{manifests}");
        }
        assert!(!manifests.contains("privileged: true"));
    }
}

#[test]
fn every_variable_and_every_command_in_them_is_haplanes() {
    let mut known: BTreeSet<&str> = KEYS.iter().map(|key| key.variable).collect();
    known.extend(["HAPLANE_CONFIG", "HAPLANE_LOG", "HAPLANE_LOG_FORMAT"]);
    for variant in VARIANTS {
        let manifests = rendered(variant);
        let variables = manifests
            .lines()
            .filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("name: "))
            .filter(|name| name.starts_with("HAPLANE_"));
        for variable in variables {
            assert!(known.contains(variable), "{variant}: {variable}");
        }
    }
    for command in ["agent", "seed"] {
        succeed(Command::new(env!("CARGO_BIN_EXE_haplane")).args([command, "--help"]));
    }
}

#[test]
fn haproxy_takes_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("haproxy.cfg");
    let config = text("packaging/kubernetes/base/haproxy.cfg");
    let run = folder.path().to_str().unwrap();
    std::fs::write(&file, config.replace("/run/haproxy", run)).unwrap();
    std::fs::write(folder.path().join("haplane.state"), "1\n").unwrap();
    for peer in [Peer::Haproxy28, Peer::Haproxy26] {
        succeed(Command::new(peer.program()).arg("-c").arg("-f").arg(&file));
    }
}

/// A ConfigMap as the kubelet mounts it: files that are links into `..data`, a link that is
/// swapped as a whole.
#[tokio::test]
async fn the_agent_follows_a_config_map() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = folder.path().join("state");
    let version = |name: &str, files: &[(&str, &str)]| {
        let data = mounted.join(name);
        std::fs::create_dir_all(&data).unwrap();
        for (file, text) in files {
            std::fs::write(data.join(file), text).unwrap();
        }
        symlink(name, mounted.join("..tmp")).unwrap();
        std::fs::rename(mounted.join("..tmp"), mounted.join("..data")).unwrap();
    };
    version("..1", &[(".haplane", "kubernetes")]);
    symlink("..data/.haplane", mounted.join(".haplane")).unwrap();
    let agent = Agent::start(&Haplane::on(format!("dir:{}", mounted.display()))).await;
    let answer = async || {
        let answer = ask(agent.checks.address(), b"web/web-cny canary\n").await;
        String::from_utf8(answer.unwrap()).unwrap()
    };
    assert_eq!(answer().await, "ready 100%\n");

    version("..2", &[(".haplane", "kubernetes"), ("canary", "drain")]);
    symlink("..data/canary", mounted.join("canary")).unwrap();
    std::fs::remove_dir_all(mounted.join("..1")).unwrap();
    eventually(
        "canary drains",
        Duration::from_secs(10),
        async || match answer().await.as_str() {
            "drain\n" => Ok(()),
            other => Err(other.to_owned()),
        },
    )
    .await;
}
