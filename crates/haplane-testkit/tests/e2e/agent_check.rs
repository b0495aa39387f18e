//! HAProxy's side of an agent check, as haplane relies on it (facts 1 and 2), in every version.

use std::fmt::Write as _;
use std::time::Duration;

use haplane_testkit::agent_peer::{Asking, RecordingAgent, Say, ask};
use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};

const SOON: Duration = Duration::from_secs(5);

/// What an agent does, and what HAProxy then shows: agent status, admin bits, weight.
fn cases() -> Vec<(Say, &'static str, i64, i64)> {
    let text = |text: &str| Say::Text(text.to_owned());
    vec![
        (text("ready\n"), "CHECKED", 0, 100),
        (text("ready 100%\n"), "CHECKED", 0, 100),
        (text("drain\n"), "CHECKED", 8, 100),
        (text("DrAiN\r\n"), "CHECKED", 8, 100),
        (text("maint\n"), "CHECKED", 1, 100),
        (text("ready 50%\n"), "CHECKED", 0, 50),
        (text("drain,50%\n"), "CHECKED", 8, 50),
        (text("ready 0%\n"), "CHECKED", 0, 0),
        (text("300%\n"), "CHECKED", 0, 256),
        (text("maint drain ready\n"), "CHECKED", 0, 100),
        (text("ready\ndrain\n"), "CHECKED", 0, 100),
        (text("blah drain\n"), "CHECKED", 8, 100),
        (text("\n"), "CHECKED", 0, 100),
        (text("50\n"), "CHECKED", 0, 100),
        (text("drain"), "L7TOUT", 0, 100),
        (Say::AndStayOpen("drain\n".to_owned()), "CHECKED", 8, 100),
        (Say::Nothing, "L7RSP", 0, 100),
        (Say::Silence, "L7TOUT", 0, 100),
        (Say::Reset, "SOCKERR", 0, 100),
    ]
}

/// A backend in which server `sN` asks `web/sN canary`.
fn enrolled(servers: usize, agent: &RecordingAgent) -> Config {
    let mut sections =
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
                        timeout check 500ms\nbackend web\n"
            .to_owned();
    for n in 0..servers {
        let _ = writeln!(
            sections,
            " server s{n} 127.0.0.1:9 weight 100 agent-check agent-inter 200ms agent-addr 127.0.0.1 \
             agent-port {} agent-send \"web/s{n} canary\\n\"",
            agent.address().port()
        );
    }
    Config::new(&sections).global("max-spread-checks 20")
}

#[tokio::test]
async fn every_answer_does_what_the_facts_say() {
    for version in Version::ALL {
        let cases = cases();
        let agent = RecordingAgent::start(Say::Silence);
        for (n, (say, ..)) in cases.iter().enumerate() {
            agent.say(&format!("web/s{n}"), say.clone());
        }
        let haproxy = Haproxy::start(version, enrolled(cases.len(), &agent)).await;
        for (n, (say, status, admin, weight)) in cases.iter().enumerate() {
            eventually(&format!("{version:?} after {say:?}"), SOON, async || {
                let shown = haproxy
                    .stat(&format!("web/s{n}"))
                    .await
                    .get("agent_status")
                    .to_owned();
                let row = haproxy.server(&format!("web/s{n}")).await;
                let seen = (row.number("srv_admin_state"), row.number("srv_uweight"));
                let as_expected =
                    shown.trim_start_matches("* ") == *status && seen == (*admin, *weight);
                if as_expected {
                    Ok(())
                } else {
                    Err((shown, seen))
                }
            })
            .await;
        }
        assert!(
            agent
                .asks()
                .iter()
                .all(|ask| ask.bytes.starts_with(b"web/s") && ask.bytes.ends_with(b" canary\n"))
        );
    }
}

#[tokio::test]
async fn the_last_applied_state_stays_while_the_agent_is_dead() {
    for version in Version::ALL {
        let mut agent = RecordingAgent::start(Say::Text("drain 50%\n".to_owned()));
        let haproxy = Haproxy::start(version, enrolled(1, &agent)).await;
        let state = async || {
            let row = haproxy.server("web/s0").await;
            (row.number("srv_admin_state"), row.number("srv_uweight"))
        };
        eventually("the drain", SOON, async || match state().await {
            (8, 50) => Ok(()),
            other => Err(other),
        })
        .await;
        agent.down().await;
        eventually("refused asks", SOON, async || {
            let status = haproxy.stat("web/s0").await.get("agent_status").to_owned();
            if status.ends_with("L4CON") {
                Ok(())
            } else {
                Err(status)
            }
        })
        .await;
        throughout(
            "the drain stays",
            Duration::from_millis(600),
            async || match state().await {
                (8, 50) => Ok(()),
                other => Err(other),
            },
        )
        .await;
    }
}

#[tokio::test]
async fn words_without_a_line_feed_are_sent_as_they_are() {
    for version in Version::ALL {
        let agent = RecordingAgent::start(Say::Text("drain\n".to_owned()));
        let config = Config::new(&format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
             backend web\n server a 127.0.0.1:9 agent-check agent-inter 1s agent-addr 127.0.0.1 \
             agent-port {} agent-send \"web/a canary\"\n",
            agent.address().port()
        ));
        let _haproxy = Haproxy::start(version, config.global("max-spread-checks 20")).await;
        let asked = eventually("an ask", SOON, async || agent.asks().pop().ok_or("none")).await;
        assert_eq!(asked.bytes, b"web/a canary", "{version:?}");
    }
}

#[tokio::test]
async fn an_ask_by_the_kit_is_answered_like_one_by_haproxy() {
    let agent = RecordingAgent::start(Say::Text("ready 100%\n".to_owned()));
    agent.say("web/b", Say::Nothing);
    agent.say("web/c", Say::AndStayOpen("drain\n".to_owned()));
    agent.say("web/d", Say::Reset);
    assert_eq!(
        ask(agent.address(), b"web/a canary\n").await.unwrap(),
        b"ready 100%\n"
    );
    assert_eq!(ask(agent.address(), b"web/b\n").await.unwrap(), b"");
    assert_eq!(ask(agent.address(), b"web/c\n").await.unwrap(), b"drain\n");
    assert!(ask(agent.address(), b"web/d\n").await.is_err());
    let slow = Asking::of(agent.address()).slowly(Duration::from_millis(5));
    assert_eq!(slow.ask(b"web/a").await.unwrap(), b"ready 100%\n");
    assert_eq!(agent.asks().last().unwrap().bytes, b"web/a");
}
