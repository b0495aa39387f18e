//! The profiles of a running agent, read as `go tool pprof` reads them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use haplane_testkit::agent_peer::ask;
use haplane_testkit::eventually::eventually;
use haplane_testkit::pprof::Profile;

use crate::agent::{Agent, Folder};

const PROGRAM: &str = env!("CARGO_BIN_EXE_haplane");

/// Some of the lines with which the rows of a large HAProxy ask, each its own memory.
async fn ask_as_many_rows(agent: &Agent) {
    let groups = "a-group-with-a-long-name/zone-1 ".repeat(10);
    for row in 0..2_000 {
        let line = format!("web/srv{row} {groups}\n");
        ask(agent.checks.address(), line.as_bytes()).await.unwrap();
    }
}

fn gunzip(bytes: Vec<u8>) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("--decompress")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to_gzip = gzip.stdin.take().unwrap();
    let writer = std::thread::spawn(move || to_gzip.write_all(&bytes));
    let output = gzip.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    output.stdout
}

async fn body(agent: &Agent, path: &str) -> Vec<u8> {
    agent.get(path).await.unwrap().ok().body
}

#[tokio::test]
async fn processor_time_is_found_where_it_is_spent() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    let load = async {
        loop {
            ask_as_many_rows(&agent).await;
        }
    };
    // More than once where the machine is so busy that the agent hardly runs.
    let found = eventually("it is found", Duration::from_mins(1), async || {
        let profile = body(&agent, "/debug/pprof/profile?seconds=2").await;
        let profile = Profile::decode(&profile);
        let whole = |name: &String| name.starts_with("haplane_agent::responder::");
        let named = profile.names().iter().any(whole);
        let functions = profile.functions_of(PROGRAM);
        let looked_up = functions.iter().any(whole);
        (named && looked_up)
            .then_some(())
            .ok_or(format!("{functions:?}"))
    });
    tokio::select! {
        () = found => {}
        () = load => unreachable!("the load goes on"),
    }
}

#[tokio::test]
async fn memory_is_found_with_who_holds_it() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    // The first switches sampling on.
    body(&agent, "/debug/pprof/heap").await;
    eventually("rows are held", Duration::from_mins(1), async || {
        ask_as_many_rows(&agent).await;
        let profile = Profile::decode(&gunzip(body(&agent, "/debug/pprof/heap").await));
        if profile.total(0) == 0 {
            return Err("nothing was sampled yet".to_owned());
        }
        let functions = profile.functions_of(PROGRAM);
        let held = |name: &String| name.contains("haplane_agent::rows");
        functions
            .iter()
            .any(held)
            .then_some(())
            .ok_or(format!("{functions:?}"))
    })
    .await;
}
