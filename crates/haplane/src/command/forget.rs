//! `haplane forget`: a node that is gone for good leaves the fleet.

use haplane_store::consul::service::{Instance, Which};
use serde_json::json;

use crate::cli::ForgetOptions;
use crate::failure::Failure;
use crate::fleet::SERVICE;
use crate::report::Report;
use crate::session::Session;

/// Takes the node's agents out of Consul's catalog.
pub async fn run(session: &Session, options: &ForgetOptions) -> Result<Report, Failure> {
    let Some(consul) = session.store.consul() else {
        return Err(Failure::usage(
            "a directory has no fleet: its agent is the one at [http] listen, and there is nothing to forget",
        ));
    };
    let instances = consul.instances(SERVICE, Which::All).await?;
    let name_of = |one: &Instance| one.meta.get("node").unwrap_or(&one.node).clone();
    let (gone, others): (Vec<&Instance>, Vec<&Instance>) = instances
        .list
        .iter()
        .partition(|one| name_of(one) == options.node);
    if gone.is_empty() {
        let mut known: Vec<String> = others.into_iter().map(name_of).collect();
        known.sort();
        return Err(Failure::refused(format!(
            "no agent is registered for node {}; registered: {}",
            options.node,
            if known.is_empty() {
                "none (or the token may not see them: it needs service \"haplane-agent\" and node_prefix \"\" read)"
                    .to_owned()
            } else {
                known.join(", ")
            }
        )));
    }
    if !options.dry_run {
        session.confirm(options.yes, &format!("forget node {}", options.node))?;
        for one in &gone {
            // A Consul agent has a list of its own, from which it would announce the service again.
            let beside_us = consul.registered(SERVICE, &one.id).await;
            let is_beside_us = matches!(beside_us, Ok(Some(_)));
            if is_beside_us {
                consul.deregister(SERVICE, &one.id).await?;
            }
            consul.forget_instance(&one.node, &one.id).await?;
            if !is_beside_us && one.has_consul() {
                session.output.warn(&format!(
                    "the Consul agent of node {} still runs, and may announce {} again: run `haplane forget {}` \
                     there too",
                    one.node, one.id, options.node
                ));
            }
        }
    }
    let ids: Vec<&str> = gone.iter().map(|one| one.id.as_str()).collect();
    let report =
        Report::new(json!({"node": options.node, "forgotten": ids, "dry_run": options.dry_run}));
    let done = if options.dry_run {
        "would be forgotten"
    } else {
        "is forgotten"
    };
    let report = report.line(format!("{} {done} ({})", options.node, ids.join(", ")));
    if gone.iter().any(|one| one.is_passing()) && !options.dry_run {
        session
            .output
            .warn("its agent still answers: while it runs it registers again within a minute");
    }
    Ok(report)
}
