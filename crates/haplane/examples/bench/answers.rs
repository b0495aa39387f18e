//! Answers a second, and what one costs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::figures::{Durations, durations, line};
use crate::subject::Subject;

const CLIENTS: usize = 8;
const LASTING: Duration = Duration::from_secs(4);

/// The peer, the agent, and both again.
pub(crate) async fn measure(agent: &Subject) {
    let floor = Subject::floor().await;
    for _ in 0..2 {
        of("floor", &floor).await;
        of("agent", agent).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of answers")]
async fn of(name: &str, subject: &Subject) {
    let (address, before, begun) = (subject.address(), subject.cpu_seconds(), Instant::now());
    let clients = (0..CLIENTS)
        .map(|client| tokio::task::spawn_blocking(move || asks(address, client, begun + LASTING)));
    let clients: Vec<_> = clients.collect();
    let mut took = Vec::new();
    for client in clients {
        took.extend(client.await.expect("a client"));
    }
    let (elapsed, cpu) = (
        begun.elapsed().as_secs_f64(),
        subject.cpu_seconds() - before,
    );
    let answers = took.len() as f64;
    line(
        &format!("{name}: answers a second, processor time of one"),
        format!("{:.0}/s, {:.1} µs", answers / elapsed, cpu * 1e6 / answers),
    );
    durations(&format!("{name}: one ask"), &Durations::new(took));
}

/// Asks until the end, one after the other.
fn asks(address: SocketAddr, client: usize, until: Instant) -> Vec<Duration> {
    let words = format!("web/server-{client} canary\n");
    let mut took = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        if ask(address, words.as_bytes()).is_ok() {
            took.push(begun.elapsed());
        }
    }
    took
}

/// One ask, on this thread: connects, sends, and reads until the line is there.
pub(crate) fn ask(address: SocketAddr, words: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(words)?;
    let mut answer = [0; 64];
    let mut read = 0;
    while !answer.get(..read).unwrap_or_default().contains(&b'\n') {
        match stream.read(answer.get_mut(read..).unwrap_or_default())? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            more => read += more,
        }
    }
    Ok(())
}
