//! `haplane sync confirm`: an operator accepts a change that is held, having seen its numbers.

use haplane_core::slots::hold::HeldReason;
use haplane_sync::SyncSettings;
use http::StatusCode;
use serde_json::{Value, json};

use super::running;
use crate::cli::ConfirmOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::report::Report;

/// Asks the running synchroniser what is held, the person whether it is right, and confirms it.
pub(super) async fn run(
    sync: &SyncSettings,
    options: &ConfirmOptions,
    output: &Output,
) -> Result<Report, Failure> {
    let pools = running::pools(sync).await?;
    let name = &options.pool;
    let pool = pools
        .iter()
        .find(|pool| pool["pool"] == name.as_str())
        .ok_or_else(|| {
            let known: Vec<_> = pools
                .iter()
                .filter_map(|pool| pool["pool"].as_str())
                .collect();
            Failure::refused(format!(
                "there is no pool {name:?}; there are: {}",
                known.join(", ")
            ))
        })?;
    let held = &pool["held"];
    if held.is_null() {
        let document = json!({ "pool": name, "confirmed": Value::Null });
        return Ok(Report::new(document).line(format!("{name}: nothing is held")));
    }
    let (had, has) = (
        held["had"].as_u64().unwrap_or_default(),
        held["has"].as_u64().unwrap_or_default(),
    );
    let reason = held["reason"].as_str().unwrap_or_default();
    if reason == HeldReason::Failed.as_str() {
        let cause = held["detail"].as_str().unwrap_or_default();
        return Err(Failure::refused(format!(
            "{name}: the source cannot be read, there is no list to confirm: {cause}"
        )));
    }
    let question =
        format!("{name}: the list had {had} instances and has {has} ({reason}). Accept it?");
    if !options.yes && !output.is_agreed(&question) {
        return Err(Failure::refused(format!(
            "{name}: the list had {had} instances and has {has} ({reason}): not confirmed; --yes confirms in a pipeline"
        )));
    }
    let wish = json!({ "pool": name, "has": has });
    let mut connection = running::dial(sync).await?;
    let answer = connection.post("/v1/confirm", &wish).await;
    let (status, answer) = answer.map_err(|why| Failure::new(Exit::Unreachable, why))?;
    if status != StatusCode::OK {
        let why = answer
            .get("error")
            .and_then(Value::as_str)
            .unwrap_or("no reason given");
        return Err(Failure::refused(format!("{name}: {why}")));
    }
    let document = json!({ "pool": name, "confirmed": { "had": answer.get("had"), "has": answer.get("has") } });
    Ok(Report::new(document).line(format!(
        "{name}: the list of {has} instances (of {had}) is accepted"
    )))
}
