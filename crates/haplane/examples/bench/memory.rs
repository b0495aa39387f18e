//! Resident memory: idle, with many keys, with many rows; and the way of a change among many keys.

use std::time::Duration;

use haplane_testkit::agent_peer::ask;
use haplane_testkit::consul::Consul;
use haplane_testkit::eventually::eventually;

use crate::figures::line;
use crate::propagation;
use crate::subject::Subject;

const MANY: usize = 10_000;
const PATIENCE: Duration = Duration::from_mins(1);

/// Fills a Consul and an agent of its own, and looks after each step.
pub(crate) async fn measure(consul: &Consul, store: &str) {
    let agent = Subject::on(store).await;
    // One ask, so that everything that an agent needs is there.
    ask(agent.address(), b"web/a canary\n")
        .await
        .expect("an answer");
    line("idle", format!("{} KiB", agent.resident_kib()));

    let keys = (0..MANY).map(|number| {
        (
            format!("haplane/state/web/server-{number}"),
            "drain".to_owned(),
        )
    });
    consul.put_many(keys).await;
    reaches(&agent, "keys").await;
    line("with 10,000 keys", format!("{} KiB", agent.resident_kib()));

    for number in 0..MANY {
        let words = format!("web/server-{number} canary\n");
        ask(agent.address(), words.as_bytes())
            .await
            .expect("an answer");
    }
    reaches(&agent, "rows").await;
    line(
        "with 10,000 rows, too",
        format!("{} KiB", agent.resident_kib()),
    );
    propagation::measure(
        "a write among 10,000 keys (Consul)",
        &agent,
        async |value| {
            consul.put("haplane/state/canary", value).await;
        },
    )
    .await;
    line(
        "after 100 such changes",
        format!("{} KiB", agent.resident_kib()),
    );
}

async fn reaches(agent: &Subject, what: &str) {
    let many = u64::try_from(MANY).unwrap_or(u64::MAX);
    eventually(what, PATIENCE, async || match agent.count(what).await {
        Some(count) if count >= many => Ok(()),
        other => Err(other),
    })
    .await;
}
