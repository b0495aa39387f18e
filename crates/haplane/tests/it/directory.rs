//! The commands on a directory: what they write, what they say, and how they end.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::Haplane;

/// A folder with its marker, and nobody who answers beside it.
struct Folder {
    haplane: Haplane,
    state: PathBuf,
    _dir: TempDir,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        // Port 9 of loopback is nobody's.
        let haplane = Haplane::on(format!("dir:{}", state.display()))
            .with("HAPLANE_HTTP_LISTEN", "127.0.0.1:9");
        Self {
            haplane,
            state,
            _dir: dir,
        }
    }

    fn initialised() -> Self {
        let folder = Self::new();
        folder.haplane.run(&["init"]).exits(0);
        folder
    }

    fn text(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.state.join(key)).ok()
    }

    fn log(&self) -> Vec<Value> {
        let log = self.haplane.run(&["log", "--json"]).exits(0).json();
        log["entries"].as_array().unwrap().clone()
    }
}

#[test]
fn a_time_that_is_none_is_told_before_anything_is_written() {
    let folder = Folder::initialised();
    for flag in ["--timeout", "--for"] {
        let run = folder
            .haplane
            .run(&["set", "canary", "drain", "--force", flag, "60"]);
        let told = run.exits(2).stderr;
        assert!(told.contains(flag) && told.contains("500ms"), "{told}");
    }
    assert_eq!((folder.text("canary"), folder.log().len()), (None, 0));
}

#[test]
fn a_day_in_the_life_of_a_key() {
    let folder = Folder::initialised();
    let haplane = &folder.haplane;
    let set = haplane
        .run(&[
            "set",
            "canary",
            "web/a",
            "drain",
            "--reason",
            "bad deploy",
            "--json",
        ])
        .exits(0);
    assert!(
        set.stderr.contains("no agent can be asked"),
        "{}",
        set.stderr
    );
    let set = set.json();
    assert_eq!(
        set["changed"],
        json!([
            {"key": "canary", "before": null, "after": "drain"},
            {"key": "web/a", "before": null, "after": "drain"},
        ])
    );
    assert_eq!((&set["rows"], &set["waited"]), (&json!([]), &json!(null)));
    assert_eq!(folder.text("web/a").unwrap().trim(), "drain");

    let again = haplane
        .run(&["set", "canary", "DRAIN", "--json"])
        .exits(0)
        .json();
    assert_eq!(again["changed"], json!([]));
    assert_eq!(again["index"], set["index"]);
    assert_eq!(folder.log().len(), 1, "nothing changed, nothing logged");

    let show = haplane.run(&["show", "--json"]).exits(0).json();
    assert_eq!(show["index"], set["index"]);
    assert_eq!(show["keys"][0]["by"], "alice");
    assert_eq!(show["keys"][0]["reason"], "bad deploy");

    haplane.run(&["clear", "web/*"]).exits(0);
    assert_eq!(folder.text("web/a"), None);
    let entries = folder.log();
    assert_eq!(
        entries[0]["changes"],
        json!([{"key": "web/a", "before": "drain", "after": null}])
    );
    assert_eq!(entries[0]["command"], "haplane clear 'web/*'");
}

#[test]
fn the_history_of_a_key_is_what_was_written_to_it() {
    let folder = Folder::initialised();
    let haplane = &folder.haplane;
    haplane.run(&["set", "canary", "web/a", "drain"]).exits(0);
    haplane.run(&["set", "web/b", "maint"]).exits(0);
    haplane.run(&["clear", "canary"]).exits(0);
    let keys = |words: &[&str]| -> Vec<String> {
        let words: Vec<&str> = ["log", "--json"].iter().chain(words).copied().collect();
        let log = haplane.run(&words).exits(0).json();
        let entries = log["entries"].as_array().unwrap().clone();
        let key = |entry: &Value| entry["changes"][0]["key"].as_str().unwrap().to_owned();
        entries.iter().map(key).collect()
    };
    assert_eq!(keys(&[]), ["canary", "web/b", "canary"]);
    assert_eq!(keys(&["canary"]), ["canary", "canary"]);
    assert_eq!(keys(&["canary", "--limit", "1"]), ["canary"]);
    assert_eq!(keys(&["web/*", "--limit", "1"]), ["web/b"]);
    assert_eq!(keys(&["web/*", "--since", "1h"]), ["web/b", "canary"]);
    assert!(keys(&["web/c"]).is_empty());
    assert!(keys(&["--since", "0s"]).is_empty());
    let log = haplane.run(&["log", "web/a"]).exits(0).stdout;
    assert!(log.contains("\n  web/a  absent → drain\n"), "{log}");
    assert!(!log.contains("  canary  "), "{log}");
}

#[test]
fn break_glass_by_echo_is_shown_as_such() {
    let folder = Folder::initialised();
    fs::write(folder.state.join("canary"), "drain\n").unwrap();
    fs::write(
        folder.state.join("old"),
        "maint until=2020-01-01T00:00:00Z\n",
    )
    .unwrap();
    fs::write(folder.state.join("bad"), "down\n").unwrap();
    let show = folder.haplane.run(&["show"]).exits(0).stdout;
    insta::assert_snapshot!(show);
    let show = folder
        .haplane
        .run(&["show", "bad", "--json"])
        .exits(0)
        .json();
    assert_eq!(show["keys"][0]["value"], "down");
    assert_eq!(show["keys"][0]["valid"], false);
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_read() {
    let folder = Folder::initialised();
    for (words, says) in [
        (&["set", "canary", "down"][..], "ready, drain, maint"),
        (&["set", "canary", "300%"], "from 0 to 256"),
        (&["set", "canary", "050%"], "from 0 to 256"),
        (&["set", "canary", "50"], "did you mean 50%?"),
        (&["set", "canary", "0.5"], "did you mean 50%?"),
        (&["set", "drain", "canary"], "haplane set canary drain"),
        (&["set", "a b", "drain"], "cannot hold ' '"),
        (&["set", ".haplane", "drain"], "cannot start with '.'"),
        (&["set", "drain"], "name what to set"),
        (&["set", "canary", "drain", "--for", "60"], "--for"),
        (&["set", "canary", "drain", "--for", "0s"], "--for"),
        (&["clear"], "name what to clear"),
        (&["drain", "canary", "--grace", "soon"], "--grace"),
        (&["ramp", "canary", "slowly"], "weights"),
        (
            &["ramp", "canary", "10%,150%,300%"],
            "\"300%\" is none, write N% with a whole number from 0 to 256",
        ),
        (
            &["drain", "canary", "--min-ready", "0.5"],
            "a share is 0% to 100%",
        ),
        (
            &["drain", "canary", "--min-ready", "150%"],
            "a share is 0% to 100%",
        ),
        (&["forget"], "NODE"),
        (&["drain", "canary", "--grace", "-1s"], "is not a duration"),
        (&["log", "--since", "-1s"], "is not a duration"),
        (&["log", "--limit", "0"], "a whole number from 1"),
        (&["log", "--limit", "x"], "a whole number from 1"),
        (&["ui", "--ui-listen", "9780"], "such as 127.0.0.1:9780"),
        (&["canary"], "--disable"),
        (&["canary", "--disable", "--enable"], "cannot be used with"),
        (&["status", "--watch", "--json"], "cannot be used with"),
    ] {
        let run = folder.haplane.run(words).exits(2);
        assert!(run.stderr.contains(says), "{words:?}: {}", run.stderr);
    }
    folder.haplane.run(&["set", "zone/b", "drain"]).exits(0);
    let beside = folder.haplane.run(&["set", "zone", "drain"]).exits(2);
    assert!(beside.stderr.contains("zone/b"), "{}", beside.stderr);
    assert_eq!(folder.log().len(), 1);
}

#[test]
fn a_folder_without_marker_is_not_believed() {
    let folder = Folder::new();
    let gone = folder.haplane.run(&["show", "--json"]).exits(5).json();
    assert_eq!(gone["error"]["exit"], 5);
    let dry = folder.haplane.run(&["init", "--dry-run"]).exits(0);
    assert!(
        dry.stdout.contains("would be initialised"),
        "{}",
        dry.stdout
    );
    assert!(!folder.state.exists());
    fs::create_dir(&folder.state).unwrap();
    fs::write(folder.state.join("canary"), "drain").unwrap();
    let show = folder.haplane.run(&["show"]).exits(3);
    assert!(show.stderr.contains("haplane init"), "{}", show.stderr);
    let optional = folder
        .haplane
        .run(&["show", "--no-require-marker", "--json"])
        .exits(0)
        .json();
    assert_eq!(optional["keys"][0]["key"], "canary");
    let set = folder.haplane.run(&["set", "web/a", "maint"]).exits(3);
    let place = format!("dir:{} has no marker", folder.state.display());
    assert!(set.stderr.contains(&place), "{}", set.stderr);
    assert!(!set.stderr.contains("token"), "{}", set.stderr);
    assert_eq!(folder.text("web/a"), None);
    let words = ["set", "web/a", "maint", "--no-require-marker"];
    folder.haplane.run(&words).exits(0);
    folder.haplane.run(&["show"]).exits(3);
    folder.haplane.run(&["init"]).exits(0);
    folder.haplane.run(&["show"]).exits(0);
}

#[test]
fn that_a_key_is_absent_is_an_answer_and_that_nobody_answers_is_none() {
    let folder = Folder::initialised();
    let show = folder.haplane.run(&["show", "nosuch"]).exits(0);
    assert!(show.stdout.contains("nosuch  absent"), "{}", show.stdout);
    let show = folder.haplane.run(&["show", "nosuch", "--json"]).exits(0);
    assert_eq!(show.json()["absent"], json!(["nosuch"]));
    folder.haplane.run(&["show", "x*"]).exits(3);

    let status = folder.haplane.run(&["status"]).exits(5);
    assert!(status.stderr.contains("no agent answers"), "{status:#?}");
    assert!(status.stdout.contains("no row is known"), "{status:#?}");
    let node = folder.haplane.with("HAPLANE_NODE", "vm");
    node.run(&["forget"]).exits(2);

    fs::write(folder.state.join("canary"), "draining\n").unwrap();
    let canary = folder
        .haplane
        .run(&["canary", "--status", "--json"])
        .exits(0);
    assert!(
        canary.stderr.contains("\"draining\", which is no value"),
        "{canary:#?}"
    );
    assert_eq!(canary.json()["invalid"], "draining");
}

#[test]
fn names_that_nobody_knows_are_told_in_the_words_of_the_command() {
    let folder = Folder::initialised();
    let config = folder.state.with_file_name("haproxy.cfg");
    let text = "backend web\n  server web-01-us-east1-b 127.0.0.1:1 agent-check agent-port 9777 agent-send \
                \"web/web-01-us-east1-b canary\\n\"\n";
    fs::write(&config, text).unwrap();
    let site = folder.state.with_file_name("site");
    fs::create_dir_all(site.join("web")).unwrap();
    fs::write(site.join("web/app.js"), "").unwrap();
    for (words, says) in [
        (
            &["set", "web/web-1", "drain"][..],
            "did you mean web/web-01-us-east1-b?",
        ),
        (
            &["drain", "web/web-01"],
            "did you mean web/web-01-us-east1-b?",
        ),
        (
            &["drain", "web"],
            "web is a backend, not a key; its rows are 'web/*'",
        ),
        (&["drain", "canary", "drain"], "drain is a value, not a key"),
        (&["drain", "*"], "* stays within backend or server: '*/*'"),
        (&["drain", "web/app.js"], "did the shell expand a glob?"),
        (&["ready", "nosuch"], "(--force takes it all the same)"),
        (
            &["canary", "--is-active", "--group", "nosuch"],
            "no row asks for nosuch",
        ),
        (
            &["canary", "--status", "--group", "nosuch"],
            "no row asks for nosuch",
        ),
    ] {
        let mut command = folder.haplane.command(words);
        command.arg("--rows").arg(&config).current_dir(&site);
        let run = crate::command::run_of(command.output().unwrap()).exits(3);
        assert!(run.stderr.contains(says), "{words:?}: {}", run.stderr);
    }
    let words = ["wait", "nosuch", "--rows", config.to_str().unwrap()];
    let wait = folder.haplane.run(&words).exits(3);
    assert!(!wait.stderr.contains("--force"), "{}", wait.stderr);
    let words = ["canary", "--is-active", "--rows", config.to_str().unwrap()];
    folder.haplane.run(&words).exits(0);
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = Folder::initialised();
    let dry = folder
        .haplane
        .run(&["drain", "canary", "--dry-run", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        dry["changed"],
        json!([{"key": "canary", "before": null, "after": "maint"}])
    );
    assert_eq!(folder.text("canary"), None);
    assert!(folder.log().is_empty());
}

#[test]
fn globs_that_fit_nothing_and_floors_that_nobody_can_vouch_for() {
    let folder = Folder::initialised();
    folder.haplane.run(&["clear", "web/*"]).exits(3);
    folder.haplane.run(&["drain", "web/*"]).exits(5);
    let floor = folder
        .haplane
        .run(&["set", "canary", "drain", "--min-ready", "50%", "--dry-run"])
        .exits(3);
    assert!(
        floor.stderr.contains("no agent can say"),
        "{}",
        floor.stderr
    );
    let config = folder.state.with_file_name("haproxy.cfg");
    let text = "backend web\n  server a 127.0.0.1:1 agent-check agent-port 9777 agent-send \"web/a canary\\n\"\n\
                \x20 server b 127.0.0.1:1\n";
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let words = ["drain", "web/*", "--rows", config, "--drain-only", "--json"];
    let drained = folder.haplane.run(&words).exits(0).json();
    assert_eq!(drained["rows"], json!(["web/a"]));
    let slip = folder
        .haplane
        .run(&["set", "canry", "drain", "--rows", config])
        .exits(3);
    assert!(
        slip.stderr.contains("did you mean canary?"),
        "{}",
        slip.stderr
    );
    let unreached = folder
        .haplane
        .run(&["set", "web/b", "drain", "--rows", config, "--force"])
        .exits(0);
    assert!(
        unreached.stderr.contains("not enrolled"),
        "{}",
        unreached.stderr
    );
}

#[test]
fn the_log_stays_bounded() {
    let folder = Folder::initialised();
    let log = folder.state.join(".log");
    fs::create_dir_all(&log).unwrap();
    for n in 1..=1_100_u64 {
        let entry = json!({
            "id": format!("{n:016x}"), "at": "2026-01-01T00:00:00Z", "by": "x", "host": "h", "command": "c", "changes": [],
        });
        fs::write(log.join(format!("{n:016x}")), entry.to_string()).unwrap();
    }
    folder.haplane.run(&["set", "canary", "drain"]).exits(0);
    let entries = fs::read_dir(&log).unwrap().count();
    assert_eq!(entries, 1_000);
    assert_eq!(folder.log()[0]["changes"][0]["key"], "canary");
    let three = folder
        .haplane
        .run(&["log", "--limit", "3", "--json"])
        .exits(0)
        .json();
    assert_eq!(three["entries"].as_array().unwrap().len(), 3);
}

#[test]
fn an_old_drain_stands_out() {
    let folder = Folder::initialised();
    folder.haplane.run(&["set", "canary", "drain"]).exits(0);
    folder
        .haplane
        .run(&["set", "web/a", "drain", "--for", "2h"])
        .exits(0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let words = ["show", "--forgotten-after", "10ms", "--json"];
    let show = folder.haplane.run(&words).exits(0).json();
    assert_eq!(show["keys"][0]["forgotten"], true);
    assert_eq!(show["keys"][1]["forgotten"], false, "it ends by itself");
}

#[test]
fn an_end_belongs_to_a_value_and_one_that_is_over_is_told() {
    let folder = Folder::initialised();
    let haplane = &folder.haplane;
    let end = "until=2030-01-01T00:00:00Z";
    let apart = haplane.run(&["set", "canary", "drain", end]).exits(2);
    let meant = format!("haplane set canary 'drain {end}'");
    assert!(apart.stderr.contains(&meant), "{}", apart.stderr);
    let over = haplane
        .run(&["set", "canary", "drain until=2020-01-01T00:00:00Z"])
        .exits(0);
    assert!(over.stderr.contains("is over already"), "{}", over.stderr);
    let back = haplane.run(&["ready", "canary"]).exits(0).stderr;
    assert!(!back.contains("slowstart"), "it was back already: {back}");
    let late = haplane.run(&["set", "canary", "drain", "--for", "99999999d"]);
    assert!(late.exits(2).stderr.contains("year 9999"));

    haplane.run(&["ready", "canary", "--for", "2h"]).exits(2);
    haplane
        .run(&["ready", "canary", "--explicit", "--for", "2h"])
        .exits(0);
    let text = folder.text("canary").unwrap();
    assert!(text.starts_with("ready until="), "{text}");
    let words = ["canary", "--enable", "--explicit", "--json"];
    let enabled = haplane.run(&words).exits(0).json();
    assert_eq!(enabled["changed"][0]["after"], "ready", "{enabled}");
    haplane
        .run(&["ramp", "canary", "50%", "--for", "2h"])
        .exits(0);
    let text = folder.text("canary").unwrap();
    assert!(text.starts_with("50% until="), "{text}");
}

#[test]
fn rows_that_are_known_and_have_no_key_are_no_slip() {
    let folder = Folder::initialised();
    let haplane = &folder.haplane;
    let file = folder.state.join("../haproxy.cfg");
    fs::write(
        &file,
        "backend web\n server web-us-east1-b 127.0.0.1:1 agent-check agent-port 1 \
         agent-send \"web/web-us-east1-b\\n\"\n",
    )
    .unwrap();
    let rows = file.to_str().unwrap();
    for words in [&["show", "web/*"][..], &["show", "-z", "us-east1-b"]] {
        haplane.run(words).exits(3);
        let known: Vec<&str> = words
            .iter()
            .copied()
            .chain(["--rows", rows, "--json"])
            .collect();
        let shown = haplane.run(&known).exits(0).json();
        assert_eq!(shown["keys"], json!([]), "{shown}");
        assert_eq!(shown["absent"], json!([]), "{shown}");
    }
    let other = folder.state.join(".haplane");
    let other = ["status", "--rows", other.to_str().unwrap()];
    let other = haplane.run(&other).exits(2).stderr;
    assert!(other.contains("has a server"), "{other}");
    let slip = ["show", "wb/*", "--rows", rows];
    haplane.run(&slip).exits(3);
    haplane
        .run(&["set", "web/web-us-east1-b", "drain", "--force"])
        .exits(0);
    let shown = haplane.run(&["show", "web/*", "--json"]).exits(0).json();
    assert_eq!(shown["keys"][0]["key"], "web/web-us-east1-b", "{shown}");
}
