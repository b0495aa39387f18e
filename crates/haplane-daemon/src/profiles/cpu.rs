//! Processor time, sampled by a timer. Frames are found by frame pointers and left as addresses:
//! looking names up inside the process would cost it 100 MB and more, and `pprof` does it outside.

use std::time::{Duration, SystemTime};

use pprof::ProfilerGuardBuilder;

use super::encode::{Profile, Sample};
use super::mappings;

/// Samples a second of each thread; not a round number, so that nothing periodic hides.
const FREQUENCY: i32 = 99;

/// Takes a profile.
pub(super) async fn profile(lasting: Duration) -> Result<Vec<u8>, pprof::Error> {
    let start = SystemTime::now();
    let guard = ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .build()?;
    tokio::time::sleep(lasting).await;
    let report = guard.report().build_unresolved()?;
    let samples = report
        .data
        .iter()
        .map(|(frames, count)| Sample {
            addresses: frames.frames.iter().map(|frame| frame.ip as u64).collect(),
            count: i64::try_from(*count).unwrap_or(i64::MAX),
        })
        .collect();
    drop(guard);
    Ok(Profile {
        samples,
        mappings: mappings::of_this_process(),
        start,
        lasting,
        period: Duration::from_secs(1) / FREQUENCY.unsigned_abs(),
    }
    .encode())
}
