//! Figures: their order, and how they are printed.

use std::fmt::Display;
use std::time::Duration;

/// Durations, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations(Vec<Duration>);

impl Durations {
    /// Puts them in order.
    pub(crate) fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    /// The value that this part of them, in thousandths, does not exceed.
    pub(crate) fn at(&self, thousandths: usize) -> Duration {
        let position = (self.0.len() * thousandths).div_ceil(1000).max(1);
        self.0.get(position - 1).copied().unwrap_or_default()
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A headline.
pub(crate) fn heading(text: &str) {
    println!("\n{text}");
}

/// One line: what was measured, and the figure.
pub(crate) fn line(what: &str, figure: impl Display) {
    println!("  {what:<44} {figure}");
}

/// One line with the distribution of durations.
pub(crate) fn durations(what: &str, durations: &Durations) {
    let [half, most, worst] = [500, 990, 1000].map(|part| durations.at(part));
    let count = durations.len();
    line(
        what,
        format!("p50 {half:>9.1?}   p99 {most:>9.1?}   max {worst:>9.1?}   ({count})"),
    );
}

/// What the machine is and how busy it is with other things.
pub(crate) fn machine() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    println!("\nmachine: {cores} cores, load average {load}");
}
