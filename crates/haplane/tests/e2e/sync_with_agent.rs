//! The whole of it: a store, an agent, a synchroniser and a real HAProxy. What is desired of an instance holds in
//! whatever slot it sits.

use std::process::Command;
use std::time::Duration;

use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use haplane_testkit::traffic::{Traffic, send};

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::command::Haplane;

struct Stage {
    haproxy: Haproxy,
    frontend: Port,
    agent: Agent,
    haplane: Haplane,
    _sync: Process,
}

impl Stage {
    async fn new(store: &str, dir: &std::path::Path) -> Self {
        let haplane = Haplane::on(store);
        haplane.run(&["init"]).exits(0);
        let agent = Launch::on(store).ready().await;
        let frontend = Port::reserve();
        let config = Config::new(&format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n retries 0\n\
             frontend in\n bind {}\n default_backend web\n\
             backend web\n balance roundrobin\n option httpchk GET /health\n\
             server-template web- 1-4 127.0.0.1:1 check inter 100ms rise 1 fall 1 disabled weight 100 \
             agent-check agent-addr 127.0.0.1 agent-port {} agent-inter 200ms agent-send \"@free\\n\"\n",
            frontend.address(),
            agent.checks().port()
        ));
        let haproxy = Haproxy::start(Version::V28, config).await;
        let toml = format!(
            "[sync]\nsocket = \"{}\"\nhttp = \"{}\"\nreconcile = \"300ms\"\nagent = \"{}\"\n\
             [[pool]]\nname = \"web\"\nbackend = \"web\"\nslots = \"web-\"\ngroups = [\"canary\"]\n\
             source = \"file:{}\"\nmax_removal = \"100%\"\nflap_window = \"off\"\n",
            haproxy.admin_socket().display(),
            Port::reserve().address(),
            agent.checks(),
            dir.join("hosts").display()
        );
        std::fs::write(dir.join("sync.toml"), toml).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_haplane"));
        command
            .env_clear()
            .arg("sync")
            .arg("--config")
            .arg(dir.join("sync.toml"));
        let sync = Process::spawn("haplane sync", command, &dir.join("sync.log"));
        Self {
            haproxy,
            frontend,
            agent,
            haplane,
            _sync: sync,
        }
    }

    /// The admin bits of the slot at this origin's address; none while no slot has it.
    async fn admin(&self, origin: &Origin) -> Option<i64> {
        let port = origin.address().port().to_string();
        let servers = self.haproxy.servers().await;
        let slot = servers.iter().find(|server| server.get("srv_port") == port);
        slot.map(|slot| slot.number("srv_admin_state") & 0b1001)
    }

    async fn becomes(&self, origin: &Origin, bits: i64) {
        eventually("the slot's admin state", PATIENCE, || async {
            let admin = self.admin(origin).await;
            if admin == Some(bits) {
                Ok(())
            } else {
                Err(admin)
            }
        })
        .await;
    }
}

fn list(dir: &std::path::Path, origins: &[&Origin]) {
    let lines: Vec<_> = origins
        .iter()
        .map(|origin| format!("{} id={}\n", origin.address(), origin.name()))
        .collect();
    std::fs::write(dir.join("next"), lines.concat()).unwrap();
    std::fs::rename(dir.join("next"), dir.join("hosts")).unwrap();
}

#[tokio::test]
async fn what_is_desired_of_an_instance_holds_wherever_it_sits() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("dir:{}", dir.path().join("state").display());
    let origins: Vec<_> = (0..4).map(|n| Origin::start(&format!("i{n}"))).collect();
    let [a, b, c, d] = [&origins[0], &origins[1], &origins[2], &origins[3]];
    let mut stage = Stage::new(&store, dir.path()).await;
    list(dir.path(), &[a, b, c]);
    for origin in [a, b, c] {
        stage.becomes(origin, 0).await;
    }
    eventually("all three serve", PATIENCE, || async {
        let shares = send(stage.frontend.address(), 6).await;
        if shares.of("i0") == 2 && shares.of("i2") == 2 {
            Ok(())
        } else {
            Err(shares)
        }
    })
    .await;

    // Drained by its key, and still drained after it left, another one came, and it came back elsewhere.
    stage
        .haplane
        .run(&["set", "web/i1", "drain", "--force"])
        .exits(0);
    stage.becomes(b, 8).await;
    let traffic = Traffic::start(stage.frontend.address(), 2, Duration::from_millis(2));
    let served = b.served();
    list(dir.path(), &[a, c]);
    eventually("it is out", PATIENCE, || async {
        let admin = stage.admin(b).await;
        if admin.is_none_or(|bits| bits == 1) {
            Ok(())
        } else {
            Err(admin)
        }
    })
    .await;
    list(dir.path(), &[a, c, d]);
    stage.becomes(d, 0).await;
    list(dir.path(), &[a, c, d, b]);
    stage.becomes(b, 8).await;

    // HAProxy restarts, and then the agent does: nothing else changes.
    stage.haproxy.restart().await;
    stage.becomes(b, 8).await;
    stage.becomes(a, 0).await;
    let launch = Launch::on(&store);
    stage.agent.replace(&launch);
    throughout("it stays drained", Duration::from_secs(1), || async {
        let admin = stage.admin(b).await;
        if admin == Some(8) { Ok(()) } else { Err(admin) }
    })
    .await;
    drop(traffic);
    assert_eq!(b.served(), served, "a drained instance was sent requests");

    // The group takes all of them out, and back; a free slot never opens.
    stage
        .haplane
        .run(&["set", "canary", "maint", "--force"])
        .exits(0);
    for origin in [a, c, d] {
        stage.becomes(origin, 1).await;
    }
    stage.becomes(b, 8).await;
    stage.haplane.run(&["clear", "canary", "web/i1"]).exits(0);
    for origin in [a, b, c, d] {
        stage.becomes(origin, 0).await;
    }
    list(dir.path(), &[a]);
    for origin in [b, c, d] {
        stage.becomes(origin, 1).await;
    }
    throughout("free slots stay out", Duration::from_secs(1), || async {
        let servers = stage.haproxy.servers().await;
        let open = servers
            .iter()
            .filter(|server| server.number("srv_admin_state") & 1 == 0)
            .count();
        if open == 1 { Ok(()) } else { Err(open) }
    })
    .await;
}
