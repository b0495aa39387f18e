//! One connection from its line to its answer.

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use haplane_core::ask::{self, Ask};
use haplane_core::resolve::{Decision, absences, resolve};
use jiff::Timestamp;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::line::{self, Line};
use crate::readable::Unreadable;
use crate::rows::{Asked, Rows};

/// From the first byte to the last: HAProxy waits for two seconds (facts 1).
const DEADLINE: Duration = Duration::from_secs(1);

/// Why a connection was closed without a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its line is not understood whole.
    Line(ask::Refusal),
    /// An answer would rest on keys of which nobody knows that they are absent.
    Unreadable(Unreadable),
    /// It was closed by the other side without a line.
    Nothing,
    /// It broke.
    Broken,
    /// No line came in time.
    Late,
    /// It gave its place to a newer one.
    Crowded,
    /// The system did not hand it over.
    NotAccepted,
}

impl Refused {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [
            Self::Nothing,
            Self::Broken,
            Self::Late,
            Self::Crowded,
            Self::NotAccepted,
        ];
        let lines = ask::Refusal::ALL.into_iter().map(Self::Line);
        let keys = Unreadable::ALL.into_iter().map(Self::Unreadable);
        lines.chain(keys).chain(own)
    }

    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Line(refusal) => refusal.as_str(),
            Self::Unreadable(why) => why.as_str(),
            Self::Nothing => "closed",
            Self::Broken => "broken",
            Self::Late => "timeout",
            Self::Crowded => "max_connections",
            Self::NotAccepted => "accept",
        }
    }
}

pub(super) async fn answer(mut stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    let came = Instant::now();
    match timeout(DEADLINE, converse(&mut stream, peer, &shared)).await {
        Ok(Ok(())) => shared.metrics.answer_took(came.elapsed()),
        Ok(Err(refused)) => {
            shared.metrics.refused(refused);
            tracing::debug!(%peer, reason = refused.as_str(), "refused a line");
        }
        Err(_) => shared.metrics.refused(Refused::Late),
    }
}

async fn converse(
    stream: &mut TcpStream,
    peer: SocketAddr,
    shared: &Shared,
) -> Result<(), Refused> {
    let line = match line::read(stream).await.map_err(|_| Refused::Broken)? {
        Line::Whole(line) => line,
        Line::Unterminated(line) => {
            shared.metrics.unterminated();
            line
        }
        Line::TooLong => return Err(Refused::Line(ask::Refusal::TooLong)),
        Line::Nothing => return Err(Refused::Nothing),
    };
    let ask = Ask::parse(&line).map_err(Refused::Line)?;
    let decision = decide(&line, &ask, peer, shared).await?;
    let text = decision.answer.line();
    stream
        .write_all(text.as_bytes())
        .await
        .map_err(|_| Refused::Broken)?;
    // A peer that is gone by now has its answer or asks again.
    stream.shutdown().await.or(Ok(()))
}

/// A new answer may have to wait until the store has said that keys are not merely hidden; then the
/// snapshot is looked at afresh.
async fn decide(
    line: &[u8],
    ask: &Ask,
    peer: SocketAddr,
    shared: &Shared,
) -> Result<Decision, Refused> {
    loop {
        let now = Timestamp::now();
        let served = shared.served.borrow().clone();
        let decision = resolve(ask, &served.snapshot, now, shared.policy);
        let absent = absences(ask, &served.snapshot, &decision);
        let since = rows(shared).proof_since(line, decision.answer, &served, Instant::now());
        let believed = shared.readable.may_be_absent(&absent, since).await;
        believed.map_err(Refused::Unreadable)?;
        if !Arc::ptr_eq(&served.snapshot, &shared.served.borrow().snapshot) {
            continue;
        }
        let asked = Asked {
            line,
            ask,
            by: peer.ip(),
            at: now,
            decision: &decision,
            served: &served,
        };
        let remembered = rows(shared).remember(&asked, Instant::now());
        shared.metrics.answered(&decision, &remembered);
        return Ok(decision);
    }
}

fn rows(shared: &Shared) -> MutexGuard<'_, Rows> {
    shared.rows.lock().unwrap_or_else(PoisonError::into_inner)
}
