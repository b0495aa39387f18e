//! What a real HAProxy shows of its rows, and how it is told to ask an agent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use haplane_testkit::eventually::throughout;
use haplane_testkit::haproxy::Haproxy;
use haplane_testkit::records;

/// One row as HAProxy shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// `srv_admin_state`: 1 FMAINT, 4 CMAINT, 8 FDRAIN (facts 5.2).
    pub(crate) admin: i64,
    /// The weight that the user or the agent set.
    pub(crate) weight: i64,
    /// The status in the statistics, for example `DRAIN (agent)`.
    pub(crate) status: String,
}

/// In rotation, drained, in maintenance: the bits alone.
pub(crate) const READY: i64 = 0;
pub(crate) const MAINT: i64 = 1;
pub(crate) const CONFIGURED_MAINT: i64 = 4;
pub(crate) const DRAIN: i64 = 8;

/// All rows.
pub(crate) async fn shown(haproxy: &Haproxy) -> BTreeMap<String, Shown> {
    let statistics = records::stat(&haproxy.command("show stat").await);
    let status: BTreeMap<_, _> = statistics
        .iter()
        .map(|row| {
            let name = format!("{}/{}", row.get("pxname"), row.get("svname"));
            (name, row.get("status"))
        })
        .collect();
    let servers = haproxy.servers().await;
    servers
        .iter()
        .map(|server| {
            let row = format!("{}/{}", server.get("be_name"), server.get("srv_name"));
            let shown = Shown {
                admin: server.number("srv_admin_state"),
                weight: server.number("srv_uweight"),
                status: status[&row].to_owned(),
            };
            (row, shown)
        })
        .collect()
}

/// Only bits and weight of all rows.
pub(crate) async fn states(haproxy: &Haproxy) -> BTreeMap<String, (i64, i64)> {
    let rows = shown(haproxy).await;
    rows.into_iter()
        .map(|(row, shown)| (row, (shown.admin, shown.weight)))
        .collect()
}

/// Those that are not as they should be; `Ok` when there are none.
pub(crate) fn differences<T: PartialEq + Clone>(
    wanted: &BTreeMap<String, T>,
    seen: &BTreeMap<String, T>,
) -> Result<(), BTreeMap<String, (T, Option<T>)>> {
    let different: BTreeMap<_, _> = wanted
        .iter()
        .filter(|&(row, want)| seen.get(row) != Some(want))
        .map(|(row, want)| (row.clone(), (want.clone(), seen.get(row).cloned())))
        .collect();
    if different.is_empty() {
        Ok(())
    } else {
        Err(different)
    }
}

/// Lets the events happen and looks all the while: at no moment may a row be in another state.
pub(crate) async fn unmoved<T>(
    what: &str,
    haproxy: &Haproxy,
    wanted: &BTreeMap<String, (i64, i64)>,
    events: impl Future<Output = T>,
) -> T {
    let look = async || differences(wanted, &states(haproxy).await);
    tokio::select! {
        result = events => {
            throughout(what, Duration::from_millis(400), look).await;
            result
        }
        () = throughout(what, Duration::MAX, look) => unreachable!("the events end first"),
    }
}

/// The parameters of a server line that asks `agent` five times a second with these words.
pub(crate) fn enrolled(agent: SocketAddr, words: &str) -> String {
    format!(
        r#"agent-check agent-inter 200ms agent-addr {} agent-port {} agent-send "{words}\n""#,
        agent.ip(),
        agent.port(),
    )
}

/// `defaults` for HTTP, and checks that begin at once: below a second an interval alone does not
/// say when the first ask comes (facts 4.1).
pub(crate) const DEFAULTS: &str = "
defaults
    mode http
    timeout connect 2s
    timeout client 5s
    timeout server 5s
";
pub(crate) const AT_ONCE: &str = "max-spread-checks 50";
