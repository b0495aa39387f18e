//! Live names for completion: the keys of the store and the rows that ask. Whatever goes wrong, there
//! are just no names; a shell is not told about it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use haplane_core::Key;
use haplane_core::target::Known;

use crate::cli::FleetOptions;
use crate::config::{Place, Source};
use crate::fleet::{AgentAddress, Fleet};
use crate::knowledge::Knowledge;
use crate::state::{self, Marker};

/// How long a person is made to wait for the Tab key.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Rows and keys.
pub fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    let known = known();
    let asked = known.rows.values().flatten();
    candidates(current, asked.chain(&known.stored))
}

/// Rows and keys, and the words that can be written.
pub fn targets_and_values(current: &OsStr) -> Vec<CompletionCandidate> {
    let values = ["ready", "drain", "maint", "50%"].into_iter();
    let values = values.filter(|value| value.starts_with(&*current.to_string_lossy()));
    let values = values.map(CompletionCandidate::new);
    targets(current).into_iter().chain(values).collect()
}

/// Rows.
pub fn rows(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, known().rows.keys())
}

fn candidates<'k>(
    current: &OsStr,
    names: impl Iterator<Item = &'k Key>,
) -> Vec<CompletionCandidate> {
    let start = current.to_string_lossy();
    let names: BTreeSet<&str> = names
        .map(Key::as_str)
        .filter(|name| name.starts_with(&*start))
        .collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn known() -> Known {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Known::default();
    };
    let asked = async { tokio::time::timeout(PATIENCE, ask()).await };
    runtime.block_on(asked).ok().flatten().unwrap_or_default()
}

/// As a command without any options would ask.
async fn ask() -> Option<Known> {
    let file = env::var_os("HAPLANE_CONFIG").map(Into::into);
    let settings = Source::without_flags(file).ok()?.settings().ok()?;
    let place = Place::pick(&settings, None).ok()?;
    let store = haplane_store::AnyStore::open(&place.store).ok()?;
    let snapshot = state::read(&store, Marker::Optional, &place.store)
        .await
        .ok()?;
    let local = settings.http.listen;
    let local = AgentAddress::new(local.ip().to_string(), local.port());
    let fleet = Fleet::beside(&store, local).await;
    let options = FleetOptions {
        agents: Vec::new(),
        rows: Vec::new(),
    };
    let knowledge = Knowledge::gather(&fleet, &options, &snapshot).await.ok()?;
    Some(knowledge.known)
}
