//! A good client among thousands that are silent, or send a byte now and then.
//!
//! The agent ends each of them after a second, and they come back: so this is also some thousands of
//! connections a second, made by another process on the same cores.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use haplane_testkit::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answers::ask;
use crate::figures::{Durations, durations, line};
use crate::subject::{Subject, this_program};

/// So many that about 4,000 are connected while the others are on their way back.
const CROWD: u32 = 4_150;
/// Before it comes back, up to: without it every hiccup of the machine would bring more of them into
/// step, until all come at once.
const AWAY: Duration = Duration::from_millis(150);
const LASTING: Duration = Duration::from_secs(6);
/// Between two asks of the good client.
const PAUSE: Duration = Duration::from_millis(5);
/// An ask without an answer counts as long as HAProxy would wait.
const UNANSWERED: Duration = Duration::from_secs(2);
/// Between two bytes of a slow client.
const SLOW: Duration = Duration::from_millis(400);

/// Measures the good client alone, then in the crowd.
pub(crate) async fn measure(agent: &Subject) {
    durations("alone", &good_client(agent.address()).await);
    let folder = tempfile::tempdir().expect("a folder");
    let crowd = this_program("crowd", agent.address());
    let crowd = Process::spawn("the crowd", crowd, &folder.path().join("log"));
    let begun = Instant::now();
    let mut open = agent.open_files();
    while open < 3_800 && begun.elapsed() < LASTING {
        tokio::time::sleep(Duration::from_millis(20)).await;
        open = agent.open_files();
    }
    let (cpu, begun) = (agent.cpu_seconds(), Instant::now());
    let floor = Subject::floor().await;
    let (among, beside) = tokio::join!(good_client(agent.address()), good_client(floor.address()));
    let share = (agent.cpu_seconds() - cpu) / begun.elapsed().as_secs_f64();
    durations(&format!("with {open} files open in the agent"), &among);
    // What the crowd's own work on these cores costs a program that has no crowd to serve.
    durations("the floor, without a crowd, meanwhile", &beside);
    line(
        "the agent's share of a core meanwhile",
        format!("{:.0} %", share * 100.0),
    );
    line("its memory", format!("{} KiB", agent.resident_kib()));
    drop(crowd);
}

async fn good_client(agent: SocketAddr) -> Durations {
    // On a thread of its own, that the runtime's tasks do not delay.
    let asks = tokio::task::spawn_blocking(move || {
        let (mut took, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < LASTING {
            let asked = Instant::now();
            let answered = ask(agent, b"web/a canary\n");
            took.push(answered.map_or(UNANSWERED, |()| asked.elapsed()));
            std::thread::sleep(PAUSE);
        }
        Durations::new(took)
    });
    asks.await.expect("the good client")
}

/// The crowd, for as long as the process lives.
pub(crate) async fn come_and_stay(address: &str) {
    let agent: SocketAddr = address.parse().expect("an address");
    let clients: Vec<_> = (0..CROWD)
        .map(|number| tokio::spawn(bad_client(agent, number)))
        .collect();
    for client in clients {
        // None of them ends.
        drop(client.await);
    }
}

/// Connects in its turn within a second, and says nothing, or a byte now and then, until it is thrown out; then comes back.
async fn bad_client(agent: SocketAddr, number: u32) {
    let is_slow = number % 2 == 1;
    tokio::time::sleep(Duration::from_secs(1) * number / CROWD).await;
    loop {
        if let Ok(mut stream) = TcpStream::connect(agent).await {
            let mut nothing = [0; 16];
            while !is_slow || stream.write_all(b"w").await.is_ok() {
                let closed = stream.read(&mut nothing);
                if tokio::time::timeout(SLOW, closed).await.is_ok() {
                    break;
                }
            }
        }
        tokio::time::sleep(AWAY.mul_f64(fastrand::f64())).await;
    }
}
