//! A host list becomes slots in rotation, and follows every change.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::Version;
use haplane_testkit::origin::Origin;
use haplane_testkit::traffic::{Traffic, send};

use crate::stage::{PATIENCE, Slots, Stage, origins, refs};

/// What the metrics page holds after the first test.
const METRICS: [&str; 11] = [
    "haplane_sync_slots{pool=\"web\",state=\"active\"} 4",
    "haplane_sync_slots{pool=\"web\",state=\"free\"} 0",
    "haplane_sync_instances{pool=\"web\"} 4",
    "haplane_sync_homeless{pool=\"web\"} 0",
    "haplane_sync_held{pool=\"web\",reason=\"empty\"} 0",
    "haplane_sync_haproxy_up{",
    "haplane_sync_last_success_timestamp_seconds{pool=\"web\"} ",
    "haplane_sync_heartbeat_timestamp_seconds ",
    "haplane_sync_steps_total{pool=\"web\",kind=\"fill\",result=\"ok\"}",
    "haplane_sync_apply_seconds_count",
    "haplane_sync_propagation_seconds_count",
];

#[tokio::test]
async fn instances_come_stay_and_go() {
    for version in Version::ALL {
        let mut stage = Stage::new(version, Slots::plain(4)).await;
        let origins = origins(6);
        stage.list(&refs(&origins[..3]));
        stage.start("", "");
        stage.serves(&refs(&origins[..3])).await;
        let shares = send(stage.frontend.address(), 30).await;
        assert_eq!((shares.of("i0"), shares.failed()), (10, 0), "{version:?}");

        // Full: what was served stays served, the rest is listed.
        let before: BTreeSet<_> = slots_of(&stage, &["i0", "i1", "i2"]).await;
        stage.list(&refs(&origins));
        let homeless = eventually("homeless instances are listed", PATIENCE, || async {
            let pool = stage.pool().await;
            let homeless = pool["processes"][0]["homeless"].as_array().unwrap().clone();
            if homeless.len() == 2 {
                Ok(homeless)
            } else {
                Err(pool)
            }
        })
        .await;
        assert!(
            homeless
                .iter()
                .all(|homeless| homeless["since"].is_string())
        );
        assert_eq!(slots_of(&stage, &["i0", "i1", "i2"]).await, before);

        // Everything is replaced in one step, while full.
        stage.list(&refs(&origins[2..]));
        stage.serves(&refs(&origins[2..])).await;
        stage.list(&refs(&origins[..4]));
        stage.serves(&refs(&origins[..4])).await;
        assert_eq!(stage.get("/readyz").await, (200, "ready\n".into()));
        eventually("the metrics say so", PATIENCE, || async {
            let (_, metrics) = stage.get("/metrics").await;
            let missing: Vec<_> = METRICS
                .iter()
                .filter(|line| !metrics.contains(**line))
                .collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err((missing, metrics))
            }
        })
        .await;
        stage.stop().await;
    }
}

/// Which slots these instances are in.
async fn slots_of(stage: &Stage, ids: &[&str]) -> BTreeSet<(String, String)> {
    let pool = stage.pool().await;
    let slots = pool["processes"][0]["slots"].as_array().unwrap().clone();
    slots
        .iter()
        .filter_map(|slot| {
            Some((
                slot["slot"].as_str()?.to_owned(),
                slot["instance"].as_str()?.to_owned(),
            ))
        })
        .filter(|(_, id)| ids.contains(&id.as_str()))
        .collect()
}

/// Nobody asks an endpoint before its first passed check, or after it left.
#[tokio::test]
async fn no_request_before_the_first_passed_check_nor_after_leaving() {
    let slots = Slots::checked(3, "check inter 150ms rise 2 fall 2");
    for version in Version::ALL {
        let mut stage = Stage::new(version, slots).await;
        let origins = origins(3);
        origins[1].set_healthy(false);
        stage.list(&refs(&origins[..1]));
        stage.start("", "");
        stage.serves(&refs(&origins[..1])).await;
        eventually("the first instance serves", PATIENCE, || async {
            let shares = send(stage.frontend.address(), 5).await;
            if shares.failed() == 0 {
                Ok(())
            } else {
                Err(shares)
            }
        })
        .await;
        let traffic = Traffic::start(stage.frontend.address(), 4, Duration::from_millis(2));

        // It joins while it is not healthy: HAProxy must not send it anything.
        stage.list(&refs(&origins[..2]));
        eventually(
            "the second instance was checked and found down",
            PATIENCE,
            || async {
                let down = servers_down(&stage, &origins[1]).await;
                if down {
                    Ok(())
                } else {
                    Err(stage.in_rotation().await)
                }
            },
        )
        .await;
        assert_eq!(origins[1].served(), 0, "{version:?}");
        origins[1].set_healthy(true);
        eventually(
            "the second instance serves once it is healthy",
            PATIENCE,
            || async {
                if origins[1].served() > 20 {
                    Ok(())
                } else {
                    Err(origins[1].served())
                }
            },
        )
        .await;

        // It leaves, and another one takes its place: no request reaches it any more.
        stage.list(&[&origins[0], &origins[2]]);
        stage.serves(&[&origins[0], &origins[2]]).await;
        let left_with = origins[1].served();
        eventually("the third instance serves", PATIENCE, || async {
            if origins[2].served() > 20 {
                Ok(())
            } else {
                Err(origins[2].served())
            }
        })
        .await;
        assert_eq!(origins[1].served(), left_with, "{version:?}");
        let shares = traffic.stop().await;
        assert_eq!(shares.failed(), 0, "{version:?} {shares:?}");
        stage.stop().await;
    }
}

async fn servers_down(stage: &Stage, origin: &Origin) -> bool {
    let port = origin.address().port().to_string();
    stage.haproxy.servers().await.iter().any(|server| {
        server.get("srv_port") == port
            && server.number("srv_op_state") == 0
            && server.number("srv_admin_state") & 1 == 0
            // The last check of this address failed.
            && server.number("srv_check_result") == 2
    })
}

/// Sessions of an instance that left go on for the grace, and its slot waits for them.
#[tokio::test]
async fn a_slot_with_sessions_waits_until_they_end_or_are_cut() {
    let mut stage = Stage::new(Version::V28, Slots::plain(1)).await;
    let origins = origins(2);
    stage.list(&refs(&origins[..1]));
    stage.start("", "drain_grace = \"1500ms\"");
    stage.serves(&refs(&origins[..1])).await;
    let frontend = stage.frontend.address();
    let long = tokio::spawn(async move {
        let request = haplane_testkit::http::Request::get("/long?pieces=40&pause_ms=100");
        request
            .send(&haplane_testkit::http::Target::Tcp(frontend))
            .await
    });
    eventually("the long answer has begun", PATIENCE, || async {
        if origins[0].served() == 1 {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    let left = std::time::Instant::now();
    stage.list(&refs(&origins[1..]));
    eventually("the slot drains", PATIENCE, || async {
        let pool = stage.pool().await;
        let state = pool["processes"][0]["slots"][0]["state"].clone();
        if state == "draining" {
            Ok(())
        } else {
            Err(pool)
        }
    })
    .await;
    assert_eq!(stage.in_rotation().await, Vec::<String>::new());
    stage.serves(&refs(&origins[1..])).await;
    assert!(
        left.elapsed() > Duration::from_millis(1400),
        "{:?}",
        left.elapsed()
    );
    let cut = long.await.unwrap();
    assert!(cut.is_err() || cut.unwrap().body.len() < 40);
    stage.stop().await;
}

/// What a person changes by hand is put right, or left and shown.
#[tokio::test]
async fn changes_by_hand() {
    let mut stage = Stage::new(Version::V28, Slots::plain(3)).await;
    let origins = origins(2);
    stage.list(&refs(&origins));
    stage.start("", "");
    stage.serves(&refs(&origins)).await;
    for command in [
        "set server web/web-1 state maint",
        "set server web/web-2 addr 127.0.0.1 port 9",
        "set server web/web-3 state ready",
        "set server web/web-1 weight 7",
    ] {
        stage.haproxy.command(command).await;
        stage.serves(&refs(&origins)).await;
    }
    eventually("the weight is put right", PATIENCE, || async {
        let weight = stage
            .haproxy
            .server("web/web-1")
            .await
            .number("srv_uweight");
        if weight == 100 { Ok(()) } else { Err(weight) }
    })
    .await;
    stage.stop().await;

    stage.start("", "by_hand = \"leave\"");
    stage.is_ready().await;
    stage
        .haproxy
        .command("set server web/web-1 state maint")
        .await;
    eventually("the change is shown", PATIENCE, || async {
        let pool = stage.pool().await;
        if pool["processes"][0]["by_hand"][0] == "web-1" {
            Ok(())
        } else {
            Err(pool)
        }
    })
    .await;
    assert_eq!(stage.in_rotation().await.len(), 1);
    stage.stop().await;
}

/// A static balance algorithm refuses weights; the instance is served all the same, and it is said.
#[tokio::test]
async fn a_weight_that_is_refused_keeps_nobody_out() {
    let mut stage = Stage::new(Version::V28, Slots::plain(3)).await;
    let frontend = haplane_testkit::ports::Port::reserve();
    let text = format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
         frontend in\n bind {}\n default_backend web\n\
         backend web\n balance source\n server-template web- 1-3 127.0.0.1:1 disabled weight 100\n",
        frontend.address()
    );
    stage
        .haproxy
        .reload_with(haplane_testkit::haproxy::Config::new(&text))
        .await;
    let origins = origins(2);
    stage.write_hosts(&format!(
        "{} id=i0\n{} id=i1 weight=40\n",
        origins[0].address(),
        origins[1].address()
    ));
    stage.start("", "");
    stage.serves(&refs(&origins)).await;
    let error = stage.process_error().await;
    assert!(error.contains("static LB algorithm"), "{error}");
    stage.stop().await;
}

/// Between two commands of one line HAProxy serves requests: opened again and again under load, an instance that never
/// passed a check gets none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_in_the_moment_of_opening() {
    let slots = Slots::checked(2, "check inter 100ms rise 1");
    for version in Version::ALL {
        let mut stage = Stage::new(version, slots).await;
        let origins = origins(2);
        for origin in &origins {
            origin.set_healthy(false);
        }
        stage.list(&refs(&origins[..1]));
        stage.start("", "flap_window = \"off\"");
        let traffic = Traffic::start(stage.frontend.address(), 16, Duration::ZERO);
        for round in 0..50 {
            let now = round % 2;
            stage.list(&refs(&origins[now..=now]));
            stage.serves(&refs(&origins[now..=now])).await;
        }
        let served: Vec<_> = origins.iter().map(Origin::served).collect();
        assert_eq!(served, [0, 0], "{version:?}");
        assert!(traffic.stop().await.failed() > 100, "{version:?}");
        stage.stop().await;
    }
}
