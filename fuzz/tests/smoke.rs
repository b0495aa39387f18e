//! Each target over its seeds and over random changes of them, for a short while.

use std::time::{Duration, Instant};

/// Text from which inputs are made.
const CFG: &[&[u8]] = &[
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/addresses.cfg"),
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/canary.cfg"),
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/conditions.cfg"),
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/defaults.cfg"),
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/quoting.cfg"),
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/sections.cfg"),
    include_bytes!("../../crates/haplane-haproxy/tests/corpus/settings.cfg"),
];
const STATE: &[&[u8]] = &[
    include_bytes!("../../crates/haplane-haproxy/tests/samples/server-state-22.txt"),
    include_bytes!("../../crates/haplane-haproxy/tests/samples/server-state-28.txt"),
    b"1\n# h\n2 b 1 a 192.0.2.9 2 8 10 10 0 0 0 0 6 22 0 0 - 9001 - 0 7 127.0.0.7 127.0.0.8 8\n\n",
    b"1\n2 b 2 c - 0 4 1 1 0 0 0 0 6 18 0 0 localhost 81 - 0 0 - - 9\n2 b 3 d - 2 0 1 1 0 0 0 0 6 22 0 0 - 0 -\n\n",
];
const STAT: &[&[u8]] = &[
    include_bytes!("../../crates/haplane-haproxy/tests/samples/show-stat-28.csv"),
    b"# pxname,svname,status,type,\nb,s,\"U\"\"P,\n\",2,\nb,BACKEND,UP,1,\n\n",
];
const INFO: &[&[u8]] = &[b"Name: HAProxy\nVersion: 2.8.25\nPid: 1\nUptime_sec: 5\nnode: x\n\n"];
const LINES: &[&[u8]] = &[
    b"web/a canary\n",
    b"@free\n",
    b"web/a @up @50% zone/b\r\n",
    b"\xff\n",
];

fn seconds() -> Duration {
    let asked = std::env::var("HAPLANE_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(2))
}

/// One seed with some bytes changed, cut, doubled, or taken from another seed.
fn changed(rng: &mut fastrand::Rng, seeds: &[&[u8]]) -> Vec<u8> {
    const PIECES: &[&[u8]] = &[
        b"\"",
        b"'",
        b"\\",
        b"#",
        b"$",
        b"${",
        b"}",
        b"[*]",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b"\xff",
        b"-",
        b"0",
        b"65536",
        b"server ",
        b"server-template ",
        b"default-server ",
        b".if ",
        b".else\n",
        b".endif\n",
        b"backend x\n",
        b",",
        b"::",
    ];
    let mut bytes = seeds[rng.usize(..seeds.len())].to_vec();
    // Short inputs find more in the same time.
    if bytes.len() > 600 && rng.bool() {
        let start = rng.usize(..bytes.len() - 500);
        bytes = bytes[start..start + 500].to_vec();
    }
    for _ in 0..rng.usize(0..8) {
        let at = rng.usize(..=bytes.len());
        let end = (at + rng.usize(0..20)).min(bytes.len());
        match rng.u8(0..6) {
            0 => drop(bytes.splice(at..end, [])),
            1 => drop(bytes.splice(at..at, PIECES[rng.usize(..PIECES.len())].iter().copied())),
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 if at < bytes.len() => bytes[at] = rng.u8(..),
            _ => {
                let other = seeds[rng.usize(..seeds.len())];
                let from = rng.usize(..other.len());
                let to = (from + rng.usize(0..80)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

fn run(name: &str, target: fn(&[u8]), seeds: &[&[u8]]) {
    let seed = std::env::var("HAPLANE_FUZZ_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let mut rng = fastrand::Rng::with_seed(seed);
    seeds.iter().for_each(|bytes| target(bytes));
    let (start, mut executions) = (Instant::now(), 0_u64);
    while start.elapsed() < seconds() {
        let bytes = changed(&mut rng, seeds);
        let outcome = std::panic::catch_unwind(|| target(&bytes));
        assert!(
            outcome.is_ok(),
            "{name}, seed {seed}, execution {executions}: {:?}",
            String::from_utf8_lossy(&bytes)
        );
        executions += 1;
    }
    println!("{name}: {executions} executions");
    assert!(executions > 20, "{name} is too slow: {executions}");
}

#[test]
fn cfg() {
    run("cfg", haplane_fuzz::cfg, CFG);
}

#[test]
fn enroll() {
    run("enroll", haplane_fuzz::enroll, CFG);
}

#[test]
fn state_file() {
    run("state_file", haplane_fuzz::state_file, STATE);
}

#[test]
fn server_state() {
    run("server_state", haplane_fuzz::server_state, STATE);
}

#[test]
fn stat_csv() {
    run("stat_csv", haplane_fuzz::stat_csv, STAT);
}

#[test]
fn show_info() {
    run("show_info", haplane_fuzz::show_info, INFO);
}

#[test]
fn agent_line() {
    run("agent_line", haplane_fuzz::agent_line, LINES);
}
