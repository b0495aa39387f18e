//! Processor time, sampled by a timer. Frames are found by the unwinding tables of the program and named
//! by its table of symbols. Lines and inlined functions are for `pprof` to find outside: to look them up
//! inside the process would cost it 100 MB and more.

use std::collections::BTreeMap;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, raise};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

use super::encode::{Profile, Sample};
use super::mappings::{self, Mapping};
use super::symbols::Symbols;

/// Samples a second of each thread; not a round number, so that nothing periodic hides.
const FREQUENCY: i32 = 99;

/// Takes a profile.
pub(super) async fn profile(lasting: Duration) -> Result<Vec<u8>, pprof::Error> {
    prepare()?;
    let start = SystemTime::now();
    let guard = sample(FREQUENCY)?;
    tokio::time::sleep(lasting).await;
    let report = guard.report().build_unresolved()?;
    let samples: Vec<Sample> = report
        .data
        .iter()
        .map(|(frames, count)| Sample {
            addresses: addresses(frames.frames.iter().map(|frame| frame.ip as u64)),
            count: i64::try_from(*count).unwrap_or(i64::MAX),
        })
        .collect();
    drop(guard);
    let mappings = mappings::of_this_process();
    Ok(Profile {
        names: names(&samples, &mappings),
        samples,
        mappings,
        start,
        lasting,
        period: Duration::from_secs(1) / FREQUENCY.unsigned_abs(),
    }
    .encode())
}

/// Samples until the guard is dropped. A thread that is just unwinding is left alone: it holds a lock
/// that the signal's handler takes too.
fn sample(frequency: i32) -> Result<ProfilerGuard<'static>, pprof::Error> {
    ProfilerGuardBuilder::default()
        .frequency(frequency)
        .blocklist(&["libgcc"])
        .build()
}

/// The handler of the first signal reads the unwinding tables, for which it allocates memory: a thread
/// that was interrupted while it did just that would wait for itself for ever. So the first signal is
/// this one, which interrupts nothing; the timer's would come after a second of processor time.
fn prepare() -> Result<(), pprof::Error> {
    static PREPARED: Once = Once::new();
    let guard = sample(1)?;
    PREPARED.call_once(|| {
        raise(Signal::SIGPROF).ok();
    });
    drop(guard);
    Ok(())
}

/// The names of the program's own functions among these.
fn names(samples: &[Sample], mappings: &[Mapping]) -> BTreeMap<u64, String> {
    let program = std::env::current_exe().unwrap_or_default();
    let (Some(symbols), Some(program)) = (Symbols::of_this_process(), program.to_str()) else {
        return BTreeMap::new();
    };
    let addresses = samples.iter().flat_map(|sample| &sample.addresses);
    let name = |address: &u64| {
        let mapping = mappings.iter().find(|mapping| {
            mapping.file == program && (mapping.start..mapping.end).contains(address)
        })?;
        let name = symbols.name_at(address - mapping.start + mapping.offset)?;
        Some((*address, name))
    };
    addresses.filter_map(name).collect()
}

/// Innermost first. For all but the innermost frame the return address is known; the call is just before
/// it.
fn addresses(stack: impl Iterator<Item = u64>) -> Vec<u64> {
    stack
        .enumerate()
        .map(|(depth, address)| address.saturating_sub(u64::from(depth > 0)))
        .collect()
}
