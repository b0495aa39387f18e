//! A good client among thousands that are silent or send a byte now and then.
//!
//! The agent ends each of them after a second, and they come back at once: so this is also some
//! thousands of connections a second, by this program, on the same cores.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use haplane_testkit::agent_peer::ask;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::figures::{Durations, durations, line};
use crate::subject::Subject;

const CROWD: usize = 4_000;
const LASTING: Duration = Duration::from_secs(6);
/// Between two asks of the good client.
const PAUSE: Duration = Duration::from_millis(5);

/// Measures the good client alone, then in the crowd.
pub(crate) async fn measure(agent: &Subject) {
    durations("alone", &good_client(agent.address()).await);
    let (cpu, begun) = (agent.cpu_seconds(), Instant::now());
    let mut crowd = JoinSet::new();
    for number in 0..CROWD {
        crowd.spawn(bad_client(agent.address(), number));
    }
    let mut open = 0;
    while open < CROWD * 9 / 10 && begun.elapsed() < LASTING {
        open = open_files(agent).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    durations(
        &format!("with {open} files open in the agent"),
        &good_client(agent.address()).await,
    );
    let share = (agent.cpu_seconds() - cpu) / begun.elapsed().as_secs_f64();
    line(
        "the agent's share of a core meanwhile",
        format!("{:.0} %", share * 100.0),
    );
    line("its memory", format!("{} KiB", agent.resident_kib()));
    crowd.shutdown().await;
}

async fn good_client(agent: SocketAddr) -> Durations {
    let (mut took, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < LASTING {
        let asked = Instant::now();
        let answered = ask(agent, b"web/a canary\n").await;
        // An ask without an answer is as long as HAProxy would wait.
        let lasted = if answered.is_ok_and(|line| !line.is_empty()) {
            asked.elapsed()
        } else {
            Duration::from_secs(2)
        };
        took.push(lasted);
        tokio::time::sleep(PAUSE).await;
    }
    Durations::new(took)
}

/// Connects and says nothing, or a byte each 100 ms, until it is thrown out; then comes back.
async fn bad_client(agent: SocketAddr, number: usize) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(agent).await {
            let mut nothing = [0; 16];
            let is_slow = number % 2 == 1;
            while !is_slow || stream.write_all(b"w").await.is_ok() {
                let closed =
                    tokio::time::timeout(Duration::from_millis(100), stream.read(&mut nothing));
                if closed.await.is_ok() {
                    break;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn open_files(agent: &Subject) -> usize {
    let page = agent.page("/metrics").await.unwrap_or_default();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("process_open_fds "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}
