//! An agent that looks at HAProxy, on a store in a folder.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::Haproxy;
use serde_json::Value;
use tempfile::TempDir;

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::command::{Haplane, Run};

/// HAProxy asks five times a second in most tests; a row is silent after three half seconds, and a
/// look is never more than two seconds away.
pub(crate) const SOON: Duration = Duration::from_secs(8);

/// The agent is started before HAProxy, whose configuration needs the agent's port: the sockets that
/// it is told are links, which lead somewhere once HAProxy is there.
pub(crate) struct Site {
    pub(crate) agent: Agent,
    store: Haplane,
    folder: TempDir,
}

impl Site {
    /// An agent that looks at these sockets, by their names in the site's folder.
    pub(crate) async fn start(sockets: &[&str], flags: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ob")
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("a folder for the store");
        let store = format!("dir:{}", state.display());
        let haplane = Haplane::on(&store);
        haplane.run(&["init"]).exits(0);
        let paths: Vec<_> = sockets
            .iter()
            .map(|name| folder.path().join(name).display().to_string())
            .collect();
        let agent = Launch::on(store)
            .flags(&["--haproxy-socket", &paths.join(",")])
            .flags(flags)
            .ready()
            .await;
        Self {
            agent,
            store: haplane,
            folder,
        }
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// From now on the socket `name` leads to `target`.
    pub(crate) fn link(&self, name: &str, target: &Path) {
        let path = self.path(name);
        if path.is_symlink() {
            std::fs::remove_file(&path).expect("to remove the old link");
        }
        symlink(target, path).expect("to link a socket");
    }

    /// From now on the socket `name` is that of HAProxy, with level `user`.
    pub(crate) fn look_at(&self, name: &str, haproxy: &Haproxy) {
        self.link(name, &haproxy.user_socket());
    }

    /// Runs `haplane` on its store.
    pub(crate) fn haplane(&self, words: &[&str]) -> Run {
        self.store.run(words)
    }

    /// Writes a key.
    pub(crate) fn set(&self, key: &str, value: &str) {
        self.haplane(&["set", key, value, "--force"]).exits(0);
    }

    /// One row of `/v1/rows`; `None` when there is none of this name.
    pub(crate) async fn row(&self, name: &str) -> Option<Value> {
        let rows = self.agent.json("/v1/rows").await;
        let rows = rows.as_array().expect("a list of rows");
        rows.iter().find(|row| row["row"] == name).cloned()
    }

    /// Waits until a row has this verdict, and its explanation holds each of these texts.
    pub(crate) async fn row_is(&self, name: &str, verdict: &str, why: &[&str]) -> Value {
        let what = format!("{name} is {verdict} because of {why:?}");
        eventually(&what, SOON, async || {
            let row = self.row(name).await.ok_or(Value::Null)?;
            let told = row["why"].as_str().unwrap_or_default();
            if row["verdict"] == verdict && why.iter().all(|text| told.contains(text)) {
                Ok(row)
            } else {
                Err(row)
            }
        })
        .await
    }

    /// Waits until the socket `name` is in trouble of this kind, or in none.
    pub(crate) async fn socket_is(&self, name: &str, kind: Option<&str>) -> Value {
        let socket = self.path(name).display().to_string();
        eventually(&format!("{name} is {kind:?}"), PATIENCE, async || {
            let node = self.agent.json("/v1/node").await;
            let known = node["haproxy"].as_array().expect("a list of HAProxy");
            let one = known.iter().find(|one| one["socket"] == *socket);
            let one = one.expect("a configured socket").clone();
            let is_known = one["pid"].is_u64() || kind.is_some();
            if one["error_kind"].as_str() == kind && is_known {
                Ok(one)
            } else {
                Err(one)
            }
        })
        .await
    }

    /// Waits until a gauge has this whole value.
    pub(crate) async fn gauge_is(&self, series: &str, wanted: f64) {
        eventually(&format!("{series} = {wanted}"), SOON, async || {
            let value = self.agent.metric(series).await;
            if (value - wanted).abs() < 0.5 {
                Ok(())
            } else {
                Err(value)
            }
        })
        .await;
    }

    /// Waits until a series of the metrics has at least this value.
    pub(crate) async fn counts(&self, series: &str, least: f64) {
        eventually(&format!("{series} ≥ {least}"), SOON, async || {
            let value = self.agent.metric(series).await;
            if value >= least { Ok(()) } else { Err(value) }
        })
        .await;
    }
}
