//! What looking at HAProxy costs the agent and HAProxy, beside the answers themselves.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use haplane_runtime::Socket;
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use serde_json::Value;

use crate::figures::{Durations, durations, line};
use crate::subject::{Subject, cpu_seconds_of};

/// For how long processor time is counted.
const WINDOW: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_mins(1);
const LOOKS: usize = 20;

/// One agent that only answers, then one that looks as well; both for a HAProxy with this many rows.
pub(crate) async fn measure(rows: usize, store: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let path = socket.to_str().expect("a path in UTF-8");
    for (what, flags) in [
        ("answers only", vec![]),
        ("answers and looks", vec!["--haproxy-socket", path]),
    ] {
        let agent = Subject::with_flags(store, &flags).await;
        let mut haproxy = Haproxy::start(Version::V28, config(&agent, rows)).await;
        if !flags.is_empty() {
            std::os::unix::fs::symlink(haproxy.user_socket(), &socket).expect("a link");
        }
        settled(&agent, rows, !flags.is_empty()).await;
        let pid = haproxy.process().pid();
        let before = (agent.cpu_seconds(), cpu_seconds_of(pid));
        tokio::time::sleep(WINDOW).await;
        let percent = |used: f64| 100.0 * used / WINDOW.as_secs_f64();
        line(
            &format!("{rows} rows, {what}"),
            format!(
                "agent {:.1} % of a core, {} KiB; HAProxy {:.1} %",
                percent(agent.cpu_seconds() - before.0),
                agent.resident_kib(),
                percent(cpu_seconds_of(pid) - before.1),
            ),
        );
        if !flags.is_empty() {
            time_the_socket(&haproxy, rows).await;
            time_the_pages(&agent, rows).await;
        }
    }
}

fn config(agent: &Subject, rows: usize) -> Config {
    let port = agent.address().port();
    let mut sections = "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\nbackend web\n".to_owned();
    for n in 0..rows {
        // Writing to a String cannot fail.
        let _ = writeln!(
            sections,
            " server w-{n} 127.0.0.1:1 weight 100 agent-check agent-inter 2s agent-addr 127.0.0.1 agent-port {port} agent-send \"web/w-{n} canary zone/b\\n\""
        );
    }
    // No clients: what HAProxy reserves for them would pass the limits of small machines.
    Config::new(&sections).global("maxconn 100")
}

async fn settled(agent: &Subject, rows: usize, observed: bool) {
    let wanted = if observed { "converged" } else { "unobserved" };
    eventually("every row asks", PATIENCE, async || {
        let page = agent.page("/v1/rows").await.map_err(|e| e.to_string())?;
        let all: Vec<Value> = serde_json::from_str(&page).map_err(|e| e.to_string())?;
        let is_wanted = |row: &&Value| row.get("verdict").is_some_and(|it| it == wanted);
        match all.iter().filter(is_wanted).count() {
            count if count >= rows => Ok(()),
            count => Err(format!("{count} rows")),
        }
    })
    .await;
}

async fn time_the_socket(haproxy: &Haproxy, rows: usize) {
    let socket = Socket::new(haproxy.user_socket());
    for command in ["show info;show servers state", "show stat -1 4 -1"] {
        let mut took = Vec::new();
        let mut bytes = 0;
        for _ in 0..LOOKS {
            let start = Instant::now();
            bytes = socket.ask(command).await.expect("an answer").len();
            took.push(start.elapsed());
        }
        let what = format!("{rows} rows, {command}, {} KB", bytes / 1_000);
        durations(&what, &Durations::new(took));
    }
}

async fn time_the_pages(agent: &Subject, rows: usize) {
    for path in ["/v1/rows", "/metrics"] {
        let mut took = Vec::new();
        let mut bytes = 0;
        for _ in 0..LOOKS {
            let start = Instant::now();
            bytes = agent.page(path).await.expect("a page").len();
            took.push(start.elapsed());
        }
        let what = format!("{rows} rows, {path}, {} KB", bytes / 1_000);
        durations(&what, &Durations::new(took));
    }
}
