//! What HAProxy asked before an instance left and hears afterwards reaches nobody: neither the answer of a slow agent
//! to the words from before, nor a health check of the address from before.

use std::time::Duration;

use haplane_testkit::agent_peer::{RecordingAgent, Say};
use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::Version;
use haplane_testkit::origin::Origin;
use haplane_testkit::traffic::Traffic;

use crate::stage::{PATIENCE, Slots, Stage, origins, refs, responder};

/// Its answer about `i1` is under way when `i1` leaves, and says `ready`.
async fn an_instance_leaves_while_its_answer_is_under_way(
    version: Version,
    check: &'static str,
    pool: &str,
    slots: impl FnOnce(&RecordingAgent) -> Slots,
) {
    let agent = responder();
    let case = format!("{version:?}, {check:?}, {pool}");
    let mut stage = Stage::new(version, slots(&agent)).await;
    let origins = origins(2);
    stage.list(&refs(&origins));
    let parameters = format!(
        "{check} weight 100 agent-check agent-addr 127.0.0.1 agent-port {} agent-inter 200ms",
        agent.address().port()
    );
    stage.start(
        &format!("agent = \"{}\"", agent.address()),
        &pool.replace("{parameters}", &parameters),
    );
    stage.serves_up(&refs(&origins)).await;
    let traffic = Traffic::start(stage.frontend.address(), 3, Duration::from_millis(1));
    serves_on(&origins).await;

    agent.say("web/i1", Say::WhenReleased("ready 100%\n".into()));
    let before = agent.asked("web/i1");
    eventually("an ask about i1 is under way", PATIENCE, || async {
        let asked = agent.asked("web/i1");
        if asked > before { Ok(()) } else { Err(asked) }
    })
    .await;
    stage.list(&refs(&origins[..1]));
    stage.serves(&refs(&origins[..1])).await;
    no_session_at(&stage, &origins[1]).await;
    let served = origins[1].served();
    serves_on(&origins[..1]).await;
    assert_eq!(origins[1].served(), served, "{case}: before the answer");

    agent.release();
    eventually("the answer was heard", PATIENCE, || async {
        let asking = slots_at(&stage, &origins[1])
            .await
            .iter()
            .any(|(_, asking)| *asking);
        if asking { Err(()) } else { Ok(()) }
    })
    .await;
    serves_on(&origins[..1]).await;
    stage.serves(&refs(&origins[..1])).await;
    assert_eq!(origins[1].served(), served, "{case}: after the answer");

    // It comes back, and serves as before.
    agent.say("web/i1", Say::Text("ready 100%\n".into()));
    stage.list(&refs(&origins));
    serves_on(&origins).await;
    let shares = traffic.stop().await;
    assert_eq!(shares.failed(), 0, "{case}: {shares:?}");
    stage.stop().await;
}

/// Each of them serves many more requests.
async fn serves_on(origins: &[Origin]) {
    for origin in origins {
        let served = origin.served();
        eventually("it serves", PATIENCE, || async {
            let more = origin.served() - served;
            if more > 100 { Ok(()) } else { Err(more) }
        })
        .await;
    }
}

/// The slots that point at an origin, and whether an ask of theirs is under way.
async fn slots_at(stage: &Stage, origin: &Origin) -> Vec<(String, bool)> {
    let port = origin.address().port().to_string();
    let servers = stage.haproxy.servers().await;
    servers
        .iter()
        .filter(|server| server.get("srv_port") == port)
        .map(|server| {
            let asking = server.number("srv_agent_state") & 1 == 1;
            (server.get("srv_name").to_owned(), asking)
        })
        .collect()
}

/// What was on its way to an origin when it left has arrived.
async fn no_session_at(stage: &Stage, origin: &Origin) {
    for (server, _) in slots_at(stage, origin).await {
        eventually("its sessions have ended", PATIENCE, || async {
            let row = stage.haproxy.stat(&format!("web/{server}")).await;
            if row.get("scur") == "0" {
                Ok(())
            } else {
                Err(row.get("scur").to_owned())
            }
        })
        .await;
    }
}

const CHECKS: [&str; 2] = ["", "check inter 100ms rise 1"];

#[tokio::test]
async fn no_late_answer_opens_the_slot_of_an_instance_that_left() {
    for version in Version::ALL {
        for check in CHECKS {
            an_instance_leaves_while_its_answer_is_under_way(version, check, "", |agent| Slots {
                count: 3,
                check,
                agent: Some(agent.address().port()),
            })
            .await;
        }
    }
}

#[tokio::test]
async fn no_late_answer_opens_a_dynamic_server_whose_instance_left() {
    let pool = "mode = \"dynamic\"\nslots = \"dyn-\"\nserver_parameters = \"{parameters}\"";
    for version in Version::ALL {
        for check in CHECKS {
            an_instance_leaves_while_its_answer_is_under_way(version, check, pool, |_| {
                Slots::plain(1)
            })
            .await;
        }
    }
}

/// A check of the address from before is under way when its slot is wanted for another instance, and passes.
#[tokio::test]
async fn no_late_health_check_brings_up_the_next_instance() {
    for version in Version::ALL {
        let slots = Slots {
            count: 1,
            check: "check inter 100ms rise 1",
            agent: None,
        };
        let mut stage = Stage::new(version, slots).await;
        let origins = origins(2);
        origins[1].set_healthy(false);
        stage.list(&refs(&origins[..1]));
        stage.start("", "");
        stage.serves_up(&refs(&origins[..1])).await;
        let traffic = Traffic::start(stage.frontend.address(), 3, Duration::from_millis(1));

        origins[0].hold_health(true);
        let before = origins[0].checked();
        eventually("a check is under way", PATIENCE, || async {
            let checked = origins[0].checked();
            if checked > before {
                Ok(())
            } else {
                Err(checked)
            }
        })
        .await;
        stage.list(&refs(&origins[1..]));
        eventually("the first one is out", PATIENCE, || async {
            let address = origins[0].address().to_string();
            let seen = stage.in_rotation().await;
            if seen.contains(&address) {
                Err(seen)
            } else {
                Ok(())
            }
        })
        .await;
        asked_nothing(&origins[1]).await;
        origins[0].hold_health(false);
        stage.serves(&refs(&origins[1..])).await;
        asked_nothing(&origins[1]).await;
        origins[1].set_healthy(true);
        serves_on(&origins[1..]).await;
        drop(traffic);
        stage.stop().await;
    }
}

/// For a while, and all the time before.
async fn asked_nothing(origin: &Origin) {
    throughout(
        "nothing was asked of it",
        Duration::from_millis(300),
        || async {
            match origin.served() {
                0 => Ok(()),
                served => Err(served),
            }
        },
    )
    .await;
}
