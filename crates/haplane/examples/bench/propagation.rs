//! From a write in the store to the first changed answer.

use std::time::{Duration, Instant};

use haplane_testkit::agent_peer::ask;

use crate::figures::{Durations, durations};
use crate::subject::Subject;

const WRITES: usize = 100;
/// Between two writes, and not in step with the agent's spacing of its reads (100 ms).
const PAUSE: Duration = Duration::from_millis(137);
/// A change that is not answered by then is not coming.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Writes `canary` again and again, and asks all the while.
pub(crate) async fn measure(name: &str, agent: &Subject, mut write: impl AsyncFnMut(&'static str)) {
    let mut took = Vec::new();
    for number in 0..WRITES {
        let (value, answer): (_, &[u8]) = match number % 2 {
            0 => ("drain", b"drain\n"),
            _ => ("maint", b"maint\n"),
        };
        let begun = Instant::now();
        let answered = async {
            while begun.elapsed() < GIVE_UP {
                if ask(agent.address(), b"web/a canary\n")
                    .await
                    .is_ok_and(|line| line == answer)
                {
                    return begun.elapsed();
                }
            }
            GIVE_UP
        };
        let ((), elapsed) = tokio::join!(write(value), answered);
        took.push(elapsed);
        tokio::time::sleep(PAUSE).await;
    }
    durations(name, &Durations::new(took));
}
