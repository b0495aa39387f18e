//! A seed leaves health checks as they are.

use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::agent_process::PATIENCE;
use crate::command::Haplane;

/// An origin that sends its head and its body in two pieces, as many do. Aborting it closes its port.
async fn origin() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            connection.set_nodelay(true).unwrap();
            let _ = connection.read(&mut [0; 1024]).await;
            let head = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n";
            drop(connection.write_all(head.as_bytes()).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(connection.write_all(b"here\n").await);
        }
    });
    (port, serving)
}

async fn shows(haproxy: &Haproxy, column: &str, value: &str) {
    eventually(&format!("{column} {value}"), PATIENCE, async || {
        let shown = haproxy.stat("web/a").await.get(column).to_owned();
        if shown.starts_with(value) {
            Ok(())
        } else {
            Err(shown)
        }
    })
    .await;
}

/// With a check status that HAProxy does not know from itself, no check has a result any more: a dead origin stays up,
/// and HAProxy may crash.
async fn checks_go_on_after_a_seed(version: Version) {
    let (port, serving) = origin().await;
    let store = tempfile::tempdir().unwrap();
    let haplane = Haplane::on(format!("dir:{}", store.path().display()));
    haplane.run(&["init"]).exits(0);
    haplane.run(&["set", "web/a", "drain", "--force"]).exits(0);
    let config = Config::new(&format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n \
         load-server-state-from-file global\n\
         frontend f\n bind unix@{{dir}}/front.sock\n default_backend web\n\
         backend web\n option httpchk GET /\n \
         server a 127.0.0.1:{port} check inter 100ms fall 2 agent-check agent-port 1 \
         agent-send \"web/a\\n\"\n"
    ))
    .global("server-state-file {dir}/seed");
    let mut haproxy = Haproxy::start(version, config.clone()).await;
    let path = |name: &str| haproxy.dir().join(name).display().to_string();
    haplane
        .run(&["seed", &path("haproxy.cfg"), "-o", &path("seed")])
        .exits(0);
    haproxy.reload_with(config).await;

    shows(&haproxy, "status", "DRAIN").await;
    shows(&haproxy, "check_status", "L7OK").await;
    serving.abort();
    eventually("its death to be seen", PATIENCE, async || {
        let state = haproxy.server("web/a").await.number("srv_op_state");
        if state == 0 { Ok(()) } else { Err(state) }
    })
    .await;
}

#[tokio::test]
async fn checks_go_on_after_a_seed_in_2_8() {
    checks_go_on_after_a_seed(Version::V28).await;
}

#[tokio::test]
async fn checks_go_on_after_a_seed_in_2_6() {
    checks_go_on_after_a_seed(Version::V26).await;
}
