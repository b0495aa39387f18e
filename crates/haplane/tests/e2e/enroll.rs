//! `haplane enroll` on files, and what HAProxy makes of the result.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::peers::Peer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::command::Haplane;

const SECTIONS: &str = "defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n\n\
    backend web\n\tserver a 127.0.0.1:81 check inter 50s\t# the first\n  \
    server \"gke-cny-1\" 127.0.0.1:82 weight 10\n server off 127.0.0.1:83 disabled\n\
    backend slots\n server-template s 2 127.0.0.1:1 disabled\n";

fn haplane() -> Haplane {
    Haplane::on("dir:/nonexistent")
}

struct Files {
    dir: tempfile::TempDir,
    config: PathBuf,
    groups: PathBuf,
}

impl Files {
    fn new(text: &str, port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (config, groups) = (
            dir.path().join("haproxy.cfg"),
            dir.path().join("groups.toml"),
        );
        std::fs::write(&config, text).unwrap();
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o640)).unwrap();
        let groups_text = format!(
            "[defaults]\nagent_port = {port}\nagent_inter = \"1s\"\nslowstart = \"60s\"\n\
             [[group]]\nkey = \"canary\"\nrows = [\"*/*-cny-*\"]\n"
        );
        std::fs::write(&groups, groups_text).unwrap();
        Self {
            dir,
            config,
            groups,
        }
    }

    fn words<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec![
            "enroll",
            "-f",
            path(&self.config),
            "--groups",
            path(&self.groups),
        ];
        words.extend(more);
        words
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.config).unwrap()
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Answers every ask with "no change" and remembers the words.
async fn recording_responder() -> (u16, Arc<Mutex<BTreeSet<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut line = vec![0; 4096];
            if let Ok(length) = connection.read(&mut line).await {
                seen.lock()
                    .unwrap()
                    .insert(String::from_utf8_lossy(&line[..length]).into_owned());
            }
            drop(connection.write_all(b"\n").await);
        }
    });
    (port, asked)
}

#[tokio::test]
async fn every_enrolled_row_asks_with_its_key_and_groups() {
    let (port, asked) = recording_responder().await;
    let files = Files::new(SECTIONS, port);
    let program = Peer::Haproxy28.program();
    haplane()
        .run(&files.words(&["--write", "--haproxy", path(&program)]))
        .exits(0);
    let haproxy = Haproxy::start(
        Version::V28,
        Config::new(&files.text()).global("max-spread-checks 1"),
    )
    .await;
    let expected: BTreeSet<String> = ["web/a\n", "web/gke-cny-1 canary\n", "@free\n"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    eventually("all rows asking", Duration::from_secs(10), async || {
        let seen = asked.lock().unwrap().clone();
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await;
    assert_eq!(haproxy.server("web/off").await.get("srv_agent_state"), "0");
}

#[test]
fn writing_keeps_mode_and_all_other_bytes_and_can_be_taken_back() {
    let files = Files::new(SECTIONS, 9777);
    let link = files.dir.path().join("link.cfg");
    std::os::unix::fs::symlink(&files.config, &link).unwrap();
    let diff = haplane().run(&files.words(&[])).exits(0).stdout;
    assert!(
        diff.starts_with("--- ")
            && diff.matches("\n+").count() == 4
            && diff.matches("\n-").count() == 3,
        "{diff}"
    );
    assert_eq!(files.text(), SECTIONS, "the default changes nothing");
    haplane().run(&files.words(&["--check"])).exits(6);

    let words = [
        "enroll",
        "-f",
        path(&link),
        "--groups",
        path(&files.groups),
        "--write",
        "--json",
    ];
    let run = haplane().run(&words).exits(0);
    let document = run.json();
    assert_eq!(document["written"], true);
    assert_eq!(document["changed"].as_array().unwrap().len(), 3);
    assert_eq!(document["left_alone"][0]["row"], "web/off");
    assert!(
        run.stderr.contains("web/off is left alone") && run.stderr.contains("max-spread-checks"),
        "{}",
        run.stderr
    );
    assert!(
        link.is_symlink(),
        "what the link leads to was replaced, not the link"
    );
    assert_eq!(
        std::fs::metadata(&files.config)
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o640
    );
    assert!(files.text().contains("127.0.0.1:81 check inter 50s agent-check agent-addr 127.0.0.1 agent-port 9777 agent-inter 1s agent-send \"web/a\\n\" slowstart 60s\t# the first\n"), "{}", files.text());

    let enrolled = files.text();
    haplane().run(&files.words(&["--check"])).exits(0);
    haplane().run(&files.words(&["--write"])).exits(0);
    assert_eq!(files.text(), enrolled, "a second run changes nothing");
    let removed = haplane()
        .run(&files.words(&["--remove", "--write"]))
        .exits(0);
    assert_eq!(files.text(), SECTIONS);
    for word in ["recommended", "next:"] {
        assert!(!removed.stderr.contains(word), "{}", removed.stderr);
    }
    let left: Vec<_> = std::fs::read_dir(files.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 3, "nothing else is left behind: {left:?}");
}

#[test]
fn what_haproxy_refuses_is_not_written() {
    let files = Files::new(SECTIONS, 9777);
    let program = files.dir.path().join("haproxy");
    std::fs::write(&program, "#!/bin/sh\necho 'no such thing' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = haplane()
        .run(&files.words(&["--write", "--haproxy", path(&program)]))
        .exits(3);
    assert!(run.stderr.contains("no such thing"), "{}", run.stderr);
    assert_eq!(files.text(), SECTIONS);
    std::fs::write(&files.groups, "[defaults]\nagent_prot = 1\n").unwrap();
    haplane().run(&files.words(&[])).exits(2);
    std::fs::write(&files.config, "backend web\n server a\n").unwrap();
    haplane()
        .run(&["enroll", "-f", path(&files.config)])
        .exits(2);
}

/// Every configuration that the reader is tried on: HAProxy takes the result, and the way back is exact.
#[test]
fn the_corpus_there_and_back() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../haplane-haproxy/tests/corpus"
    );
    let mut changed = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let entry = entry.unwrap().path();
        let original = std::fs::read_to_string(&entry)
            .unwrap()
            .replace("{dir}", "/tmp");
        let files = Files::new(&original, 9777);
        for peer in [Peer::Haproxy28, Peer::Haproxy26] {
            std::fs::write(&files.config, &original).unwrap();
            let program = peer.program();
            let run = haplane()
                .run(&files.words(&["--write", "--json", "--haproxy", path(&program)]))
                .exits(0);
            changed += run.json()["changed"].as_array().unwrap().len();
            haplane().run(&files.words(&["--check"])).exits(0);
            haplane()
                .run(&files.words(&["--remove", "--write"]))
                .exits(0);
            // What asked an agent before cannot be told from what an enrolment put there.
            if !original.contains("agent-") {
                assert_eq!(files.text(), original, "{}", entry.display());
            }
        }
    }
    assert!(changed > 100, "{changed} lines changed");
}
