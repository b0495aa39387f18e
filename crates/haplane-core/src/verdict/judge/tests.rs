use super::*;
use haplane_haproxy::Percent;
use haplane_haproxy::server_state::CheckBits;

use crate::verdict::sight::Past;

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 9777;

fn ready(percent: u16) -> Answer {
    Answer::Ready {
        weight: Percent::new(percent),
        up: false,
    }
}

/// Asked a second ago and given this answer for a minute; every two seconds.
fn said(answer: Answer) -> Said {
    Said {
        answer,
        due: answer,
        asked_ago: SECOND,
        answered_ago: SECOND * 60,
        interval: SECOND * 2,
    }
}

/// Enrolled, without health check, up, at its full weight of 100.
fn seen(admin: u32) -> Seen {
    Seen {
        admin: AdminBits::from_number(admin),
        operational: OpState::Running,
        weight: 100,
        configured_weight: 100,
        check: CheckBits::from_number(0),
        agent: CheckBits::from_number(22),
        agent_port: Some(PORT),
    }
}

fn stat(status: &str, agent: &str, last_agent: &str) -> Stat {
    Stat {
        status: status.into(),
        agent: (!agent.is_empty()).then(|| agent.into()),
        last_agent: last_agent.into(),
        sessions: Some(0),
        throttle: None,
        is_backup: false,
    }
}

/// A process of an hour, looked at half a second ago, which had shown the answer before.
fn sight(seen: &Seen) -> Sight<'_> {
    Sight {
        seen,
        stat: None,
        looked_ago: SECOND / 2,
        process_age: SECOND * 3600,
        past: Past {
            agreed: true,
            differs_for: Duration::ZERO,
        },
    }
}

fn told(judgement: &Judgement) -> (Verdict, String) {
    (judgement.verdict, judgement.why().unwrap_or_default())
}

fn assert_told(judgement: &Judgement, verdict: Verdict, why: &str) {
    assert_eq!(told(judgement), (verdict, why.to_owned()));
}

#[test]
fn what_agrees_and_what_does_not() {
    let weight = |weight, configured| Seen {
        weight,
        configured_weight: configured,
        ..seen(0)
    };
    let half_of_one = "weight 0 of 1: no new traffic, although HAProxy calls it up";
    for (answer, row, verdict, why) in [
        (ready(100), seen(0), Verdict::Converged, ""),
        (ready(100), seen(4), Verdict::Converged, ""),
        (Answer::Drain, seen(8), Verdict::Converged, ""),
        (Answer::Drain, seen(12), Verdict::Converged, ""),
        (Answer::Maint, seen(1), Verdict::Converged, ""),
        (Answer::Maint, seen(5), Verdict::Converged, ""),
        (Answer::Keep, seen(1), Verdict::Converged, ""),
        (ready(50), weight(50, 100), Verdict::Converged, ""),
        (ready(50), weight(1, 3), Verdict::Converged, ""),
        (ready(50), weight(0, 1), Verdict::Converged, half_of_one),
        (ready(200), weight(256, 200), Verdict::Converged, ""),
        // A weight that nobody restates is nobody's business, nor is that of a row out of rotation.
        (
            Answer::Ready {
                weight: None,
                up: true,
            },
            weight(7, 100),
            Verdict::Converged,
            "",
        ),
        (
            Answer::Maint,
            Seen {
                admin: AdminBits::FMAINT,
                ..weight(7, 100)
            },
            Verdict::Converged,
            "",
        ),
    ] {
        assert_told(&judge(&said(answer), &sight(&row)), verdict, why);
    }
    let hand = "changed on HAProxy's own socket after it had taken the answer; ";
    for (answer, row, shows) in [
        (ready(100), seen(1), "HAProxy keeps it in maint"),
        (ready(100), seen(8), "HAProxy keeps it in drain"),
        (Answer::Drain, seen(0), "HAProxy has it ready, not drain"),
        (Answer::Drain, seen(1), "HAProxy has it maint, not drain"),
        (Answer::Maint, seen(8), "HAProxy has it drain, not maint"),
        (
            ready(50),
            seen(0),
            "HAProxy gives it weight 100, not 50% of 100",
        ),
    ] {
        let judgement = judge(&said(answer), &sight(&row));
        assert_told(&judgement, Verdict::Diverged, &format!("{hand}{shows}"));
    }
}

#[test]
fn a_difference_is_pending_until_its_time_is_over() {
    let row = seen(8);
    let new = Past::default();
    let past = |seconds| Past {
        agreed: false,
        differs_for: SECOND * seconds,
    };
    let shows = "HAProxy keeps it in drain";
    let at = |sight: Sight<'_>| judge(&said(ready(100)), &sight);
    let with = |past| Sight {
        past,
        ..sight(&row)
    };
    assert_told(&at(with(new)), Verdict::Pending, shows);
    assert_told(&at(with(past(3))), Verdict::Pending, shows);
    assert_told(
        &at(with(past(4))),
        Verdict::Diverged,
        "HAProxy asks and does otherwise, for 4s; HAProxy keeps it in drain",
    );
    let before_the_answer = Sight {
        looked_ago: SECOND * 60,
        ..sight(&row)
    };
    assert_told(
        &at(before_the_answer),
        Verdict::Pending,
        "answered, not looked at since",
    );
    let reloaded = Sight {
        process_age: SECOND / 2,
        past: new,
        ..sight(&row)
    };
    assert_told(
        &at(reloaded),
        Verdict::Pending,
        "has not asked yet: HAProxy, or this agent, started 500ms ago; HAProxy keeps it in drain",
    );
}

#[test]
fn until_haproxy_asks_again_a_change_of_the_store_is_pending() {
    let changed = Said {
        due: Answer::Drain,
        ..said(ready(100))
    };
    assert_told(
        &judge(&changed, &sight(&seen(0))),
        Verdict::Pending,
        "the store changed, HAProxy has not asked since",
    );
    assert_told(
        &judge(&changed, &sight(&seen(8))),
        Verdict::Pending,
        "the store changed and HAProxy does so already, but has not asked since",
    );
}

#[test]
fn a_static_algorithm_is_named_at_once() {
    let row = seen(0);
    let warning = "agent warns : Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.";
    let stat = stat("UP", "CHECKED", warning);
    let sight = Sight {
        stat: Some(&stat),
        past: Past::default(),
        ..sight(&row)
    };
    assert_told(
        &judge(&said(ready(50)), &sight),
        Verdict::Diverged,
        "the backend's balance algorithm is static and takes no weights but 0% and 100%; HAProxy \
         gives it weight 100, not 50% of 100",
    );
    assert_eq!(judge(&said(ready(100)), &sight).verdict, Verdict::Converged);
}

#[test]
fn what_checks_and_other_rows_decide_is_a_remark() {
    let down = Seen {
        operational: OpState::Stopped,
        check: CheckBits::from_number(6),
        ..seen(0)
    };
    let tracking = seen(2);
    let throttled = Stat {
        throttle: Some(31),
        ..stat("UP", "CHECKED", "")
    };
    let off = Seen {
        agent: CheckBits::from_number(18),
        ..seen(0)
    };
    for (row, stat, why) in [
        (
            &down,
            stat("DOWN", "CHECKED", ""),
            "down by its health check",
        ),
        (
            &down,
            stat("DOWN (agent)", "CHECKED", ""),
            "down by an agent: only the word @up in its agent-send lifts that",
        ),
        (
            &tracking,
            stat("MAINT (via chk/a)", "CHECKED", ""),
            "not by its own state: MAINT (via chk/a)",
        ),
        (
            &tracking,
            stat("UP", "CHECKED", ""),
            "not by its own state: MAINT",
        ),
        (
            &seen(32),
            stat("MAINT (resolution)", "CHECKED", ""),
            "not by its own state: MAINT (resolution)",
        ),
        (&seen(0), throttled, "slowstart has come to 31%"),
        (
            &off,
            stat("no check", "", ""),
            "its agent check is disabled on HAProxy's socket; `enable agent` lets it ask again",
        ),
    ] {
        let sight = Sight {
            stat: Some(&stat),
            ..sight(row)
        };
        assert_told(&judge(&said(ready(100)), &sight), Verdict::Converged, why);
    }
}

#[test]
fn silence_has_a_cause() {
    let silent = Said {
        asked_ago: SECOND * 7,
        due: Answer::Drain,
        ..said(ready(100))
    };
    let with = |agent| Seen {
        agent: CheckBits::from_number(agent),
        ..seen(8)
    };
    let fails = stat("UP", "L4CON", "Connection refused");
    let ini = stat("UP", "INI", "");
    let elsewhere = stat("UP", "CHECKED", "");
    let refused = stat("UP", "L7RSP", "");
    for (row, stat, why) in [
        (with(22), None, ""),
        (with(22), Some(&ini), ""),
        (
            with(18),
            None,
            "; its agent check is disabled on HAProxy's socket; `enable agent` lets it ask again",
        ),
        (
            with(0),
            None,
            "; not enrolled: its server line has no agent-check, no write reaches it",
        ),
        (
            with(22),
            Some(&fails),
            "; HAProxy's agent check fails: L4CON (Connection refused)",
        ),
        (
            with(22),
            Some(&refused),
            "; its asks are refused (L7RSP): the agent does not understand its agent-send",
        ),
        (
            with(22),
            Some(&elsewhere),
            "; its agent check is answered, but not under this name: it is a slot, another agent \
             answers, or its agent-send names another row",
        ),
    ] {
        let sight = Sight {
            stat,
            ..sight(&row)
        };
        assert_told(
            &judge(&silent, &sight),
            Verdict::Silent,
            &format!("has not asked for 7s{why}"),
        );
    }
    assert_told(
        &judge(&silent, &sight(&seen(0))),
        Verdict::Silent,
        "has not asked for 7s; HAProxy has it ready, not drain",
    );
}

#[test]
fn what_nobody_can_look_at() {
    let asks = said(ready(100));
    let silent = Said {
        asked_ago: SECOND * 7,
        ..asks
    };
    for (cause, asking, verdict, silence) in [
        (
            Cause::NoSocket,
            "no HAProxy socket is configured",
            Verdict::Silent,
            "has not asked for 7s",
        ),
        (
            Cause::NoLook("it hangs".to_owned()),
            "HAProxy cannot be looked at: it hangs",
            Verdict::Silent,
            "has not asked for 7s; HAProxy cannot be looked at: it hangs",
        ),
        (
            Cause::UnknownRow,
            "asks, but no HAProxy that is looked at has a row of this name: another HAProxy asks, a \
             slot holds it, or an agent-send is wrong",
            Verdict::Unobserved,
            "has not asked for 7s; HAProxy does not have this row any more",
        ),
        (
            Cause::InSlot("web/3".into(), Box::new(Cause::SwitchedOff)),
            "it may sit in web/3: its agent check is disabled on HAProxy's socket; `enable agent` lets it \
             ask again",
            Verdict::Silent,
            "has not asked for 7s; it may sit in web/3: its agent check is disabled on HAProxy's socket; \
             `enable agent` lets it ask again",
        ),
    ] {
        assert_told(
            &judge_unseen(&asks, cause.clone()),
            Verdict::Unobserved,
            asking,
        );
        assert_told(&judge_unseen(&silent, cause), verdict, silence);
    }
}

#[test]
fn rows_that_never_asked() {
    let with = |agent| Seen {
        agent: CheckBits::from_number(agent),
        ..seen(0)
    };
    let elsewhere = Seen {
        agent_port: Some(9000),
        ..seen(0)
    };
    let young = SECOND * 9;
    let old = SECOND * 10;
    for (row, agent, age, verdict, why) in [
        (with(0), "", old, Verdict::Unobserved, "not enrolled"),
        (
            with(18),
            "",
            old,
            Verdict::Silent,
            "its agent check is disabled",
        ),
        (
            elsewhere,
            "CHECKED",
            old,
            Verdict::Silent,
            "its agent check asks port 9000",
        ),
        (
            with(22),
            "CHECKED",
            old,
            Verdict::Unobserved,
            "its agent check is answered, but not under",
        ),
        (
            with(22),
            "INI",
            young,
            Verdict::Pending,
            "has not asked yet: HAProxy, or this agent, started 9s ago",
        ),
        (
            with(22),
            "INI",
            old,
            Verdict::Silent,
            "enrolled, but has not asked for 10s",
        ),
        (
            with(22),
            "",
            young,
            Verdict::Pending,
            "has not asked yet: HAProxy, or this agent, started 9s ago",
        ),
        (
            with(22),
            "L4CON",
            young,
            Verdict::Pending,
            "has not asked yet: HAProxy, or this agent, started 9s ago",
        ),
        (
            with(22),
            "L4CON",
            old,
            Verdict::Silent,
            "HAProxy's agent check fails: L4CON",
        ),
        (
            with(22),
            "L7RSP",
            old,
            Verdict::Silent,
            "its asks are refused",
        ),
    ] {
        let stat = stat("UP", agent, "");
        let sight = Sight {
            stat: Some(&stat),
            process_age: age,
            ..sight(&row)
        };
        let (got, text) = told(&judge_unasked(&sight, PORT));
        assert_eq!(got, verdict, "{agent} {text}");
        assert!(text.starts_with(why), "{text}");
    }
}

#[test]
fn of_several_haproxy_the_worst_is_told() {
    let of = |verdict| Judgement::new(verdict, []);
    let order = [
        Verdict::Converged,
        Verdict::Unobserved,
        Verdict::Pending,
        Verdict::Silent,
        Verdict::Diverged,
    ];
    for pair in order.windows(2) {
        assert!(of(pair[1]).is_worse_than(&of(pair[0])), "{pair:?}");
        assert!(!of(pair[0]).is_worse_than(&of(pair[1])), "{pair:?}");
    }
}
