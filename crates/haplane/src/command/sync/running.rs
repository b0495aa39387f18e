//! The synchroniser that runs on this machine, asked over its HTTP port.

use haplane_sync::SyncSettings;
use serde_json::Value;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::AgentAddress;
use crate::fleet::http::Connection;

/// A connection to the running synchroniser.
pub(super) async fn dial(sync: &SyncSettings) -> Result<Connection, Failure> {
    let address = AgentAddress::new(sync.http.ip().to_string(), sync.http.port());
    Connection::dial(&address).await.map_err(|why| {
        Failure::new(
            Exit::Unreachable,
            format!("no synchroniser answers at {address} ([sync] http): {why}; does `haplane sync` run here?"),
        )
    })
}

/// All that it says of its pools.
pub(in crate::command) async fn pools(sync: &SyncSettings) -> Result<Vec<Value>, Failure> {
    let mut connection = dial(sync).await?;
    connection
        .get("/v1/pools")
        .await
        .map_err(|why| Failure::new(Exit::Unreachable, why))
}
