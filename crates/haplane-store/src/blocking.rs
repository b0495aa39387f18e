//! Work that blocks, such as reading a file, beside the event loop.

use crate::error::{StoreError, StoreErrorKind};

/// Runs it on a thread of its own. It runs to its end even if nobody waits for it any more.
pub(crate) async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|source| {
        StoreError::new(StoreErrorKind::Io, "a blocking task did not finish").because(source)
    })
}
