//! The first thing that anybody runs.

use std::path::Path;
use std::process::Command;

/// By itself it shows that traffic follows, with the proof of both load balancers, and leaves nothing behind.
#[test]
fn the_demo_runs_by_itself() {
    let here = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_haplane")).with_file_name("examples/demo");
    let run = Command::new(program)
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
