//! HAProxy reloads, restarts, hangs, or has no connection left.

use std::time::Duration;

use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Haproxy, Version};
use haplane_testkit::ports::Port;
use haplane_testkit::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::stage::{
    PATIENCE, Slots, Stage, host_list, origins, refs, serves_so_many, settings, sockets,
};

#[tokio::test]
async fn reload_and_restart_are_repaired() {
    Version::each(async |version| {
        let mut stage = Stage::new(version, Slots::plain(5)).await;
        let origins = origins(4);
        stage.list(&refs(&origins));
        stage.start("", "");
        stage.serves(&refs(&origins)).await;
        stage.haproxy.reload().await;
        stage.serves(&refs(&origins)).await;
        stage.haproxy.restart().await;
        stage.serves(&refs(&origins)).await;
        let (_, metrics) = stage.get("/metrics").await;
        assert!(
            metrics.contains("haplane_sync_haproxy_restarts_seen{"),
            "{metrics}"
        );
        stage.stop().await;
    })
    .await;
}

#[tokio::test]
async fn through_the_master_also_after_a_reload() {
    let slots = Slots::plain(4);
    let mut stage = Stage::new(Version::V28, slots).await;
    let frontend = Port::reserve();
    let mut behind = Haproxy::start(
        Version::V28,
        slots.config(frontend.number()).master_worker(),
    )
    .await;
    let origins = origins(3);
    stage.list(&refs(&origins));
    stage.start(
        &format!(
            "socket = \"master:{}\"",
            behind.dir().join("master.sock").display()
        ),
        "",
    );
    for _ in 0..2 {
        serves_so_many(&behind, 3).await;
        behind.reload().await;
    }
    stage.stop().await;
}

/// One HAProxy hangs, one has all of its command connections taken, the third is served as if it were alone.
#[tokio::test]
async fn a_hung_process_delays_nobody_else() {
    let slots = Slots::plain(4);
    let mut stage = Stage::new(Version::V28, slots).await;
    let (port_a, port_b) = (Port::reserve(), Port::reserve());
    let mut hung = Haproxy::start(Version::V28, slots.config(port_a.number())).await;
    let busy = Haproxy::start(Version::V28, slots.config(port_b.number())).await;
    let mut others = Vec::new();
    for _ in 0..10 {
        let mut other = UnixStream::connect(busy.admin_socket()).await.unwrap();
        other.write_all(b"prompt\n").await.unwrap();
        assert!(other.read(&mut [0; 64]).await.unwrap() > 0);
        others.push(other);
    }
    hung.process().signal(Signal::STOP);
    let origins = origins(4);
    stage.list(&refs(&origins[..2]));
    let began = std::time::Instant::now();
    stage.start(&sockets(&[&hung, &busy, &stage.haproxy]), "");
    stage.serves(&refs(&origins[..2])).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let (status, text) = stage.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("was never in line"), "{text}");

    // Both come back and are put in line.
    hung.process().signal(Signal::CONT);
    drop(others);
    for haproxy in [&hung, &busy] {
        serves_so_many(haproxy, 2).await;
    }
    stage.stop().await;
}

/// The synchroniser is restarted: it finds everything as it left it and changes nothing.
#[tokio::test]
async fn a_restart_of_the_synchroniser_changes_nothing() {
    let mut stage = Stage::new(Version::V28, Slots::plain(4)).await;
    let origins = origins(3);
    stage.list(&refs(&origins));
    stage.start("", "");
    stage.serves(&refs(&origins)).await;
    let before = addresses(&stage).await;
    stage.stop().await;
    stage.start("", "");
    throughout(
        "every slot stays as it is",
        Duration::from_secs(1),
        || async {
            let now = addresses(&stage).await;
            if now == before { Ok(()) } else { Err(now) }
        },
    )
    .await;
    stage.is_ready().await;
    stage.stop().await;
}

async fn addresses(stage: &Stage) -> Vec<(String, String, i64)> {
    let servers = stage.haproxy.servers().await;
    servers
        .iter()
        .map(|server| {
            (
                server.get("srv_name").to_owned(),
                server.get("srv_port").to_owned(),
                server.number("srv_admin_state"),
            )
        })
        .collect()
}

/// Two processes, one of them just restarted: an empty first list is measured by the one that serves.
#[tokio::test]
async fn a_fresh_process_does_not_make_an_empty_list_look_harmless() {
    let slots = Slots::plain(4);
    let mut stage = Stage::new(Version::V28, slots).await;
    let origins = origins(3);
    stage.list(&refs(&origins));
    stage.start("", "");
    stage.serves(&refs(&origins)).await;
    stage.stop().await;
    let port = Port::reserve();
    let fresh = Haproxy::start(Version::V28, slots.config(port.number())).await;
    stage.write_hosts("[]");
    stage.start(&sockets(&[&fresh, &stage.haproxy]), "");
    eventually("the empty list is held", PATIENCE, || async {
        let pool = stage.pool().await;
        if pool["held"]["reason"] == "empty" && pool["held"]["had"] == 3 {
            Ok(())
        } else {
            Err(pool)
        }
    })
    .await;
    assert_eq!(stage.in_rotation().await.len(), 3);
    stage.stop().await;
}

/// A socket of too low a level: nothing is changed, and it is said why.
#[tokio::test]
async fn a_socket_that_may_not_change_anything() {
    let mut stage = Stage::new(Version::V28, Slots::plain(3)).await;
    let origins = origins(2);
    stage.list(&refs(&origins));
    let socket = format!("socket = \"{}\"", stage.haproxy.user_socket().display());
    stage.start(&socket, "");
    let error = stage.process_error().await;
    assert!(error.contains("Permission denied"), "{error}");
    assert_eq!(stage.in_rotation().await, Vec::<String>::new());
    assert_eq!(stage.get("/readyz").await.0, 503);
    stage.stop().await;
}

/// By mistake two synchronisers keep the same slots, each for its own list. Neither can win, and both say so.
#[tokio::test]
async fn two_synchronisers_on_the_same_slots_are_told() {
    let mut stage = Stage::new(Version::V28, Slots::plain(4)).await;
    let origins = origins(4);
    stage.list(&refs(&origins[..2]));
    let (other, port) = (stage.dir.path().join("other.hosts"), Port::reserve());
    let text = host_list(&refs(&origins[2..]));
    std::fs::write(&other, text).unwrap();
    let second = format!(
        "[sync]\nsocket = \"{}\"\nhttp = \"{}\"\nreconcile = \"200ms\"\nagent = \"\"\n\
         [[pool]]\nname = \"web\"\nbackend = \"web\"\nslots = \"web-\"\nsource = \"file:{}\"\n",
        stage.haproxy.admin_socket().display(),
        port.address(),
        other.display()
    );
    stage.start("", "");
    stage.serves(&refs(&origins[..2])).await;
    let stop = CancellationToken::new();
    let task = tokio::spawn(haplane_sync::run(settings(&second), "test", stop.clone()));
    eventually("it is told", PATIENCE, || async {
        let pool = stage.pool().await;
        let (_, metrics) = stage.get("/metrics").await;
        let contested = pool["processes"][0]["contested"].as_u64();
        let counted = metrics.contains("haplane_sync_contested{pool=\"web\"} 0");
        if contested >= Some(5) && !counted {
            Ok(())
        } else {
            Err(pool)
        }
    })
    .await;
    stop.cancel();
    task.await.unwrap().unwrap();
    // Alone again it puts everything right.
    stage.serves(&refs(&origins[..2])).await;
    stage.stop().await;
}
