//! Slots whose agent check asks haplane's agent, or one that is slow.

use std::time::Duration;

use haplane_testkit::agent_peer::{RecordingAgent, Say};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::Version;
use haplane_testkit::origin::Origin;
use haplane_testkit::records::Record;
use haplane_testkit::traffic::{Traffic, send};

use crate::stage::{PATIENCE, Slots, Stage, origins, refs, responder};

fn slots(count: usize, agent: &RecordingAgent) -> Slots {
    Slots::checked(count, "check inter 150ms rise 2 fall 2").asking(agent)
}

/// The desired state of an instance follows it into whatever slot.
#[tokio::test]
async fn a_drained_instance_stays_drained_wherever_it_moves() {
    Version::each(async |version| {
        let agent = responder();
        agent.say("web/i1", Say::Text("drain\n".into()));
        agent.say("web/i2", Say::Text("maint\n".into()));
        let mut stage = Stage::new(version, slots(4, &agent)).await;
        let origins = origins(3);
        stage.list(&refs(&origins));
        let sync = format!("agent = \"{}\"", agent.address());
        let traffic = Traffic::start(stage.frontend.address(), 2, Duration::from_millis(2));
        stage.start(&sync, "groups = [\"canary\"]");
        eventually(
            "one serves, one drains, one is in maintenance",
            PATIENCE,
            || async {
                let states = states(&stage).await;
                let expected = [
                    ("i0".into(), "ready".into()),
                    ("i1".into(), "drain".into()),
                    ("i2".into(), "maint".into()),
                ];
                if states == expected {
                    Ok(())
                } else {
                    Err(states)
                }
            },
        )
        .await;
        // HAProxy restarts and has forgotten everything; and again with another number of slots before it.
        stage.haproxy.restart().await;
        eventually("the same after a restart", PATIENCE, || async {
            let states = states(&stage).await;
            if states.len() == 3 && origins[0].served() > 0 {
                Ok(())
            } else {
                Err(states)
            }
        })
        .await;
        stage.list(&[&origins[1], &origins[2]]);
        stage.list(&[&origins[0], &origins[1], &origins[2]]);
        let served = origins[0].served();
        eventually("the first one serves again", PATIENCE, || async {
            if origins[0].served() > served + 20 {
                Ok(())
            } else {
                Err(origins[0].served())
            }
        })
        .await;
        drop(traffic);
        assert_eq!(
            (origins[1].served(), origins[2].served()),
            (0, 0),
            "{version:?}"
        );
        eventually("slots send what they hold", PATIENCE, || async {
            let asks = agent.asks();
            let words = |text: &str| asks.iter().any(|ask| ask.bytes == text.as_bytes());
            if words("web/i1 canary") && words("@free") {
                Ok(())
            } else {
                Err(asks.len())
            }
        })
        .await;
        stage.stop().await;
    })
    .await;
}

/// Instances and what HAProxy's admin state of their slots is, sorted.
async fn states(stage: &Stage) -> Vec<(String, String)> {
    let pool = stage.pool().await;
    let empty = Vec::new();
    let slots = pool["processes"][0]["slots"].as_array().unwrap_or(&empty);
    let mut states: Vec<_> = slots
        .iter()
        .filter(|slot| slot["state"] == "active")
        .filter_map(|slot| {
            Some((
                slot["instance"].as_str()?.to_owned(),
                slot["admin"].as_str()?.to_owned(),
            ))
        })
        .collect();
    states.sort();
    states
}

/// An agent that takes its time makes asks overlap every step; nobody is asked unchecked, and everybody is served.
#[tokio::test]
async fn a_slow_agent_and_much_churn() {
    let agent = responder();
    agent.say_to_all(Say::Text("ready 100%\n".into()));
    let mut stage = Stage::new(Version::V28, slots(4, &agent)).await;
    let origins = origins(8);
    let unhealthy = &origins[7];
    unhealthy.set_healthy(false);
    stage.list(&refs(&origins[..3]));
    stage.start(
        &format!("agent = \"{}\"", agent.address()),
        "max_removal = \"100%\"\nflap_window = \"off\"",
    );
    stage.serves(&refs(&origins[..3])).await;
    eventually("they serve", PATIENCE, || async {
        let shares = send(stage.frontend.address(), 6).await;
        if shares.failed() == 0 {
            Ok(())
        } else {
            Err(shares)
        }
    })
    .await;
    let traffic = Traffic::start(stage.frontend.address(), 2, Duration::from_millis(2));
    for round in 0..12 {
        let mut list: Vec<_> = (0..3).map(|n| &origins[(round + n) % 7]).collect();
        list.push(unhealthy);
        stage.list(&list);
        stage.serves(&list).await;
        let newest = list[2].served();
        eventually("the newcomer serves", PATIENCE, || async {
            let served = origins[(round + 2) % 7].served();
            if served > newest { Ok(()) } else { Err(served) }
        })
        .await;
    }
    let shares = traffic.stop().await;
    assert_eq!(unhealthy.served(), 0);
    assert_eq!(shares.failed(), 0, "{shares:?}");
    stage.stop().await;
}

/// Without an answer a new instance waits for a moment; then it is opened all the same.
#[tokio::test]
async fn a_dead_agent_keeps_nobody_out_for_long() {
    let mut agent = responder();
    let mut stage = Stage::new(Version::V28, slots(2, &agent)).await;
    let origins = origins(2);
    stage.list(&refs(&origins[..1]));
    stage.start(&format!("agent = \"{}\"", agent.address()), "");
    stage.serves(&refs(&origins[..1])).await;
    agent.down().await;
    stage.list(&refs(&origins));
    eventually(
        "the second instance is let in without an answer",
        PATIENCE * 3,
        || async {
            let seen = stage.in_rotation().await;
            if seen.len() == 2 { Ok(()) } else { Err(seen) }
        },
    )
    .await;
    stage.stop().await;
}

/// What the responder said last holds while it is away, also when it said it to HAProxy alone, long after the slot was
/// opened, and also for a synchroniser that starts meanwhile.
#[tokio::test]
async fn a_drain_holds_while_the_agent_is_away() {
    Version::each(async |version| {
        let mut agent = responder();
        let mut stage = Stage::new(version, slots(6, &agent)).await;
        let origins = origins(3);
        stage.list(&refs(&origins));
        let sync = format!("agent = \"{}\"", agent.address());
        stage.start(&sync, "");
        let are = async |stage: &Stage, expected: [&str; 3]| {
            eventually("the states of i0, i1 and i2", PATIENCE * 2, || async {
                let states = states(stage).await;
                let seen: Vec<_> = states.iter().map(|(_, state)| state.as_str()).collect();
                if seen == expected {
                    Ok(())
                } else {
                    Err(states)
                }
            })
            .await;
        };
        are(&stage, ["ready"; 3]).await;
        agent.say("web/i1", Say::Text("drain\n".into()));
        agent.say("web/i2", Say::Text("maint\n".into()));
        are(&stage, ["ready", "drain", "maint"]).await;
        agent.down().await;

        // The same ids at other addresses.
        let moved: Vec<_> = (0..3).map(|n| Origin::start(&format!("i{n}"))).collect();
        stage.list(&refs(&moved));
        are(&stage, ["ready", "drain", "maint"]).await;
        let at = |n: usize| moved[n].address().to_string();
        let addresses = async || {
            let pool = stage.pool().await;
            let slots = pool["processes"][0]["slots"].as_array().unwrap().clone();
            slots
                .iter()
                .filter(|slot| slot["state"] == "active")
                .map(|slot| slot["address"].as_str().unwrap().to_owned())
                .collect::<std::collections::BTreeSet<_>>()
        };
        let expected = std::collections::BTreeSet::from([at(0), at(1), at(2)]);
        eventually("they have moved", PATIENCE, || async {
            let seen = addresses().await;
            if seen == expected { Ok(()) } else { Err(seen) }
        })
        .await;
        are(&stage, ["ready", "drain", "maint"]).await;
        assert_eq!((moved[1].served(), moved[2].served()), (0, 0));

        // A synchroniser that starts now has nobody to ask.
        stage.stop().await;
        stage.start(&sync, "");
        are(&stage, ["ready", "drain", "maint"]).await;
        stage.stop().await;
    })
    .await;
}

/// Held down by its agent check without the agent's word, or without its health check, a slot looks as if it served.
#[tokio::test]
async fn an_enrolled_slot_that_somebody_took_down_is_put_right() {
    Version::each(async |version| {
        let agent = responder();
        let mut stage = Stage::new(version, slots(3, &agent)).await;
        let origins = origins(3);
        stage.list(&refs(&origins[..2]));
        let sync = format!("agent = \"{}\"", agent.address());
        stage.start(&sync, "");
        stage.serves_up(&refs(&origins[..2])).await;
        let slot_of = async |instance: Option<&str>| {
            let pool = stage.pool().await;
            let slots = pool["processes"][0]["slots"].as_array().unwrap().clone();
            let found = slots
                .into_iter()
                .find(|slot| slot["instance"].as_str() == instance);
            found.unwrap()
        };
        let free = eventually("one slot is free", PATIENCE, || async {
            let slot = slot_of(None).await;
            if slot["state"] == "free" {
                Ok(slot)
            } else {
                Err(slot)
            }
        })
        .await;
        for (command, slot) in [
            ("set server web/{} agent down", slot_of(Some("i0")).await),
            ("disable health web/{}", slot_of(Some("i1")).await),
            ("disable health web/{}", free),
        ] {
            let command = command.replace("{}", slot["slot"].as_str().unwrap());
            assert_eq!(stage.haproxy.command(&command).await.trim(), "");
        }
        eventually(
            "checked again, in one slot or another",
            PATIENCE,
            || async {
                let servers = stage.haproxy.servers().await;
                let serve = |server: &&Record| {
                    server.number("srv_admin_state") & 1 == 0
                        && server.number("srv_op_state") == 2
                        && server.number("srv_check_state") & 4 == 4
                };
                if servers.iter().filter(serve).count() == 2 {
                    Ok(())
                } else {
                    Err(servers)
                }
            },
        )
        .await;
        stage.serves_up(&refs(&origins[..2])).await;
        eventually("it is said why", PATIENCE, || async {
            let told = stage.pool().await["processes"][0]["slots"].to_string();
            let all = ["taken out", "told again"]
                .map(|done| format!("{done} because somebody had changed the slot by hand"));
            if all.iter().all(|why| told.contains(why)) {
                Ok(())
            } else {
                Err(told)
            }
        })
        .await;

        // A free slot without its check would open its next instance unchecked.
        origins[2].set_healthy(false);
        stage.list(&refs(&origins));
        stage.serves(&refs(&origins)).await;
        let shares = send(stage.frontend.address(), 40).await;
        assert_eq!(
            (origins[2].served(), shares.failed()),
            (0, 0),
            "{version:?}"
        );
        origins[2].set_healthy(true);
        stage.serves_up(&refs(&origins)).await;

        // What the agent itself says is no change by hand.
        agent.say("web/i0", Say::Text("down\n".into()));
        eventually("down by its word", PATIENCE, || async {
            let slot = slot_of(Some("i0")).await;
            if slot["health"] == "down" {
                Ok(())
            } else {
                Err(slot)
            }
        })
        .await;
        let before = slot_of(Some("i0")).await;
        let asked = agent.asked("web/i0");
        eventually("asked many more times", PATIENCE, || async {
            let more = agent.asked("web/i0") - asked;
            if more > 10 { Ok(()) } else { Err(more) }
        })
        .await;
        let after = slot_of(Some("i0")).await;
        assert_eq!(
            (&after["slot"], &after["since"]),
            (&before["slot"], &before["since"]),
            "{after}"
        );
        stage.stop().await;
    })
    .await;
}
