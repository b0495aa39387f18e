//! The answer table in real HAProxy processes: what a row shows after each answer, and whether it
//! gets traffic, from every state that it can be in before (facts 2.1).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::Request;
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use haplane_testkit::traffic::who_answers;

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::haproxy_rows::{
    AT_ONCE, CONFIGURED_MAINT, DEFAULTS, DRAIN, MAINT, READY, Shown, differences, enrolled, shown,
};

/// How a row comes into its state before the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// It starts so.
    Start,
    /// A command on the admin socket, after `set server ROW `.
    Command(&'static str),
    /// A key with this value.
    Key(&'static str),
}

/// A state before the answer: what HAProxy shows then is the column `nothing` of the table.
struct Prior {
    name: &'static str,
    by: By,
    /// More parameters of its server line.
    line: &'static str,
    /// What an answer makes of it, in the order of [`ANSWERS`].
    after: [(i64, i64, &'static str); 9],
}

/// What a row's key says, and what its `agent-send` says beside the row.
struct Said {
    name: &'static str,
    value: Option<&'static str>,
    words: &'static str,
}

const ANSWERS: [Said; 9] = [
    said("nothing", None, ""),
    said("ready", Some("ready"), ""),
    said("drain", Some("drain"), ""),
    said("maint", Some("maint"), ""),
    said("half", Some("50%"), ""),
    said("zero", Some("0%"), ""),
    said("most", Some("256%"), ""),
    said("up-ready", Some("ready"), " @up"),
    said("scaled-half", Some("50%"), " @30%"),
];

const fn said(name: &'static str, value: Option<&'static str>, words: &'static str) -> Said {
    Said { name, value, words }
}

/// A server without health checks has no status of its own while it is in rotation.
const UP: &str = "no check";
const DRAINED: &str = "DRAIN (agent)";
const IN_MAINT: &str = "MAINT";
const DOWN: &str = "DOWN";
const DOWN_BY_AGENT: &str = "DOWN (agent)";

/// The bits of a server that the configuration has `disabled`.
const DISABLED: i64 = MAINT | CONFIGURED_MAINT;

/// Our answers are complete, so that all rows of a column are alike, except in two ways: out of
/// rotation a row keeps its weight, and no answer but `up` says anything about health.
const PRIORS: [Prior; 11] = [
    Prior {
        name: "up",
        by: By::Start,
        line: "",
        after: whole((READY, 100, UP), 100),
    },
    Prior {
        name: "cli-drain",
        by: By::Command("state drain"),
        line: "",
        after: whole((DRAIN, 100, DRAINED), 100),
    },
    Prior {
        name: "cli-maint",
        by: By::Command("state maint"),
        line: "",
        after: whole((MAINT, 100, IN_MAINT), 100),
    },
    Prior {
        name: "cli-weight",
        by: By::Command("weight 30"),
        line: "",
        after: whole((READY, 30, UP), 30),
    },
    Prior {
        name: "agent-drain",
        by: By::Key("drain"),
        line: "",
        after: whole((DRAIN, 100, DRAINED), 100),
    },
    Prior {
        name: "agent-maint",
        by: By::Key("maint"),
        line: "",
        after: whole((MAINT, 100, IN_MAINT), 100),
    },
    Prior {
        name: "agent-half",
        by: By::Key("50%"),
        line: "",
        after: whole((READY, 50, UP), 50),
    },
    Prior {
        name: "agent-zero",
        by: By::Key("0%"),
        line: "",
        after: whole((READY, 0, UP), 0),
    },
    Prior {
        name: "disabled",
        by: By::Start,
        line: "disabled",
        // Of the configuration's `disabled` only a mark stays: it gets traffic (facts 2.2 c).
        after: [
            (DISABLED, 100, IN_MAINT),
            (CONFIGURED_MAINT, 100, UP),
            (CONFIGURED_MAINT | DRAIN, 100, DRAINED),
            (DISABLED, 100, IN_MAINT),
            (CONFIGURED_MAINT, 50, UP),
            (CONFIGURED_MAINT, 0, UP),
            (CONFIGURED_MAINT, 256, UP),
            (CONFIGURED_MAINT, 100, UP),
            (CONFIGURED_MAINT, 15, UP),
        ],
    },
    Prior {
        name: "check-down",
        by: By::Start,
        line: "check port {closed} inter 200ms fall 1",
        after: [
            (READY, 100, DOWN),
            (READY, 100, DOWN),
            (DRAIN, 100, DOWN),
            (MAINT, 100, IN_MAINT),
            (READY, 50, DOWN),
            (READY, 0, DOWN),
            (READY, 256, DOWN),
            // HAProxy's own checks decide.
            (READY, 100, DOWN),
            (READY, 15, DOWN),
        ],
    },
    Prior {
        name: "agent-down",
        by: By::Command("agent down"),
        line: "",
        after: [
            (READY, 100, DOWN_BY_AGENT),
            (READY, 100, DOWN_BY_AGENT),
            (DRAIN, 100, DOWN_BY_AGENT),
            (MAINT, 100, IN_MAINT),
            (READY, 50, DOWN_BY_AGENT),
            (READY, 0, DOWN_BY_AGENT),
            (READY, 256, DOWN_BY_AGENT),
            (READY, 100, UP),
            (READY, 15, DOWN_BY_AGENT),
        ],
    },
];

/// The usual row of the table: the state before, and the weight that stays under drain and maint.
const fn whole(before: (i64, i64, &'static str), weight: i64) -> [(i64, i64, &'static str); 9] {
    [
        before,
        (READY, 100, UP),
        (DRAIN, weight, DRAINED),
        (MAINT, weight, IN_MAINT),
        (READY, 50, UP),
        (READY, 0, UP),
        (READY, 256, UP),
        (READY, 100, UP),
        (READY, 15, UP),
    ]
}

/// Every combination, each a backend of its own: then one request says whether it gets traffic.
fn all() -> impl Iterator<Item = (String, &'static Prior, &'static Said, Shown)> {
    PRIORS.iter().flat_map(|prior| {
        ANSWERS.iter().zip(&prior.after).map(move |(said, after)| {
            let &(admin, weight, status) = after;
            let after = Shown {
                admin,
                weight,
                status: status.to_owned(),
            };
            (
                format!("m-{}-{}/s", prior.name, said.name),
                prior,
                said,
                after,
            )
        })
    })
}

fn config(agent: SocketAddr, frontend: &Port, origin: &Origin, closed: &Port) -> Config {
    let mut text = format!(
        "{DEFAULTS}
        frontend all
            bind {}
            use_backend %[path,field(2,/)]
        backend m-free
            server s {} {}
        backend m-open
            server s {} {}\n",
        frontend.address(),
        origin.address(),
        enrolled(agent, "@free m-free/s"),
        origin.address(),
        // As words that were set through the socket: without their line end.
        enrolled(agent, "m-open/s").replace("\\n", ""),
    );
    for (row, prior, said, _) in all() {
        let backend = row.trim_end_matches("/s");
        let (line, origin) = (
            prior.line.replace("{closed}", &closed.to_string()),
            origin.address(),
        );
        let asks = enrolled(agent, &format!("{row}{}", said.words));
        let _ = writeln!(
            text,
            "backend {backend}\n    server s {origin} weight 100 {line} {asks}"
        );
    }
    Config::new(&text).global(AT_ONCE)
}

/// Two HAProxy of different versions with the same rows, which ask the same agent.
struct Both {
    haproxies: Vec<(Haproxy, Port)>,
    origin: Origin,
    _closed: Port,
}

impl Both {
    async fn start(agent: &Agent) -> Self {
        let (origin, closed) = (Origin::start("origin"), Port::reserve());
        let mut haproxies = Vec::new();
        for version in Version::ALL {
            let frontend = Port::reserve();
            let config = config(agent.checks(), &frontend, &origin, &closed);
            haproxies.push((Haproxy::start(version, config).await, frontend));
        }
        Self {
            haproxies,
            origin,
            _closed: closed,
        }
    }

    /// Waits until all rows show this in both, then looks that they stay so while they ask on.
    async fn show(&self, what: &str, wanted: &BTreeMap<String, Shown>) {
        for (haproxy, _) in &self.haproxies {
            let what = format!("{what} in {:?}", haproxy.version());
            eventually(&what, PATIENCE, async || {
                differences(wanted, &shown(haproxy).await)
            })
            .await;
        }
        for (haproxy, _) in &self.haproxies {
            let what = format!("{what} in {:?}", haproxy.version());
            throughout(&what, Duration::from_millis(450), async || {
                differences(wanted, &shown(haproxy).await)
            })
            .await;
        }
    }

    /// One request to each row: it is answered exactly if the row should be in rotation.
    async fn serve(&self, wanted: &BTreeMap<String, Shown>) {
        let mut all = 0;
        for (haproxy, frontend) in &self.haproxies {
            for (row, shown) in wanted {
                let path = format!("/{}", row.trim_end_matches("/s"));
                let answer = who_answers(frontend.address(), &Request::get(&path)).await;
                let in_rotation = shown.status == UP && shown.weight > 0;
                let expected = if in_rotation {
                    Ok("origin".to_owned())
                } else {
                    Err("status 503".to_owned())
                };
                assert_eq!(answer, expected, "{row} in {:?}", haproxy.version());
                all += u64::from(in_rotation);
            }
        }
        assert!(self.origin.served() >= all);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_from_every_state_before() {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    // `keep` changes nothing in HAProxy until there is a key: so a state can be made beforehand.
    let keep = Launch::on_consul(&consul).flags(&["--absent", "keep"]);
    let mut agent = keep.ready().await;
    let both = Both::start(&agent).await;

    let by_key = all().filter_map(|(row, prior, _, _)| match prior.by {
        By::Key(value) => Some((format!("haplane/state/{row}"), value.to_owned())),
        By::Start | By::Command(_) => None,
    });
    consul.put_many(by_key).await;
    let commands: Vec<_> = all()
        .filter_map(|(row, prior, _, _)| match prior.by {
            By::Command(command) => Some(format!("set server {row} {command}")),
            By::Start | By::Key(_) => None,
        })
        .collect();
    for (haproxy, _) in &both.haproxies {
        for batch in commands.chunks(40) {
            haproxy.command(&batch.join(";")).await;
        }
    }
    let before = all().map(|(row, prior, said, _)| {
        let (admin, weight, status) = prior.after[0];
        // A key's percentage is scaled by the row's own words, also beforehand.
        let scaled =
            said.words == " @30%" && matches!(prior.by, By::Key(value) if value.ends_with('%'));
        let weight = if scaled { weight * 30 / 100 } else { weight };
        let status = status.to_owned();
        (
            row,
            Shown {
                admin,
                weight,
                status,
            },
        )
    });
    both.show("the state before", &before.collect()).await;

    let keys = all().filter_map(|(row, _, said, _)| {
        Some((format!("haplane/state/{row}"), said.value?.to_owned()))
    });
    consul.put_many(keys).await;
    consul.put("haplane/state/m-open/s", "drain").await;
    for (row, prior, said, _) in all() {
        if said.value.is_none() && matches!(prior.by, By::Key(_)) {
            consul.delete(&format!("haplane/state/{row}")).await;
        }
    }
    let mut after: BTreeMap<_, _> = all().map(|(row, _, _, after)| (row, after)).collect();
    after.insert("m-free/s".to_owned(), free());
    after.insert("m-open/s".to_owned(), plain(DRAIN, DRAINED));
    both.show("the state after", &after).await;
    both.serve(&after).await;

    // The keys are gone, and the agent is one that leaves weights alone.
    consul.delete_prefix("haplane/state/m-").await;
    agent.replace(&Launch::on_consul(&consul).flags(&["--weights", "leave"]));
    for (row, prior, said, _) in all() {
        let shown = after.get_mut(&row).unwrap();
        *shown = lifted(prior, said, shown.weight);
    }
    after.insert("m-open/s".to_owned(), plain(READY, UP));
    both.show("ready without a weight", &after).await;

    // One that restates them: nothing is left of anything that was before.
    agent.replace(&Launch::on_consul(&consul));
    for (row, prior, said, _) in all() {
        after.insert(row, lifted(prior, said, 100));
    }
    for (haproxy, _) in &both.haproxies {
        haproxy.command("set server m-free/s state ready").await;
    }
    both.show("ready with the whole weight", &after).await;
    both.serve(&after).await;
}

/// A slot without an instance is in maintenance, whatever was set.
fn free() -> Shown {
    plain(MAINT, IN_MAINT)
}

/// A row of HAProxy's default weight.
fn plain(admin: i64, status: &str) -> Shown {
    Shown {
        admin,
        weight: 1,
        status: status.to_owned(),
    }
}

/// A row after `ready` at this weight, or at its own.
fn lifted(prior: &Prior, said: &Said, weight: i64) -> Shown {
    let healthy_again = said.words == " @up" && prior.name == "agent-down";
    Shown {
        admin: if prior.name == "disabled" {
            CONFIGURED_MAINT
        } else {
            READY
        },
        weight: if said.words == " @30%" { 30 } else { weight },
        status: match prior.name {
            "check-down" => DOWN.to_owned(),
            "agent-down" if !healthy_again => DOWN_BY_AGENT.to_owned(),
            _ => UP.to_owned(),
        },
    }
}
