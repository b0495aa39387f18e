//! Waiting for a condition, never for a time.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// How long between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(15);

/// Waits until `look` returns `Ok`, at most `within`.
///
/// The `Err` of a look is what was seen instead; the last one is part of the panic
/// message when the time is over, together with `what` and the caller's place.
#[track_caller]
pub fn eventually<T, Seen: Debug>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<T, Seen>,
) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        loop {
            match look().await {
                Ok(found) => return found,
                Err(seen) if start.elapsed() >= within => {
                    panic!("{caller}: not within {within:?}: {what}; last seen: {seen:?}")
                }
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
}

/// Looks again and again for as long as `lasting`, and panics at the first `Err`.
///
/// For what must hold at every moment. It looks at least twice.
#[track_caller]
pub fn throughout<Seen: Debug>(
    what: &str,
    lasting: Duration,
    mut look: impl AsyncFnMut() -> Result<(), Seen>,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        loop {
            let last = start.elapsed() >= lasting;
            if let Err(seen) = look().await {
                panic!(
                    "{caller}: did not hold after {:?}: {what}; seen: {seen:?}",
                    start.elapsed()
                )
            }
            if last {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
