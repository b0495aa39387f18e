//! Instances in slots, as the observer sees them: HAProxy has no row of their names. Who left is gone, who hangs is silent.

use std::process::Command;
use std::time::Duration;

use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use serde_json::Value;

use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};
use crate::observer_site::Site;

/// An agent and a HAProxy know each other after ten seconds; the numbers are read every ten.
const UNTIL_KNOWN: Duration = Duration::from_secs(30);

fn list(site: &Site, ids: &[&str]) {
    let lines: Vec<_> = (1..)
        .zip(ids)
        .map(|(n, id)| format!("127.0.0.{n}:9 id={id}\n"))
        .collect();
    let (next, hosts) = (site.path("next"), site.path("hosts"));
    std::fs::write(&next, lines.concat()).unwrap();
    std::fs::rename(next, hosts).unwrap();
}

fn sync(site: &Site, haproxy: &Haproxy) -> Process {
    let toml = format!(
        "[sync]\nsocket = \"{}\"\nhttp = \"{}\"\nreconcile = \"300ms\"\nagent = \"{}\"\n\
         [[pool]]\nname = \"web\"\nbackend = \"web\"\nslots = \"web-\"\nsource = \"file:{}\"\n\
         max_removal = \"100%\"\nflap_window = \"off\"\n",
        haproxy.admin_socket().display(),
        Port::reserve().address(),
        site.agent.checks(),
        site.path("hosts").display()
    );
    let file = site.path("sync.toml");
    std::fs::write(&file, toml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_haplane"));
    command.env_clear().args(["sync", "--config"]).arg(file);
    Process::spawn("haplane sync", command, &site.path("sync.log"))
}

/// The instances that the agent has rows of. Whoever asked but once may have a long interval, for all it knows.
async fn instances(site: &Site) -> Vec<String> {
    let rows = site.agent.json("/v1/rows").await;
    let often = |row: &&Value| row["asks"].as_u64() > Some(3);
    let names = rows.as_array().unwrap().iter().filter(often);
    names
        .filter_map(|row| row["row"].as_str()?.strip_prefix("web/i"))
        .map(|id| format!("i{id}"))
        .collect()
}

async fn are(site: &Site, wanted: &[&str]) {
    eventually("the instances", UNTIL_KNOWN, async || {
        let found = instances(site).await;
        if found == wanted { Ok(()) } else { Err(found) }
    })
    .await;
}

/// Nothing is called silent, in the metrics or on a page, for as long as something else lasts.
async fn nothing_is_silent<T>(site: &Site, events: impl Future<Output = T>) -> T {
    let look = async || {
        let count = site.agent.metric("haplane_rows{verdict=\"silent\"}").await;
        let rows = site.agent.json("/v1/rows").await;
        let is_silent = |row: &&Value| row["verdict"] == "silent";
        match rows.as_array().unwrap().iter().find(is_silent) {
            None if count < 0.5 => Ok(()),
            found => Err((count, found.cloned())),
        }
    };
    tokio::select! {
        done = events => done,
        () = throughout("nothing is silent", Duration::MAX, look) => unreachable!("the events end first"),
    }
}

#[tokio::test]
async fn who_left_is_gone_and_who_hangs_is_silent() {
    let site = Site::start(&["s"], &[]).await;
    let sections = format!(
        "{DEFAULTS}\nbackend web\n server-template web- 1-4 127.0.0.1:1 disabled weight 100 {}\n",
        enrolled(site.agent.checks(), "@free")
    );
    let config = Config::new(&sections).global(AT_ONCE);
    let mut haproxy = Haproxy::start(Version::V28, config).await;
    site.look_at("s", &haproxy);
    list(&site, &["i1", "i2", "i3", "i4"]);
    let keeper = sync(&site, &haproxy);
    nothing_is_silent(&site, async {
        are(&site, &["i1", "i2", "i3", "i4"]).await;
        // No slot is free now, and then three are, one of them for somebody else.
        list(&site, &["i1", "i5"]);
        are(&site, &["i1", "i5"]).await;
    })
    .await;

    // It would switch the agent check on again.
    drop(keeper);
    let servers = haproxy.servers().await;
    let slot = servers
        .iter()
        .find(|server| server.get("srv_addr") == "127.0.0.1" && server.get("srv_port") == "9")
        .expect("i1's slot")
        .get("srv_name")
        .to_owned();
    haproxy.command(&format!("disable agent web/{slot}")).await;
    let is_silent = async |why: &str| {
        eventually(
            &format!("web/i1 is silent: {why}"),
            UNTIL_KNOWN,
            async || {
                let row = site.row("web/i1").await.ok_or(Value::Null)?;
                let told = row["why"].as_str().unwrap_or_default();
                if row["verdict"] == "silent" && told.contains(why) {
                    Ok(())
                } else {
                    Err(row)
                }
            },
        )
        .await;
    };
    is_silent(&format!(
        "it may sit in web/{slot}: its agent check is disabled"
    ))
    .await;
    throughout(
        "it stays silent",
        Duration::from_secs(3),
        async || match site.row("web/i1").await {
            Some(row) if row["verdict"] == "silent" => Ok(()),
            other => Err(other),
        },
    )
    .await;
    haproxy.command(&format!("enable agent web/{slot}")).await;
    eventually("web/i1 asks again", UNTIL_KNOWN, async || {
        let row = site.row("web/i1").await;
        let is_back = row
            .as_ref()
            .is_some_and(|row| row["verdict"] == "unobserved");
        if is_back { Ok(()) } else { Err(row) }
    })
    .await;

    haproxy.process().freeze().await;
    is_silent("cannot be looked at").await;
    haproxy.process().thaw();
}
