//! `haplane sync` and `haplane slots` as an operator uses them, beside a real HAProxy.

use std::path::PathBuf;
use std::process::Command;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use serde_json::{Value, json};

use crate::agent_process::PATIENCE;
use crate::command::{Haplane, Run};

struct Stage {
    haproxy: Haproxy,
    dir: tempfile::TempDir,
    http: Port,
}

impl Stage {
    async fn new(slots: usize) -> Self {
        let config = Config::new(&format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
             backend web\n server-template web- 1-{slots} 127.0.0.1:1 disabled weight 100\n"
        ));
        let stage = Self {
            haproxy: Haproxy::start(Version::V28, config).await,
            dir: tempfile::tempdir().unwrap(),
            http: Port::reserve(),
        };
        let toml = format!(
            "[sync]\nsocket = \"{}\"\nhttp = \"{}\"\nreconcile = \"200ms\"\nagent = \"\"\n\
             [[pool]]\nname = \"web-a\"\nbackend = \"web\"\nslots = \"web-\"\nsource = \"file:{}\"\n",
            stage.haproxy.admin_socket().display(),
            stage.http.address(),
            stage.hosts().display()
        );
        std::fs::write(stage.config(), toml).unwrap();
        stage
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("haplane.toml")
    }

    fn hosts(&self) -> PathBuf {
        self.dir.path().join("web.hosts")
    }

    fn list(&self, text: &str) {
        let next = self.dir.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.hosts()).unwrap();
    }

    fn list_numbers(&self, numbers: std::ops::Range<u8>) {
        let lines: Vec<_> = numbers
            .map(|n| format!("10.0.0.{n}:80 id=i{n}\n"))
            .collect();
        self.list(&lines.concat());
    }

    fn run(&self, words: &[&str]) -> Run {
        let config = self.config();
        let words: Vec<_> = words
            .iter()
            .copied()
            .chain(["--config", config.to_str().unwrap()])
            .collect();
        Haplane::on("dir:/nowhere").run(&words)
    }

    fn start(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haplane"));
        command
            .env_clear()
            .arg("sync")
            .arg("--config")
            .arg(self.config());
        Process::spawn("haplane sync", command, &self.dir.path().join("sync.log"))
    }
}

fn kinds(pool: &Value) -> Vec<String> {
    let steps = pool["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| {
            format!(
                "{} {}",
                step["kind"].as_str().unwrap(),
                step["instance"].as_str().unwrap_or("-")
            )
        })
        .collect()
}

#[tokio::test]
async fn plan_once_and_plan_again() {
    let stage = Stage::new(3).await;
    stage.list_numbers(1..3);
    let plan = stage.run(&["sync", "--plan", "--json"]).exits(0).json();
    assert_eq!(kinds(&plan["pools"][0]), ["fill i1", "fill i2"]);
    assert!(
        plan["pools"][0]["steps"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("discovery lists it")
    );
    assert_eq!(
        (&plan["pools"][0]["pool"], &plan["pools"][0]["held"]),
        (&json!("web-a"), &Value::Null)
    );
    // A plan changes nothing.
    assert!(
        stage
            .haproxy
            .servers()
            .await
            .iter()
            .all(|server| server.get("srv_port") == "1")
    );

    let done = stage.run(&["sync", "--once", "--json"]).exits(0).json();
    assert_eq!(kinds(&done["pools"][0]), ["fill i1", "fill i2"]);
    let rotation = |servers: Vec<haplane_testkit::records::Record>| {
        servers
            .iter()
            .filter(|server| server.number("srv_admin_state") & 1 == 0)
            .count()
    };
    assert_eq!(rotation(stage.haproxy.servers().await), 2);
    for words in [["sync", "--plan", "--json"], ["sync", "--once", "--json"]] {
        let again = stage.run(&words).exits(0).json();
        assert_eq!(again["pools"][0]["steps"], json!([]), "{words:?}");
    }
    let text = stage.run(&["sync", "--plan"]).exits(0).stdout;
    assert_eq!(text, "web-a: in line, nothing to do\n");

    // More than fits: frees before it fills, serves what fits, and says who has none.
    stage.list_numbers(2..7);
    let full = stage.run(&["sync", "--plan", "--json"]).exits(6).json();
    assert_eq!(kinds(&full["pools"][0]), ["retire -", "fill i3", "fill i4"]);
    let homeless = full["pools"][0]["homeless"].as_array().unwrap();
    assert_eq!(
        homeless
            .iter()
            .map(|one| &one["instance"])
            .collect::<Vec<_>>(),
        ["i5", "i6"]
    );
    let full = stage.run(&["sync", "--once", "--json"]).exits(6).json();
    assert_eq!(full["pools"][0]["homeless"].as_array().unwrap().len(), 2);
    assert_eq!(rotation(stage.haproxy.servers().await), 3);

    // Empty and shrunken lists are held.
    stage.list("[]");
    let held = stage.run(&["sync", "--once", "--json"]).exits(3).json();
    let numbers = &held["pools"][0]["held"];
    assert_eq!(
        (&numbers["reason"], &numbers["had"], &numbers["has"]),
        (&json!("empty"), &json!(3), &json!(0))
    );
    stage.list("\n");
    stage.run(&["sync", "--once"]).exits(3);
    stage.list_numbers(2..3);
    let held = stage.run(&["sync", "--plan", "--json"]).exits(3).json();
    assert_eq!(
        (
            &held["pools"][0]["held"]["reason"],
            kinds(&held["pools"][0]).len()
        ),
        (&json!("shrunken"), 0)
    );
    assert_eq!(rotation(stage.haproxy.servers().await), 3);
    stage.run(&["sync", "--once", "--accept", "web-a"]).exits(0);
    assert_eq!(rotation(stage.haproxy.servers().await), 1);
}

#[tokio::test]
async fn the_daemon_its_slots_and_a_confirmation() {
    let stage = Stage::new(4).await;
    stage.list_numbers(1..4);
    stage.run(&["slots"]).exits(5);
    let _daemon = stage.start();
    let slots = eventually("three slots are active", PATIENCE, || async {
        let run = stage.run(&["slots", "--json"]);
        if run.exit != 0 {
            return Err(run.stderr);
        }
        let pools = run.json();
        let slots = pools["pools"][0]["processes"][0]["slots"]
            .as_array()
            .unwrap()
            .clone();
        let active = slots
            .iter()
            .filter(|slot| slot["state"] == "active")
            .count();
        if active == 3 {
            Ok(slots)
        } else {
            Err(pools.to_string())
        }
    })
    .await;
    assert_eq!(
        (&slots[0]["slot"], &slots[0]["address"]),
        (&json!("web-1"), &json!("10.0.0.1:80"))
    );
    let table = stage.run(&["slots", "web-a", "--history"]).exits(0).stdout;
    assert!(
        table.contains("filled because discovery listed it and it had no slot")
            && table.contains("filling"),
        "{table}"
    );
    stage.run(&["slots", "nobody"]).exits(3);
    let nothing = stage
        .run(&["sync", "confirm", "web-a", "--json"])
        .exits(0)
        .json();
    assert_eq!(nothing, json!({ "pool": "web-a", "confirmed": null }));
    stage.run(&["sync", "confirm", "nobody"]).exits(3);

    stage.list_numbers(1..2);
    eventually("the list is held", PATIENCE, || async {
        let run = stage.run(&["slots"]);
        if run.stdout.contains("held (shrunken)") {
            Ok(())
        } else {
            Err(run)
        }
    })
    .await;
    // Nobody can be asked here, and nobody said yes.
    for words in [
        &["sync", "confirm", "web-a"][..],
        &["sync", "confirm", "web-a", "--json"],
    ] {
        let refused = stage.run(words).exits(3);
        let said =
            "had 3 instances and has 1 (shrunken): not confirmed; --yes confirms in a pipeline";
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    let held = stage.run(&["slots"]).exits(0).stdout;
    assert!(
        held.contains("or at once by haplane sync confirm web-a"),
        "{held}"
    );

    let confirmed = stage
        .run(&["sync", "confirm", "web-a", "--yes", "--json"])
        .exits(0)
        .json();
    assert_eq!(confirmed["confirmed"], json!({ "had": 3, "has": 1 }));
    eventually("the others are out", PATIENCE, || async {
        let servers = stage.haproxy.servers().await;
        let there = servers
            .iter()
            .filter(|server| server.number("srv_admin_state") & 1 == 0)
            .count();
        if there == 1 { Ok(()) } else { Err(there) }
    })
    .await;

    // What cannot be read is no list: its cause is told, and nothing that nobody could confirm.
    stage.list("no instance\n");
    let cause = format!("{}: no line of it is an instance", stage.hosts().display());
    eventually("the cause is told", PATIENCE, || async {
        let run = stage.run(&["slots"]);
        let told = run.stdout.contains("held (failed)") && run.stdout.contains(&cause);
        if told && !run.stdout.contains("confirm") {
            Ok(())
        } else {
            Err(run)
        }
    })
    .await;
    let refused = stage.run(&["sync", "confirm", "web-a", "--yes"]).exits(3);
    assert!(refused.stderr.contains(&cause), "{refused:?}");
    let log = std::fs::read_to_string(stage.dir.path().join("sync.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&cause)).collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| !line.contains("sync confirm")),
        "{log}"
    );
}

#[tokio::test]
async fn a_wrong_configuration_is_told_all_at_once() {
    let stage = Stage::new(1).await;
    stage.run(&["sync", "--check-config"]).exits(0);
    let printed = stage.run(&["sync", "--print-config"]).exits(0).stdout;
    assert!(
        printed.contains("[[pool]]") && printed.contains("max_removal = \"50%\""),
        "{printed}"
    );
    let wrong = "[sync]\nhttp = \"0.0.0.0:9779\"\n\
                 [[pool]]\nname = \"a\"\nbackend = \"web\"\nsource = \"dns:web\"\nmax_removal = \"150%\"\nzoen = \"b\"\n";
    std::fs::write(stage.config(), wrong).unwrap();
    let said = stage.run(&["sync", "--check-config"]).exits(2).stderr;
    for part in [
        "no socket",
        "0.0.0.0:9779",
        "a pool needs this key",
        "dns:web",
        "150%",
        "zoen",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

/// What cannot be brought in is no success, and each HAProxy is named where there are several.
#[tokio::test]
async fn once_tells_which_process_would_not_take_whom() {
    let stage = Stage::new(2).await;
    let other = Stage::new(2).await;
    stage.list("10.0.0.1:80 id=a\n10.0.0.2:80 id=b\n10.0.0.1:80 id=c\n");
    let toml = |mode: &str| {
        format!(
            "[sync]\nsocket = [\"{}\", \"{}\"]\nagent = \"\"\n\
             [[pool]]\nname = \"web-a\"\nbackend = \"web\"\nsource = \"file:{}\"\n{mode}\n",
            stage.haproxy.admin_socket().display(),
            other.haproxy.admin_socket().display(),
            stage.hosts().display()
        )
    };
    std::fs::write(
        stage.config(),
        toml("slots = \"dyn-\"\nmode = \"dynamic\"\nserver_parameters = \"chekc\""),
    )
    .unwrap();
    let run = stage.run(&["sync", "--once"]).exits(4);
    for stage in [&stage, &other] {
        let socket = stage.haproxy.admin_socket();
        let attempts: Vec<_> = run
            .stdout
            .lines()
            .filter(|line| line.contains(&format!("{}  dyn-", socket.display())))
            .collect();
        assert_eq!(attempts.len(), 2, "{}", run.stdout);
        assert!(
            attempts[0].contains("unknown keyword 'chekc'"),
            "{}",
            run.stdout
        );
    }
    assert!(
        run.stdout
            .contains("left out: line 3, c at 10.0.0.1:80 (a has its id or address)"),
        "{}",
        run.stdout
    );
    let slots = toml("slots = \"web-\"");
    std::fs::write(stage.config(), slots.replace("\"web\"", "\"wbe\"")).unwrap();
    let told = stage.run(&["sync", "--plan"]).exits(2).stdout;
    assert!(told.contains("HAProxy has no backend named wbe"), "{told}");
    std::fs::write(stage.config(), slots).unwrap();
    stage.run(&["sync", "--once"]).exits(0);
}
