//! One change to a clean text for each rule, which must find it and say so at the right place.

use std::collections::BTreeSet;

use haplane_core::audit::{Place, Rule};
use haplane_haproxy::cfg::{Config, Context, SourceFile};

use super::{CLEAN, LOADED, ROWS, findings};

/// One change to a clean text, and the rule that must find it, with what it must say and where.
struct Case {
    rule: Rule,
    change: (&'static str, &'static str),
    says: &'static str,
    /// Line and column of the finding.
    at: (u32, u32),
}

const fn case(
    rule: Rule,
    change: (&'static str, &'static str),
    says: &'static str,
    at: (u32, u32),
) -> Case {
    Case {
        rule,
        change,
        says,
        at,
    }
}

fn check(clean: &str, rows: Option<&str>, cases: &[Case], change_rows: bool) -> BTreeSet<Rule> {
    let mut covered = BTreeSet::new();
    for case in cases {
        let (from, to) = case.change;
        let subject = if change_rows { rows.unwrap() } else { clean };
        let changed = subject.replacen(from, to, 1);
        assert_ne!(changed, subject, "{}: {from}", case.rule);
        let (config, rows) = if change_rows {
            (clean, Some(changed.as_str()))
        } else {
            (changed.as_str(), rows)
        };
        let before = findings(clean, if change_rows { Some(ROWS) } else { rows });
        let found = findings(config, rows);
        let new: Vec<_> = found
            .iter()
            .filter(|finding| !before.contains(finding))
            .cloned()
            .collect();
        let finding = new.iter().find(|finding| finding.rule == case.rule);
        let finding =
            finding.unwrap_or_else(|| panic!("{} does not find it: {found:#?}", case.rule));
        assert!(
            finding.message.contains(case.says),
            "{}: {}",
            case.rule,
            finding.message
        );
        assert!(!finding.fix.is_empty());
        match &finding.place {
            Place::Config(span) => {
                let parsed = Config::parse(vec![SourceFile::new("f", config)], &Context::default());
                let place = parsed.locate(*span);
                assert_eq!(
                    (place.line, place.column),
                    case.at,
                    "{}: {}",
                    case.rule,
                    place.text
                );
            }
            Place::StateFile { line, .. } => {
                assert_eq!((u32::try_from(*line).unwrap(), 0), case.at, "{}", case.rule);
            }
            Place::Process => assert_eq!((0, 0), case.at, "{}", case.rule),
        }
        covered.insert(case.rule);
    }
    covered
}

/// Changes to the configuration that stands alone.
const IN_THE_CONFIGURATION: &[Case] = &[
    case(
        Rule::ConfigRefused,
        ("192.0.2.1:80", "192.0.2.1:x"),
        "\"x\" is no port",
        (10, 14),
    ),
    case(
        Rule::ConfigUnknown,
        ("backend web", ".if feature(X)\n.endif\nbackend web"),
        "cannot be decided",
        (8, 1),
    ),
    case(
        Rule::AllowUnused,
        (
            "\"web/b\\n\"",
            "\"web/b\\n\" # haplane: allow no-slowstart because",
        ),
        "silences nothing",
        (11, 5),
    ),
    case(
        Rule::NotEnrolled,
        ("agent-check agent-send \"web/b\\n\"", ""),
        "web/b has no agent-check",
        (11, 12),
    ),
    case(
        Rule::AgentSendMissing,
        ("agent-send \"web/b\\n\"", ""),
        "without saying who it is",
        (11, 38),
    ),
    case(
        Rule::AgentSendNewline,
        ("\"web/b\\n\"", "web/b"),
        "does not end with \\n",
        (11, 50),
    ),
    case(
        Rule::AgentSendMismatch,
        ("\"web/b\\n\"", "\"other/b\\n\""),
        "web/b asks as other/b",
        (11, 50),
    ),
    case(
        Rule::AgentSendMismatch,
        ("\"web/b\\n\"", "\"@down\\n\""),
        "the agent refuses the words",
        (11, 50),
    ),
    case(
        Rule::AgentSendDuplicate,
        ("\"web/b\\n\"", "\"web/a\\n\""),
        "web/b asks as web/a, as web/a does",
        (11, 50),
    ),
    case(
        Rule::AgentAddressRemote,
        ("agent-addr 127.0.0.1", "agent-addr 192.0.2.9"),
        "asks 192.0.2.9",
        (7, 34),
    ),
    case(
        Rule::AgentAddressRemote,
        ("agent-addr 127.0.0.1 ", ""),
        "the server's own address",
        (10, 14),
    ),
    case(
        Rule::AgentInterval,
        ("agent-inter 2s", "agent-inter 20s"),
        "every 20s only",
        (7, 71),
    ),
    case(
        Rule::AgentTimeout,
        ("timeout check 1s", "timeout check 3s"),
        "waits 3s for an agent",
        (6, 5),
    ),
    case(
        Rule::AgentTimeout,
        ("timeout check 1s", "timeout check 50ms"),
        "no longer than 50ms",
        (6, 5),
    ),
    case(
        Rule::WeightTooSmall,
        ("192.0.2.2:80 weight 100", "192.0.2.2:80"),
        "less than 100% is no traffic",
        (11, 12),
    ),
    case(
        Rule::WeightTooSmall,
        ("192.0.2.2:80 weight 100", "192.0.2.2:80 weight 3"),
        "less than 34%",
        (11, 27),
    ),
    case(
        Rule::StaticBalance,
        ("balance roundrobin", "balance source"),
        "balances by source",
        (9, 5),
    ),
    case(
        Rule::StaticBalance,
        ("balance roundrobin", "balance uri"),
        "balances by uri",
        (9, 5),
    ),
    case(
        Rule::NoSlowstart,
        ("slowstart 60s ", ""),
        "web/a has no slowstart",
        (10, 12),
    ),
    case(
        Rule::TrackWeight,
        (
            "backend slots",
            "backend t\n    server x 192.0.2.9:80 track web/a\nbackend slots",
        ),
        "does not follow the weight of web/a",
        (13, 27),
    ),
    case(
        Rule::InitStateAgent,
        (
            "192.0.2.2:80 weight 100",
            "192.0.2.2:80 weight 100 init-state fully-down",
        ),
        "starts fully-down",
        (11, 38),
    ),
    case(
        Rule::SlotsWithoutFree,
        ("\"@free\\n\"", "\"slots/s canary\\n\""),
        "also while they are empty",
        (13, 69),
    ),
    case(
        Rule::ReloadWindow,
        ("    max-spread-checks 1\n", ""),
        "drained rows take traffic",
        (1, 1),
    ),
    case(
        Rule::AdminSocketTcp,
        ("/run/haproxy.sock mode 600", "192.0.2.1:9999"),
        "listens on 192.0.2.1:9999 at level admin",
        (2, 18),
    ),
    case(
        Rule::AdminSocketMode,
        ("mode 600", "mode 666"),
        "every local user can open /run/haproxy.sock at level admin",
        (2, 36),
    ),
];

/// Changes to the configuration that loads a state file; the first is the third background document's story.
const BESIDE_A_STATE_FILE: &[Case] = &[
    // The third background document: the port changed in the configuration only.
    case(
        Rule::StateFilePort,
        ("192.0.2.1:80", "192.0.2.1:81"),
        "web/a will use port 80 from line 3 of /var/lib/state, not the configured 81",
        (7, 14),
    ),
    case(
        Rule::StateFileAgent,
        ("agent-port 9777", "agent-port 9778"),
        "will ask its agent at 127.0.0.1 port 9777",
        (9, 12),
    ),
    case(
        Rule::StateFileCheckPort,
        ("check port 8080", "check port 8081"),
        "will be checked at the server's address port 8080",
        (9, 12),
    ),
    case(
        Rule::StateFileInUse,
        (" # haplane: seed", ""),
        "has enrolled rows and loads /var/lib/state",
        (5, 5),
    ),
];

/// Changes to the state file.
const IN_A_STATE_FILE: &[Case] = &[
    case(
        Rule::StateFileAddress,
        ("1 a 192.0.2.1", "1 a 192.0.2.77"),
        "web/a ran with address 192.0.2.77",
        (7, 14),
    ),
    case(
        Rule::StateFilePlaceholder,
        (
            "s1 127.0.0.1 0 5 10 10 1 1 0 0 8 0 0 0 - 1",
            "s1 192.0.2.50 2 4 10 10 1 1 0 0 6 0 0 0 - 8005",
        ),
        "web/s1 will be 127.0.0.1 port 8005 and in rotation",
        (11, 25),
    ),
    case(
        Rule::StateFileDisabled,
        ("off 192.0.2.4 0 5", "off 192.0.2.4 2 4"),
        "is `disabled` in the configuration and will be in rotation",
        (10, 12),
    ),
    case(
        Rule::StateFileDisabled,
        ("a 192.0.2.1 2 0", "a 192.0.2.1 0 0"),
        "will be down for ever",
        (7, 12),
    ),
    case(
        Rule::StateFileDisabled,
        ("0 2 6 22", "0 2 2 22"),
        "the health check of web/e will stay switched off",
        (9, 12),
    ),
    case(
        Rule::StateFileCheckStuck,
        ("10 10 1 1 0 2 6 22", "10 10 1 0 0 2 6 22"),
        "the health check of web/e will never have a result",
        (9, 12),
    ),
    case(
        Rule::AgentDisabled,
        ("0 2 6 22", "0 2 6 18"),
        "will stay switched off",
        (9, 12),
    ),
    case(
        Rule::StateFileWeight,
        ("a 192.0.2.1 2 0 10", "a 192.0.2.1 2 0 3"),
        "web/a will have weight 3",
        (7, 12),
    ),
    case(
        Rule::StateFileDropped,
        ("a 192.0.2.1 2 0 10", "a 192.0.2.1 2 9 10"),
        "HAProxy refuses the row of web/a: srv_admin_state",
        (3, 0),
    ),
];

#[test]
fn each_rule_finds_its_trigger() {
    let mut covered = check(CLEAN, None, IN_THE_CONFIGURATION, false);
    covered.extend(check(LOADED, Some(ROWS), BESIDE_A_STATE_FILE, false));
    covered.extend(check(LOADED, Some(ROWS), IN_A_STATE_FILE, true));
    // These have tests of their own.
    covered.extend([
        Rule::VersionKnownBad,
        Rule::RunningDiffers,
        Rule::RunningMissing,
    ]);
    let missing: Vec<_> = Rule::ALL
        .iter()
        .filter(|rule| !covered.contains(rule))
        .collect();
    assert!(missing.is_empty(), "no trigger for {missing:?}");
}
