//! The responder over real sockets.

use std::net::Ipv4Addr;

use haplane_core::snapshot::{Pair, Snapshot};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::*;

struct Running {
    address: SocketAddr,
    registry: Registry,
    rows: Arc<Mutex<Rows>>,
    served: watch::Sender<Served>,
    stop: CancellationToken,
    ended: std::sync::mpsc::Receiver<()>,
}

fn served(pairs: &[(&str, &str)]) -> Served {
    let pairs = pairs.iter().map(|(path, value)| Pair {
        path: (*path).to_owned(),
        value: value.as_bytes().to_vec(),
        version: 1,
        log_id: None,
    });
    Served {
        snapshot: Arc::new(Snapshot::new(1, pairs)),
        since: Instant::now(),
    }
}

fn running(max_connections: usize, pairs: &[(&str, &str)]) -> Running {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let (sender, receiver) = watch::channel(served(pairs));
    let rows = Arc::new(Mutex::new(Rows::default()));
    let (_, views) = watch::channel(haplane_store::View::default());
    let shared = Shared {
        served: receiver,
        readable: Arc::new(Readable::new(false, views)),
        policy: Policy::default(),
        rows: Arc::clone(&rows),
        metrics,
        pulse: Pulse::default(),
    };
    let bound = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = bound.address();
    let stop = CancellationToken::new();
    let (running, ended) = std::sync::mpsc::channel();
    start(bound, shared, max_connections, stop.clone(), running).unwrap();
    Running {
        address,
        registry,
        rows,
        served: sender,
        stop,
        ended,
    }
}

impl Running {
    async fn ask(&self, bytes: &[u8]) -> Vec<u8> {
        ask(self.address, bytes).await
    }

    fn metric(&self, line: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines()
            .find_map(|found| found.strip_prefix(line))
            .map_or(0, |value| value.trim().parse().unwrap())
    }
}

async fn ask(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut answer))
        .await
        .expect("the responder closes")
        .unwrap_or_default();
    answer
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        // Disconnects when the thread has ended.
        let _ = self.ended.recv_timeout(Duration::from_secs(10));
    }
}

#[tokio::test]
async fn bound_is_not_listening() {
    let bound = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let refused = TcpStream::connect(bound.address()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn answers_and_remembers() {
    let agent = running(16, &[("canary", "drain")]);
    assert_eq!(agent.ask(b"web/a canary\n").await, b"drain\n");
    assert_eq!(agent.ask(b"web/a canary\r\n").await, b"drain\n");
    assert_eq!(agent.ask(b"web/a canary").await, b"drain\n");
    agent.served.send_replace(served(&[("canary", "50%")]));
    assert_eq!(agent.ask(b"web/a canary\n").await, b"ready 50%\n");
    assert_eq!(agent.metric("haplane_answers_total{answer=\"drain\"}"), 3);
    assert_eq!(agent.metric("haplane_answers_total{answer=\"weight\"}"), 1);
    assert_eq!(agent.metric("haplane_unterminated_lines_total"), 1);
    let rows = agent.rows.lock().unwrap().list();
    assert_eq!(rows.iter().map(|row| row.asks).sum::<u64>(), 4);
}

#[tokio::test]
async fn what_is_not_understood_is_refused_without_a_byte_and_counted() {
    let agent = running(16, &[]);
    let keys_17 = format!("{}\n", ["k"; 17].join(" "));
    let too_long = vec![b'k'; 5000];
    let cases: [(&[u8], &str); 7] = [
        (b"\n", "empty"),
        (b"web/\xff\n", "not_utf8"),
        (&too_long, "too_long"),
        (keys_17.as_bytes(), "too_many_words"),
        (b"\x00\x01\x02\n", "bad_key"),
        (b"web/a @down\n", "bad_word"),
        (b"web/a @free\n", "free_not_first"),
    ];
    for (line, reason) in cases {
        assert_eq!(agent.ask(line).await, b"", "{reason}");
        let metric = format!("haplane_refused_total{{reason=\"{reason}\"}}");
        assert_eq!(agent.metric(&metric), 1, "{reason}");
    }
    assert!(agent.rows.lock().unwrap().len() == 0);
}

#[tokio::test]
async fn silent_clients_do_not_keep_a_good_one_waiting() {
    let places = 32;
    let agent = running(places, &[("web/a", "maint")]);
    let mut silent = Vec::new();
    for _ in 0..places * 3 {
        silent.push(TcpStream::connect(agent.address).await.unwrap());
    }
    assert_eq!(agent.ask(b"web/a\n").await, b"maint\n");
    assert!(agent.metric("haplane_refused_total{reason=\"max_connections\"}") > 0);
    drop(silent);
    assert_eq!(agent.ask(b"web/a\n").await, b"maint\n");
}

#[tokio::test]
async fn a_silent_client_is_closed_at_the_deadline() {
    let agent = running(16, &[]);
    assert_eq!(agent.ask(b"").await, b"");
    assert_eq!(agent.metric("haplane_refused_total{reason=\"timeout\"}"), 1);
}

#[tokio::test]
async fn two_thousand_at_once_are_all_answered() {
    let agent = running(4096, &[("canary", "drain")]);
    let address = agent.address;
    haplane_daemon::limits::raise_open_files();
    let mut asks = JoinSet::new();
    for n in 0..2000 {
        asks.spawn(async move {
            let line = format!("web/s{n} canary\n");
            // A client that this machine keeps from writing for a second is closed; as HAProxy does, it asks again.
            loop {
                let answer = ask(address, line.as_bytes()).await;
                if !answer.is_empty() {
                    break answer;
                }
            }
        });
    }
    let answers = timeout(Duration::from_secs(30), asks.join_all()).await;
    let answers = answers.expect("all are answered");
    assert!(answers.iter().all(|answer| answer == b"drain\n"));
    assert_eq!(agent.rows.lock().unwrap().len(), 2000);
}
