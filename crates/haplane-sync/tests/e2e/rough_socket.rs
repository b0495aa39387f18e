//! A socket between the synchroniser and HAProxy that loses commands, cuts batches and swallows answers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use haplane_testkit::agent_peer::RecordingAgent;
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::stage::{PATIENCE, Slots, Stage, origins, refs, responder};

/// What happens to every third connection, in turn.
const MISHAPS: u32 = 4;

/// Listens at `path` and passes connections on to `haproxy`, more or less.
fn rough(path: &std::path::Path, haproxy: PathBuf) -> Arc<AtomicU32> {
    let listener = UnixListener::bind(path).unwrap();
    let mishaps = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&mishaps);
    tokio::spawn(async move {
        let mut number = 0_u32;
        while let Ok((client, _)) = listener.accept().await {
            number += 1;
            let mishap = number
                .is_multiple_of(3)
                .then(|| count.fetch_add(1, Ordering::Relaxed) % MISHAPS);
            let haproxy = haproxy.clone();
            tokio::spawn(async move {
                // Whatever breaks here is what the test is about.
                let _broken = pass_on(client, &haproxy, mishap).await;
            });
        }
    });
    mishaps
}

async fn pass_on(
    mut client: UnixStream,
    haproxy: &std::path::Path,
    mishap: Option<u32>,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    let mut buffer = vec![0; 16_384];
    while !line.ends_with(b"\n") {
        let read = client.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        line.extend_from_slice(&buffer[..read]);
    }
    if mishap == Some(0) {
        // Lost on the way.
        return Ok(());
    }
    if mishap == Some(1) {
        // Only the first half of the commands arrives.
        let commands: Vec<_> = line
            .split(|byte| *byte == b';')
            .map(<[u8]>::to_vec)
            .collect();
        line = commands[..commands.len().div_ceil(2)].join(&b';');
        line.push(b'\n');
    }
    let mut server = UnixStream::connect(haproxy).await?;
    server.write_all(&line).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    match mishap {
        // Done, and nobody hears of it.
        Some(2) => Ok(()),
        Some(3) => client.write_all(&answer[..answer.len() / 2]).await,
        _ => client.write_all(&answer).await,
    }
}

#[tokio::test]
async fn lost_cut_and_unanswered_commands_are_repaired() {
    let agent = responder();
    tokio::join!(
        everything_is_repaired(None),
        everything_is_repaired(Some(&agent))
    );
}

async fn everything_is_repaired(agent: Option<&RecordingAgent>) {
    let slots = Slots {
        agent: agent.map(|agent| agent.address().port()),
        ..Slots::checked(6, "check inter 100ms rise 1 fall 2")
    };
    let mut stage = Stage::new(Version::V28, slots).await;
    let path = stage.dir.path().join("rough.sock");
    let mishaps = rough(&path, stage.haproxy.admin_socket());
    let origins = origins(9);
    stage.list(&refs(&origins[..4]));
    let asked = agent
        .map(|agent| agent.address().to_string())
        .unwrap_or_default();
    stage.start(
        &format!("socket = \"{}\"\nagent = \"{asked}\"", path.display()),
        "flap_window = \"off\"",
    );
    for round in 0..6 {
        let list: Vec<_> = (0..4).map(|n| &origins[(round * 2 + n) % 9]).collect();
        stage.list(&list);
        stage.serves(&list).await;
    }
    assert!(mishaps.load(Ordering::Relaxed) > 10);
    let last: Vec<_> = (0..4).map(|n| &origins[(10 + n) % 9]).collect();
    stage.serves_up(&last).await;
    eventually("it knows that all is well", PATIENCE, || async {
        let pool = stage.pool().await;
        let slots = pool["processes"][0]["slots"].as_array().unwrap().clone();
        let active = slots
            .iter()
            .filter(|slot| slot["state"] == "active")
            .count();
        if active == 4 { Ok(()) } else { Err(pool) }
    })
    .await;
    stage.stop().await;
}
