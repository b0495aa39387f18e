//! `haplane audit` on files and on a process.

use haplane_testkit::haproxy::{Config, Haproxy, Version};
use serde_json::Value;

use crate::command::Haplane;

const DEFAULTS: &str =
    "defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n";

/// No store is needed to look at files.
fn haplane() -> Haplane {
    Haplane::on("dir:/nonexistent")
}

fn rules(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect()
}

/// The third background document: a port that was changed in haproxy.cfg, and the old one in the state file.
#[tokio::test]
async fn the_story_of_the_state_file() {
    let sections = |port: u16| {
        format!(
            "{DEFAULTS} load-server-state-from-file global\nbackend pages_https\n server web-pages-01 127.0.0.1:{port}\n"
        )
    };
    let config = |port| Config::new(&sections(port)).global("server-state-file {dir}/state");
    let mut haproxy = Haproxy::start(Version::V28, config(1443)).await;
    haproxy.save_state("state").await;
    haproxy.reload_with(config(2443)).await;
    let file = haproxy.dir().join("haproxy.cfg");
    let words = [
        "audit",
        "-f",
        file.to_str().unwrap(),
        "--json",
        "--forecast",
    ];
    let run = haplane().run(&words).exits(6);
    let document = run.json();
    let errors: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["severity"] == "error")
        .collect();
    assert_eq!(errors.len(), 1, "{document:#}");
    let finding = errors[0];
    assert_eq!(finding["rule"], "state-file-port");
    assert_eq!(finding["row"], "pages_https/web-pages-01");
    let message = finding["message"].as_str().unwrap();
    assert!(
        message.contains("1443") && message.contains("2443") && message.contains("state"),
        "{message}"
    );
    assert!(finding["fix"].as_str().unwrap().contains("haplane seed"));
    assert_eq!(document["forecast"][0]["port"], 1443);
    assert_eq!(document["forecast"][0]["source"]["port"], "state-file");
    assert_eq!(document["forecast"][0]["agent_port"], Value::Null);

    // A file needs no -f.
    let text = haplane()
        .run(&["audit", file.to_str().unwrap()])
        .exits(6)
        .stdout;
    let place = format!("{}:", file.display());
    assert!(
        text.contains(&place) && text.contains("^^^^^^^^^^^^^^"),
        "{text}"
    );
}

#[tokio::test]
async fn the_running_process_against_the_files() {
    let sections = format!(
        "{DEFAULTS}backend web\n server a 127.0.0.1:81 weight 10\n \
         server b 127.0.0.1:82 agent-check agent-addr 127.0.0.1 agent-port 1 agent-inter 5s agent-send \"web/b\\n\"\n"
    );
    let haproxy = Haproxy::start(Version::V28, Config::new(&sections)).await;
    let file = haproxy.dir().join("haproxy.cfg");
    let socket = haproxy.user_socket();
    let words = [
        "audit",
        "-f",
        file.to_str().unwrap(),
        "--socket",
        socket.to_str().unwrap(),
        "--json",
    ];
    let document = haplane().run(&words).json();
    assert!(
        !rules(&document)
            .iter()
            .any(|rule| rule.starts_with("running")),
        "{document:#}"
    );
    haproxy
        .command("set server web/a addr 127.0.0.9 port 8081")
        .await;
    haproxy.command("disable agent web/b").await;
    let document = haplane().run(&words).exits(6).json();
    let found = rules(&document);
    assert!(
        found.contains(&"running-differs") && found.contains(&"agent-disabled"),
        "{document:#}"
    );
    let gone = [
        "audit",
        "-f",
        file.to_str().unwrap(),
        "--socket",
        "/nonexistent/socket",
    ];
    haplane().run(&gone).exits(5);
}

#[test]
fn formats_and_exit_statuses() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("haproxy.cfg");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        format!("{DEFAULTS}backend web\n server a 127.0.0.1:81\n"),
    )
    .unwrap();
    // Nobody is enrolled: that is a note.
    haplane().run(&["audit", "-f", path]).exits(0);
    haplane()
        .run(&["audit", "-f", path, "--fail-on", "note"])
        .exits(6);
    let sarif = haplane()
        .run(&["audit", "-f", path, "--format", "sarif"])
        .exits(0)
        .json();
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "not-enrolled");
    let region = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"];
    assert_eq!(
        (&region["startLine"], &region["startColumn"]),
        (&Value::from(7), &Value::from(9))
    );
    let json = haplane()
        .run(&["audit", "-f", path, "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        json["summary"],
        serde_json::json!({"error": 0, "warning": 0, "note": 1})
    );
    // A folder is read as HAProxy reads one, and a missing file is wrong usage.
    let folder = dir.path().to_str().unwrap();
    assert_eq!(
        haplane()
            .run(&["audit", "-f", folder, "--json"])
            .exits(0)
            .json(),
        json
    );
    haplane().run(&["audit", "-f", "/nonexistent"]).exits(2);
    std::fs::write(&file, "backend web\n server a\n").unwrap();
    let refused = haplane()
        .run(&["audit", "-f", path, "--json"])
        .exits(6)
        .json();
    assert_eq!(rules(&refused), ["config-refused"]);
}
