//! From what was answered and what is seen to a verdict, with its causes.

use std::time::Duration;

use haplane_haproxy::agent_check::Answer;
use haplane_haproxy::server_state::{AdminBits, OpState};

use super::Verdict;
use super::cause::Cause;
use super::sight::{Difference, Said, Seen, Sight, Stat};

/// A row that has not asked for this many of its own intervals is silent.
pub const SILENT_AFTER: u32 = 3;
/// What was answered has to be seen within this many of the row's own intervals.
pub(crate) const SEEN_WITHIN: u32 = 2;
/// How long a row may take to its first ask: HAProxy spreads them over its longest interval, 10 s
/// in the worst case that was measured (facts 4.1).
const FIRST_ASK_WITHIN: Duration = Duration::from_secs(10);

/// A verdict and what explains it, the most telling cause first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Empty when there is nothing to explain.
    pub causes: Vec<Cause>,
}

impl Judgement {
    fn new(verdict: Verdict, causes: impl Into<Vec<Cause>>) -> Self {
        let causes = causes.into();
        Self { verdict, causes }
    }

    /// All causes in one text.
    pub fn why(&self) -> Option<String> {
        let texts: Vec<_> = self.causes.iter().map(Cause::to_string).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Whether this one has to be told before another one of the same row.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        gravity(self.verdict) > gravity(other.verdict)
    }
}

fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Converged => 0,
        Verdict::Unobserved => 1,
        Verdict::Pending => 2,
        Verdict::Silent => 3,
        Verdict::Diverged => 4,
    }
}

impl Said {
    /// Whether the row has stopped asking.
    pub fn is_silent(&self) -> bool {
        self.asked_ago > self.interval * SILENT_AFTER
    }
}

/// The verdict on a row that asks and that HAProxy shows.
pub fn judge(said: &Said, sight: &Sight<'_>) -> Judgement {
    if said.is_silent() {
        return silent(said, sight);
    }
    if said.due != said.answer {
        let ahead = sight.seen.differs_from(said.due).is_none();
        let cause = if ahead {
            Cause::AheadOfAsk
        } else {
            Cause::StoreChanged
        };
        let off = sight.seen.agent.is_switched_off();
        return Judgement::new(Verdict::Pending, with(cause, off, Cause::SwitchedOff));
    }
    match sight.seen.differs_from(said.answer) {
        None => Judgement::new(Verdict::Converged, remarks(said.answer, sight)),
        Some(difference) => differing(said, sight, difference),
    }
}

/// The verdict on a row that asks and that no HAProxy shows: for want of a socket, of a look, or of
/// the row. Where HAProxy is looked at and does not have it, and nothing keeps it from asking, it has nothing to ask.
pub fn judge_unseen(said: &Said, cause: Cause) -> Judgement {
    if !said.is_silent() {
        return Judgement::new(Verdict::Unobserved, [cause]);
    }
    let silence = Cause::NoAskFor(said.asked_ago);
    match cause {
        Cause::UnknownRow => Judgement::new(Verdict::Unobserved, [silence, Cause::Gone]),
        Cause::NoSocket => Judgement::new(Verdict::Silent, [silence]),
        cause => Judgement::new(Verdict::Silent, [silence, cause]),
    }
}

/// The verdict on a row that HAProxy has and that never asked this agent, which listens on `port`. The sight's
/// process age is that of the younger of both: neither knows yet what the other one does.
pub fn judge_unasked(sight: &Sight<'_>, port: u16) -> Judgement {
    let Sight {
        seen,
        stat,
        process_age,
        ..
    } = *sight;
    if !seen.agent.is_configured() {
        return Judgement::new(Verdict::Unobserved, [Cause::NotEnrolled]);
    }
    if seen.agent.is_switched_off() {
        return Judgement::new(Verdict::Silent, [Cause::SwitchedOff]);
    }
    if let Some(other) = seen.agent_port.filter(|asked| *asked != port) {
        return Judgement::new(Verdict::Silent, [Cause::OtherPort(other)]);
    }
    match stat.and_then(check_trouble) {
        Some(cause @ Cause::OtherName) => Judgement::new(Verdict::Unobserved, [cause]),
        _ if process_age < FIRST_ASK_WITHIN => {
            Judgement::new(Verdict::Pending, [Cause::NotAskedYet(process_age)])
        }
        Some(cause) => Judgement::new(Verdict::Silent, [cause]),
        None => Judgement::new(Verdict::Silent, [Cause::NeverAsked(process_age)]),
    }
}

/// What the last agent check of a row that does not ask us came to (facts 5.1).
fn check_trouble(stat: &Stat) -> Option<Cause> {
    let word = stat.agent.as_deref()?;
    match word {
        "INI" => None,
        "CHECKED" | "L7OK" | "L7OKC" | "L7STS" => Some(Cause::OtherName),
        "L7RSP" => Some(Cause::AsksRefused),
        word => Some(Cause::CheckFails(word.into(), stat.last_agent.clone())),
    }
}

fn silent(said: &Said, sight: &Sight<'_>) -> Judgement {
    let seen = sight.seen;
    let mut causes = vec![Cause::NoAskFor(said.asked_ago)];
    if !seen.agent.is_configured() {
        causes.push(Cause::NotEnrolled);
    } else if seen.agent.is_switched_off() {
        causes.push(Cause::SwitchedOff);
    } else {
        causes.extend(sight.stat.and_then(check_trouble));
    }
    causes.extend(seen.differs_from(said.due).map(Cause::Shows));
    Judgement::new(Verdict::Silent, causes)
}

/// HAProxy does not do what it was answered last.
fn differing(said: &Said, sight: &Sight<'_>, difference: Difference) -> Judgement {
    let shows = Cause::Shows(difference);
    let pending = |cause| Judgement::new(Verdict::Pending, [cause, shows.clone()]);
    let diverged = |cause| Judgement::new(Verdict::Diverged, [cause, shows.clone()]);
    if sight.looked_ago >= said.answered_ago {
        return Judgement::new(Verdict::Pending, [Cause::NotLookedSince]);
    }
    if said.asked_ago > sight.process_age {
        return pending(Cause::NotAskedYet(sight.process_age));
    }
    if refuses_weights(difference, sight.stat) {
        return diverged(Cause::StaticAlgorithm);
    }
    if sight.past.agreed {
        let off = sight.seen.agent.is_switched_off();
        let mut causes = with(Cause::SetByHand, off, Cause::SwitchedOff);
        causes.push(shows);
        return Judgement::new(Verdict::Diverged, causes);
    }
    let lasting = sight.past.differs_for;
    if lasting < said.interval * SEEN_WITHIN {
        return Judgement::new(Verdict::Pending, [shows]);
    }
    if sight.seen.agent.is_switched_off() {
        return diverged(Cause::SwitchedOff);
    }
    diverged(Cause::NotTaken(lasting))
}

fn refuses_weights(difference: Difference, stat: Option<&Stat>) -> bool {
    matches!(difference, Difference::Weight { .. })
        && stat.is_some_and(|stat| stat.last_agent.contains("static LB algorithm"))
}

/// What an operator should know of a row that does what it was answered, for it may still not take
/// traffic: HAProxy's own checks decide that, never we.
fn remarks(answer: Answer, sight: &Sight<'_>) -> Vec<Cause> {
    let Sight { seen, stat, .. } = *sight;
    let mut causes = Vec::new();
    if seen.agent.is_switched_off() {
        causes.push(Cause::SwitchedOff);
    }
    if let Some(word) = inherited(seen, stat) {
        causes.push(Cause::Inherited(word));
    }
    let Answer::Ready { .. } = answer else {
        return causes;
    };
    if seen.operational == OpState::Stopped && !seen.admin.is_maint() {
        let by_agent = stat.is_some_and(|stat| stat.status.starts_with("DOWN (agent)"));
        causes.push(if by_agent {
            Cause::DownByAgent
        } else {
            Cause::Down
        });
    }
    if seen.weight == 0 {
        let configured = seen.configured_weight;
        causes.push(Cause::NoWeight { configured });
    }
    causes.extend(stat.and_then(|stat| stat.throttle).map(Cause::Ramp));
    causes
}

/// HAProxy's word for a state that no answer to this row decides.
fn inherited(seen: &Seen, stat: Option<&Stat>) -> Option<Box<str>> {
    let other = AdminBits::IMAINT | AdminBits::IDRAIN | AdminBits::RMAINT;
    if !seen.admin.intersects(other) {
        return None;
    }
    let told = stat
        .map(|stat| &stat.status)
        .filter(|status| status.starts_with(seen.status()));
    let own = if seen.admin.contains(AdminBits::RMAINT) {
        "MAINT (resolution)"
    } else {
        seen.status()
    };
    Some(told.cloned().unwrap_or_else(|| own.into()))
}

fn with(first: Cause, condition: bool, second: Cause) -> Vec<Cause> {
    if condition {
        vec![first, second]
    } else {
        vec![first]
    }
}

#[cfg(test)]
mod tests;
