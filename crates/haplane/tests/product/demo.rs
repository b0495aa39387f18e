//! The first thing that anybody runs.

use std::fs::read_link;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use haplane_testkit::eventually::eventually;
use rustix::process::{Pid, Signal, kill_process};

fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_haplane")).with_file_name("examples/demo")
}

/// A terminal that is closed takes the reader of all that it prints with it.
#[tokio::test]
async fn a_closed_terminal_ends_everything_that_the_demo_started() {
    let here = tempfile::tempdir().unwrap();
    let folder = here.path().canonicalize().unwrap();
    let mut demo = Command::new(program())
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("Ctrl-C ends everything") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let places = processes.filter_map(|one| read_link(one.path().join("cwd")).ok());
        places.filter(|place| *place == folder).count()
    };
    assert!(
        running() >= 5,
        "the demo, two agents and two HAProxy: {}",
        running()
    );
    drop((said, demo.stderr.take()));
    kill_process(Pid::from_child(&demo), Signal::HUP).unwrap();
    demo.wait().unwrap();
    eventually("everything to end", Duration::from_secs(10), async || {
        let left = running();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

/// By itself it shows that traffic follows, with the proof of both load balancers, and leaves nothing behind.
#[test]
fn the_demo_runs_by_itself() {
    let here = tempfile::tempdir().unwrap();
    let run = Command::new(program())
        .arg("once")
        .current_dir(here.path())
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}");
    let proofs = said.lines().filter(|line| {
        line.starts_with("converged in") && line.ends_with("2/2 load balancers, 2/2 rows")
    });
    assert_eq!(proofs.count(), 2, "{said}");
    assert!(said.ends_with("the traffic followed each time\n"), "{said}");
    assert_eq!(
        here.path().read_dir().unwrap().count(),
        0,
        "it leaves nothing behind"
    );
}
