//! Every way in which a socket gives no answer has a name, and ends in time.

use std::path::PathBuf;
use std::time::Duration;

use haplane_haproxy::AdminState;
use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_runtime::{Change, Limits, Socket};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::changes::SLOTS;

const QUICK: Limits = Limits {
    within: Duration::from_millis(400),
    bytes: 1 << 20,
};

async fn kind(socket: &Socket) -> &'static str {
    socket
        .clone()
        .with_limits(QUICK)
        .ask("show info")
        .await
        .unwrap_err()
        .kind()
}

/// A socket that reads a command, says `text`, and then closes or hangs.
fn speaking(dir: &tempfile::TempDir, text: &'static str, closes: bool) -> PathBuf {
    let path = dir.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut line = [0; 4096];
            let _read = stream.read(&mut line).await;
            let _written = stream.write_all(text.as_bytes()).await;
            if !closes {
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
        }
    });
    path
}

#[tokio::test]
async fn nobody_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    assert_eq!(kind(&Socket::new(&path)).await, "absent");
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(kind(&Socket::new(&path)).await, "refused");
}

#[tokio::test]
async fn somebody_who_does_not_answer_whole() {
    for (text, closes, expected) in [
        ("", false, "hung"),
        ("Name: HAProxy\n", false, "hung"),
        ("", true, "incomplete"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            kind(&Socket::new(speaking(&dir, text, closes))).await,
            expected,
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn a_batch_that_is_cut_off_says_nothing_about_any_of_its_commands() {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::new(speaking(&dir, "\n\n", true)).with_limits(QUICK);
    let command = |state| {
        vec![Command::new(
            "web/w-1".parse().unwrap(),
            Action::State(state),
        )]
    };
    let changes = socket
        .change(&[command(AdminState::Maint), command(AdminState::Ready)])
        .await;
    assert!(
        changes
            .iter()
            .all(|change| matches!(change, Change::Unknown(_))),
        "{changes:?}"
    );
}

#[tokio::test]
async fn every_connection_taken_by_others() {
    let haproxy = Haproxy::start(Version::V28, Config::new(SLOTS)).await;
    let socket = Socket::new(haproxy.admin_socket());
    let mut others = Vec::new();
    for _ in 0..10 {
        let mut other = UnixStream::connect(haproxy.admin_socket()).await.unwrap();
        other.write_all(b"prompt\n").await.unwrap();
        // Answered: it is one of the ten, not one in the queue.
        assert!(other.read(&mut [0; 64]).await.unwrap() > 0);
        others.push(other);
    }
    assert_eq!(kind(&socket).await, "hung");
    drop(others.pop());
    assert!(socket.ask("show info").await.is_ok());
}
