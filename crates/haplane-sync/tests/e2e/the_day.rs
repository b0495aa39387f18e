//! The day of the outage of May 2020, compressed: a real HAProxy, a real Consul, and origins that count. In the morning
//! the fleet grows by 75 %, past the slots; for hours instances come and go; in the evening the oldest go first. Beside
//! it, in memory, the order of steps that caused the outage.

use std::collections::VecDeque;
use std::time::Duration;

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::Version;
use haplane_testkit::origin::Origin;
use haplane_testkit::traffic::Traffic;
use serde_json::json;

use crate::stage::{PATIENCE, Slots, Stage};

const SLOTS: usize = 16;
const NORMAL: usize = 12;
const MORNING: usize = 21;
const HOURS: usize = 12;

/// The fleet, oldest first, and the tool of that day beside it.
struct Day {
    consul: Consul,
    stage: Stage,
    live: VecDeque<Origin>,
    next: usize,
    naive: Naive,
    lowest_naive: f64,
}

/// Looks for a free slot first, frees afterwards, and gives up when there is none.
#[derive(Default)]
struct Naive {
    slots: Vec<String>,
}

impl Naive {
    fn sync(&mut self, list: &[String]) {
        for address in list {
            if !self.slots.contains(address) {
                if self.slots.len() == SLOTS {
                    return;
                }
                self.slots.push(address.clone());
            }
        }
        self.slots.retain(|address| list.contains(address));
    }

    /// Which part of what fits is served.
    fn share(&self, list: &[String]) -> f64 {
        let served = list
            .iter()
            .filter(|address| self.slots.contains(address))
            .count();
        f64::from(u32::try_from(served).unwrap())
            / f64::from(u32::try_from(list.len().min(SLOTS)).unwrap())
    }
}

impl Day {
    async fn join(&mut self, count: usize) {
        for _ in 0..count {
            let origin = Origin::start(&format!("webapp-{}", self.next));
            self.next += 1;
            let address = origin.address();
            let definition = json!({
                "ID": origin.name(), "Name": "webapp", "Address": address.ip().to_string(), "Port": address.port(),
                "Check": { "TTL": "1h", "Status": "passing" },
            });
            self.consul.register(&definition).await;
            self.live.push_back(origin);
        }
    }

    async fn oldest_leave(&mut self, count: usize) -> Vec<Origin> {
        let gone: Vec<_> = self.live.drain(..count).collect();
        for origin in &gone {
            self.consul.deregister(origin.name()).await;
        }
        gone
    }

    /// Everything that fits is in rotation, nothing else is, and everything in rotation is alive.
    async fn what_fits_is_served(&mut self) {
        let list: Vec<_> = self
            .live
            .iter()
            .map(|origin| origin.address().to_string())
            .collect();
        let fits = list.len().min(SLOTS);
        eventually("what fits is served", PATIENCE, || async {
            let seen = self.stage.in_rotation().await;
            let alive = seen.iter().all(|address| list.contains(address));
            if alive && seen.len() == fits {
                Ok(())
            } else {
                Err((seen.len(), fits, alive))
            }
        })
        .await;
        self.naive.sync(&list);
        self.lowest_naive = self.lowest_naive.min(self.naive.share(&list));
    }
}

#[tokio::test]
async fn what_fits_is_served_all_day() {
    let consul = Consul::start(Options::new()).await;
    let slots = Slots {
        count: SLOTS,
        check: "check inter 100ms rise 1 fall 2",
        agent: None,
    };
    let mut stage = Stage::new(Version::V28, slots).await;
    let sync = format!("consul = \"{}\"", consul.url());
    stage.start(
        &sync,
        "source = \"consul:webapp\"\ndrain_grace = \"1s\"\nsettle = \"300ms\"",
    );
    let mut day = Day {
        consul,
        stage,
        live: VecDeque::new(),
        next: 0,
        naive: Naive::default(),
        lowest_naive: 1.0,
    };
    day.join(NORMAL).await;
    day.what_fits_is_served().await;
    let first: Vec<_> = day.live.iter().collect();
    day.stage.serves_up(&first).await;
    let traffic = Traffic::start(day.stage.frontend.address(), 2, Duration::from_millis(3));

    day.join(MORNING - NORMAL).await;
    day.what_fits_is_served().await;
    let mut gone = Vec::new();
    for _ in 0..HOURS {
        gone.extend(day.oldest_leave(3).await);
        day.join(3).await;
        day.what_fits_is_served().await;
    }
    while day.live.len() > NORMAL {
        gone.extend(day.oldest_leave(3).await);
        day.what_fits_is_served().await;
    }
    let shares = traffic.stop().await;
    assert_eq!(shares.failed(), 0, "{shares:?}");
    assert!(
        day.lowest_naive < 0.1,
        "the tool of that day served {} at its worst",
        day.lowest_naive
    );

    // Everything is replaced in one step, while full.
    day.join(SLOTS - NORMAL).await;
    day.what_fits_is_served().await;
    gone.extend(day.oldest_leave(SLOTS).await);
    day.join(SLOTS + 3).await;
    day.what_fits_is_served().await;
    let served: Vec<_> = gone.iter().map(Origin::served).collect();
    let traffic = Traffic::start(day.stage.frontend.address(), 2, Duration::from_millis(1));
    eventually("the newest serve", PATIENCE, || async {
        let serving = day.live.iter().filter(|origin| origin.served() > 5).count();
        if serving == SLOTS {
            Ok(())
        } else {
            Err(serving)
        }
    })
    .await;
    drop(traffic);
    assert_eq!(
        gone.iter().map(Origin::served).collect::<Vec<_>>(),
        served,
        "a request reached one that left"
    );
    day.stage.stop().await;
}
