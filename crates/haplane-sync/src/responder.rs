//! Asking the responder about an instance before its slot is opened, exactly as HAProxy will ask it afterwards.
//!
//! Opened as `ready`, a drained instance would take traffic until the agent's next answer (facts 12.3).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haplane_core::slots::{Moment, Opening, Words};
use haplane_haproxy::AdminState;
use haplane_haproxy::agent_check::{Reading, read_as_haproxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_millis(500);
/// Asks at once.
const AT_ONCE: usize = 32;
/// How long an instance waits for a responder that is silent, to it or to all, before its slot is opened as it was answered last, or
/// ready: instances must not stay out because the agent does.
const GRACE: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const REMEMBERED: usize = 100_000;

/// The responder beside this HAProxy, and what it said last.
#[derive(Debug)]
pub struct Responder {
    address: Option<SocketAddr>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    answers: BTreeMap<Words, Opening>,
    silent_since: BTreeMap<Words, Moment>,
    /// Since when it answers nobody.
    silent_to_all_since: Option<Moment>,
}

impl Known {
    fn remember(&mut self, words: &Words, opening: Opening) {
        if let Some(answer) = self.answers.get_mut(words) {
            *answer = opening;
        } else if self.answers.len() < REMEMBERED {
            self.answers.insert(words.clone(), opening);
        }
    }
}

/// How a slot may be opened now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Like this.
    Open(Opening),
    /// Not yet: the responder is silent, and may answer any moment.
    Wait,
}

impl Responder {
    /// The responder at this address; none where HAProxy runs without an agent.
    pub fn new(address: Option<SocketAddr>) -> Self {
        Self {
            address,
            known: Mutex::default(),
        }
    }

    /// Asks for each of these words, several at once; silence is remembered from when it began.
    pub async fn ask(&self, words: Vec<Words>, now: Moment) -> BTreeMap<Words, Leave> {
        let Some(address) = self.address else {
            return words
                .into_iter()
                .map(|words| (words, Leave::Open(Opening::READY)))
                .collect();
        };
        let mut waiting = words.into_iter();
        let mut asks = JoinSet::new();
        let mut answers = BTreeMap::new();
        let mut silent = 0;
        loop {
            while asks.len() < AT_ONCE
                && silent < AT_ONCE
                && let Some(words) = waiting.next()
            {
                asks.spawn(async move {
                    let said = ask_once(address, &words).await;
                    (words, said)
                });
            }
            match asks.join_next().await {
                None => break,
                Some(Ok((words, said))) => {
                    silent += usize::from(said == Said::Silence);
                    let leave = self.learn(&words, said, now);
                    answers.insert(words, leave);
                }
                Some(Err(_)) => {}
            }
        }
        // A responder that hangs is not asked a thousand times, which would hold up everything else.
        for words in waiting {
            let leave = self.learn(&words, Said::Silence, now);
            answers.insert(words, leave);
        }
        answers
    }

    /// HAProxy shows what it was answered last, also to asks of its own: that is what an instance keeps while the
    /// responder is away, wherever it moves.
    pub fn saw(&self, words: &Words, opening: Opening) {
        self.known().remember(words, opening);
    }

    /// The same where it is only likely: it counts as long as nothing better is known.
    pub fn saw_perhaps(&self, words: &Words, opening: Opening) {
        let mut known = self.known();
        if !known.answers.contains_key(words) {
            known.remember(words, opening);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, words: &Words, said: Said, now: Moment) -> Leave {
        let mut known = self.known();
        if let Said::Answer(opening) = said {
            known.silent_to_all_since = None;
            known.silent_since.remove(words);
            known.remember(words, opening);
            return Leave::Open(opening);
        }
        if known.silent_since.len() >= REMEMBERED {
            known.silent_since.clear();
        }
        let to_all = *known.silent_to_all_since.get_or_insert(now);
        let to_these = *known.silent_since.entry(words.clone()).or_insert(now);
        decide(
            known.answers.get(words).copied(),
            now.since(to_these.min(to_all)),
        )
    }
}

/// What to do while the responder is silent: what it said last holds; without that, wait a little, then open.
fn decide(last: Option<Opening>, silent_for: Duration) -> Leave {
    match last {
        Some(opening) => Leave::Open(opening),
        None if silent_for < GRACE => Leave::Wait,
        None => Leave::Open(Opening::READY),
    }
}

/// What came of one ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Answer(Opening),
    /// Refused, closed without a line, or broken off: at once.
    Nothing,
    /// No whole answer in time.
    Silence,
}

async fn ask_once(address: SocketAddr, words: &Words) -> Said {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{words}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    match timeout(DEADLINE, exchange).await {
        Ok(Ok(answer)) => read_as_haproxy(&answer)
            .map_or(Said::Nothing, |reading| Said::Answer(opening(&reading))),
        Ok(Err(_)) => Said::Nothing,
        Err(_) => Said::Silence,
    }
}

/// An answer without an admin word changes nothing in HAProxy; then the slot opens as any server starts: ready.
fn opening(reading: &Reading) -> Opening {
    Opening {
        admin: reading.admin.unwrap_or(AdminState::Ready),
        weight: reading.weight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haplane_core::slots::{ByHand, CheckPort, Instance, Mode, Policy};

    fn policy() -> Policy {
        Policy {
            backend: "web".parse().unwrap(),
            mode: Mode::Slots,
            groups: Vec::new(),
            drain_grace: Duration::ZERO,
            by_hand: ByHand::Repair,
            check_port: CheckPort::AsConfigured,
        }
    }

    fn instance(id: &str) -> Instance {
        Instance {
            id: id.parse().unwrap(),
            endpoint: "127.0.0.1:80".parse().unwrap(),
            zone: None,
            weight: None,
            groups: Vec::new(),
        }
    }

    #[test]
    fn silence() {
        let drained = Opening {
            admin: AdminState::Drain,
            weight: None,
        };
        assert_eq!(decide(Some(drained), Duration::ZERO), Leave::Open(drained));
        assert_eq!(decide(None, Duration::from_secs(9)), Leave::Wait);
        assert_eq!(
            decide(None, Duration::from_secs(10)),
            Leave::Open(Opening::READY)
        );
    }

    #[tokio::test]
    async fn a_responder_that_hangs_is_not_asked_a_thousand_times() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let responder = Responder::new(Some(listener.local_addr().unwrap()));
        let words: Vec<_> = (1..1001)
            .map(|n| Words::of(&instance(&format!("i{n}")), &policy(), 100).unwrap())
            .collect();
        let began = std::time::Instant::now();
        let answers = responder.ask(words, Moment::default()).await;
        assert!(began.elapsed() < DEADLINE * 6, "{:?}", began.elapsed());
        assert_eq!(
            answers
                .values()
                .filter(|leave| **leave == Leave::Wait)
                .count(),
            1000
        );
    }

    #[test]
    fn one_that_is_silent_to_all_for_long_keeps_nobody_waiting_anew() {
        let responder = Responder::new(None);
        let words = |id: &str| Words::of(&instance(id), &policy(), 100).unwrap();
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let ready = Leave::Open(Opening::READY);
        assert_eq!(
            responder.learn(&words("a"), Said::Nothing, at(0)),
            Leave::Wait
        );
        assert_eq!(responder.learn(&words("b"), Said::Nothing, at(11)), ready);
        let answer = Said::Answer(Opening::READY);
        assert_eq!(responder.learn(&words("c"), answer, at(12)), ready);
        assert_eq!(
            responder.learn(&words("d"), Said::Nothing, at(13)),
            Leave::Wait
        );
        assert_eq!(responder.learn(&words("a"), Said::Nothing, at(13)), ready);
    }

    #[test]
    fn answers() {
        let read = |line: &str| opening(&read_as_haproxy(line.as_bytes()).unwrap());
        assert_eq!(read("maint\n").admin, AdminState::Maint);
        assert_eq!(
            read("up ready 50%\n")
                .weight
                .map(haplane_haproxy::Percent::get),
            Some(50)
        );
        assert_eq!(
            read("\n"),
            Opening {
                admin: AdminState::Ready,
                weight: None
            }
        );
    }
}
