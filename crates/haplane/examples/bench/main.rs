//! `make bench`: what an agent costs and how fast it is, on this machine, now.
//!
//! It prints figures and judges nothing. Beside the agent runs a peer, the least program that
//! answers a line: what the machine and its network stack cost without any of our work. The peer is
//! measured before and after the agent, so that the difference between its two figures says how
//! steady the machine was.

#![allow(clippy::print_stdout, reason = "it prints figures")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement may stop where something basic is missing"
)]

mod answers;
mod crowd;
mod figures;
mod floor;
mod memory;
mod observer;
mod propagation;
mod start;
mod subject;

use haplane_testkit::consul::{Consul, Options};

use crate::figures::heading;
use crate::subject::Subject;

fn main() {
    haplane_daemon::limits::raise_open_files();
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Its own peers are this program again, each a process whose processor time is its own.
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["floor", address] => floor::answer(address),
        ["crowd", address] => run(crowd::come_and_stay(address)),
        _ => run(measure()),
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(work);
}

async fn measure() {
    figures::machine();
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(".haplane"), "").expect("a marker");
    let (in_consul, in_folder) = (
        format!("consul:{}", consul.url()),
        format!("dir:{}", folder.path().display()),
    );

    heading("start: from exec to a port that listens");
    start::measure("Consul", &in_consul).await;
    start::measure("directory", &in_folder).await;

    heading("from a write in the store to the changed answer");
    let agent = Subject::on(&in_consul).await;
    propagation::measure("Consul", &agent, async |value| {
        consul.put("haplane/state/canary", value).await;
    })
    .await;
    let beside = Subject::on(&in_folder).await;
    propagation::measure("directory", &beside, async |value| {
        // As a person does it who is careful: aside, then in place at once.
        let aside = folder.path().join(".aside");
        std::fs::write(&aside, value).expect("to write");
        std::fs::rename(aside, folder.path().join("canary")).expect("to rename");
    })
    .await;
    drop(beside);

    heading("answers: as many as eight clients get, each ask a connection of its own");
    answers::measure(&agent).await;

    heading("a good client while 4,000 connections are silent or slow");
    crowd::measure(&agent).await;

    heading("memory");
    memory::measure(&consul, &in_consul).await;

    heading("the observer: looking at a real HAProxy 2.8 that asks every two seconds");
    for rows in [919, 5_000] {
        observer::measure(rows, &in_folder).await;
    }
    figures::machine();
}
