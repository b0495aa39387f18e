//! `process_*`: what the kernel says of this process, read from `/proc/self` at each scrape.

use std::fmt::Error;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::time::{ClockId, clock_gettime};

#[derive(Debug)]
pub(super) struct ProcessCollector {
    /// When the machine started, in seconds since 1970. Taken once, so that what is computed from
    /// it does not jitter.
    boot_time: f64,
}

impl ProcessCollector {
    pub(super) fn new() -> Self {
        let [now, since_boot] = [ClockId::Realtime, ClockId::Boottime].map(seconds);
        Self {
            boot_time: now - since_boot,
        }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(figures) = Figures::read(self.boot_time) else {
            return Ok(());
        };
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        gauge(
            "process_resident_memory_bytes",
            "Memory in use",
            figures.resident_bytes,
        )?;
        gauge(
            "process_virtual_memory_bytes",
            "Address space in use",
            figures.virtual_bytes,
        )?;
        gauge(
            "process_open_fds",
            "Open file descriptors",
            figures.open_fds,
        )?;
        gauge(
            "process_max_fds",
            "Most open file descriptors",
            figures.max_fds,
        )?;
        gauge("process_threads", "Threads", figures.threads)?;
        gauge(
            "process_start_time_seconds",
            "When the process started",
            figures.start_time,
        )?;
        let cpu = ConstCounter::new(figures.cpu_seconds);
        let unit = Some(&Unit::Seconds);
        let metric =
            encoder.encode_descriptor("process_cpu", "CPU time used", unit, cpu.metric_type())?;
        cpu.encode(metric)
    }
}

struct Figures {
    resident_bytes: f64,
    virtual_bytes: f64,
    open_fds: f64,
    max_fds: f64,
    threads: f64,
    start_time: f64,
    cpu_seconds: f64,
}

impl Figures {
    fn read(boot_time: f64) -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is the command in parentheses and may hold blanks.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<f64> = fields.split_whitespace().skip(1).map(number).collect();
        // Fields of proc(5), counted from the third (`state`), which was skipped.
        let field = |n: usize| fields.get(n - 4).copied();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a page size and a tick rate are small"
        )]
        let (page, ticks) = (
            rustix::param::page_size() as f64,
            rustix::param::clock_ticks_per_second() as f64,
        );
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            threads: field(20)?,
            start_time: boot_time + field(22)? / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page,
            open_fds: open_fds(),
            max_fds: max_fds(),
        })
    }
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}

/// From the kernel's clocks and not from `/proc/stat`, which a sandboxed unit does not see.
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since 1970 fit a double"
)]
fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn open_fds() -> f64 {
    let count = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

fn max_fds() -> f64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a limit beyond 2^53 is no limit"
    )]
    limit.map_or(f64::INFINITY, |limit| limit as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::HeaderMap;
    use axum::http::header::{ACCEPT, CONTENT_TYPE};

    /// The page for who accepts this: its kind and its text.
    async fn page(accept: &str) -> (String, String) {
        let registry = Arc::new(super::super::registry("1.2.3"));
        let mut request = HeaderMap::new();
        request.insert(ACCEPT, accept.parse().unwrap());
        let response = super::super::page(&registry, &request);
        let kind = response.headers()[CONTENT_TYPE]
            .to_str()
            .unwrap()
            .to_owned();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn who_does_not_name_openmetrics_gets_what_everybody_reads() {
        let (kind, text) = page("*/*").await;
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        assert!(text.contains("# TYPE haplane_build_info gauge\n"), "{text}");
        assert!(
            text.contains("# TYPE process_cpu_seconds_total counter\n"),
            "{text}"
        );
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[tokio::test]
    async fn the_page_has_the_process_in_it() {
        // As Prometheus asks.
        let accept =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
        let (kind, text) = page(accept).await;
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        for name in [
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
            "process_open_fds ",
            "process_start_time_seconds ",
            "haplane_build_info{version=\"1.2.3\"} 1",
        ] {
            assert!(text.contains(name), "{name} is missing in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let started = text
            .lines()
            .find_map(|line| line.strip_prefix("process_start_time_seconds "))
            .and_then(|value| value.parse::<f64>().ok())
            .unwrap();
        let ago = jiff::Timestamp::now().as_duration().as_secs_f64() - started;
        assert!((-1.0..3_600.0).contains(&ago), "started {ago} s ago");
    }
}
