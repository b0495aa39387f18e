//! Bounded load through a frontend, counted by the origin that answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::http::{Request, Target};
use crate::origin::ORIGIN_HEADER;

/// Who answered how often, and what failed how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Requests by the name of the origin that answered.
    pub by_origin: BTreeMap<String, u64>,
    /// Requests that no origin answered, by what came instead: a status or an error.
    pub errors: BTreeMap<String, u64>,
}

impl Shares {
    /// How many requests this origin answered.
    pub fn of(&self, origin: &str) -> u64 {
        self.by_origin.get(origin).copied().unwrap_or_default()
    }

    /// All requests that an origin answered.
    pub fn answered(&self) -> u64 {
        self.by_origin.values().sum()
    }

    /// All requests that none answered.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The part of the answered requests, from 0 to 1, that this origin answered.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of at most some thousand requests"
    )]
    pub fn share(&self, origin: &str) -> f64 {
        self.of(origin) as f64 / self.answered().max(1) as f64
    }

    /// What was counted in `self` after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
            now.iter()
                .map(|(name, count)| {
                    (
                        name.clone(),
                        count - before.get(name).copied().unwrap_or_default(),
                    )
                })
                .filter(|&(_, count)| count > 0)
                .collect()
        };
        Self {
            by_origin: difference(&self.by_origin, &earlier.by_origin),
            errors: difference(&self.errors, &earlier.errors),
        }
    }

    fn count(&mut self, outcome: Result<String, String>) {
        let counter = match outcome {
            Ok(origin) => self.by_origin.entry(origin),
            Err(error) => self.errors.entry(error),
        };
        *counter.or_default() += 1;
    }
}

/// Sends `count` requests one after the other, each on a connection of its own.
pub async fn send(frontend: SocketAddr, count: usize) -> Shares {
    send_like(frontend, count, &Request::get("/")).await
}

/// The same with a request of the test's choice, for example with a cookie.
pub async fn send_like(frontend: SocketAddr, count: usize, request: &Request) -> Shares {
    let mut shares = Shares::default();
    for _ in 0..count {
        shares.count(who_answers(frontend, request).await);
    }
    shares
}

/// Which origin answers a request; `Err` is the status or the error that came instead.
pub async fn who_answers(frontend: SocketAddr, request: &Request) -> Result<String, String> {
    let answer = request
        .send(&Target::Tcp(frontend))
        .await
        .map_err(|error| format!("error: {}", error.kind()))?;
    match answer.headers.get(ORIGIN_HEADER) {
        Some(origin) if answer.status == 200 => Ok(origin.to_owned()),
        _ => Err(format!("status {}", answer.status)),
    }
}

/// Load that goes on until it is stopped or dropped.
#[derive(Debug)]
pub struct Traffic {
    shares: Arc<Mutex<Shares>>,
    clients: JoinSet<()>,
}

impl Traffic {
    /// Starts `clients` clients. Each sends one request after the other, each on a
    /// connection of its own, and waits for `pause` in between: at most 1 / `pause`
    /// requests a second and client.
    pub fn start(frontend: SocketAddr, clients: usize, pause: Duration) -> Self {
        let shares = Arc::<Mutex<Shares>>::default();
        let mut set = JoinSet::new();
        for _ in 0..clients {
            let shares = Arc::clone(&shares);
            set.spawn(async move {
                let request = Request::get("/");
                loop {
                    let outcome = who_answers(frontend, &request).await;
                    shares
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .count(outcome);
                    tokio::time::sleep(pause).await;
                }
            });
        }
        Self {
            shares,
            clients: set,
        }
    }

    /// What was counted so far.
    pub fn so_far(&self) -> Shares {
        self.shares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Ends the load and returns what was counted. Requests under way are not.
    pub async fn stop(mut self) -> Shares {
        self.clients.shutdown().await;
        self.so_far()
    }
}
