//! The audit of configurations, state files and processes, each beside a clean twin of which nothing is said.

mod triggers;

use std::collections::BTreeSet;

use haplane_core::audit::{Finding, Place, Rule, Severity, Subject, audit};
use haplane_haproxy::HaproxyVersion;
use haplane_haproxy::cfg::{Config, Context, SourceFile};
use haplane_haproxy::forecast::StateFiles;
use haplane_haproxy::server_state::{HEADER, SEED_MARK, StateFile, read_answer};

/// A configuration that nothing is to be said of.
const CLEAN: &str = r#"global
    stats socket /run/haproxy.sock mode 600 level admin
    max-spread-checks 1
defaults
    mode http
    timeout check 1s
    default-server slowstart 60s agent-addr 127.0.0.1 agent-port 9777 agent-inter 2s
backend web
    balance roundrobin
    server a 192.0.2.1:80 weight 100 agent-check agent-send "web/a canary\n"
    server b 192.0.2.2:80 weight 100 agent-check agent-send "web/b\n"
backend slots
    server-template s 3 127.0.0.1:1 disabled weight 100 agent-check agent-send "@free\n"
"#;

/// The same with a state file loaded.
const LOADED: &str = r#"global
    server-state-file /var/lib/state # haplane: seed
    max-spread-checks 1
defaults
    load-server-state-from-file global
backend web
    server a 192.0.2.1:80 weight 10
    server n db.example:80 weight 10 init-addr last,libc
    server e 192.0.2.3:80 weight 10 slowstart 1s check port 8080 agent-check agent-addr 127.0.0.1 agent-port 9777 agent-send "web/e\n"
    server off 192.0.2.4:80 weight 10 disabled
    server-template s 2 127.0.0.1:1 weight 10 disabled
"#;

/// What that configuration's own process writes of it.
const ROWS: &str = "2 web 1 a 192.0.2.1 2 0 10 10 1 1 0 2 0 0 0 0 - 80 - 0 0 - - 0\n\
    2 web 2 n 192.0.2.9 2 0 10 10 1 1 0 2 0 0 0 0 db.example 80 - 0 0 - - 0\n\
    2 web 3 e 192.0.2.3 2 0 10 10 1 1 0 2 6 22 0 0 - 80 - 0 8080 - 127.0.0.1 9777\n\
    2 web 4 off 192.0.2.4 0 5 10 10 1 1 0 0 8 0 0 0 - 80 - 0 0 - - 0\n\
    2 web 5 s1 127.0.0.1 0 5 10 10 1 1 0 0 8 0 0 0 - 1 - 0 0 - - 0\n\
    2 web 6 s2 127.0.0.1 0 5 10 10 1 1 0 0 8 0 0 0 - 1 - 0 0 - - 0\n";

fn findings(config: &str, rows: Option<&str>) -> Vec<Finding> {
    findings_of(
        config,
        rows.map(|rows| format!("1\n{HEADER}\n{rows}")).as_deref(),
        None,
    )
}

fn findings_of(config: &str, file: Option<&str>, version: Option<HaproxyVersion>) -> Vec<Finding> {
    let config = Config::parse(
        vec![SourceFile::new("haproxy.cfg", config)],
        &Context::default(),
    );
    let global = file.map(|file| StateFile::read(file.as_bytes()));
    let files = StateFiles {
        global,
        ..StateFiles::default()
    };
    audit(&Subject {
        config: &config,
        files: &files,
        global_file: Some("/var/lib/state"),
        running: None,
        version,
    })
}

fn rules(findings: &[Finding]) -> BTreeSet<Rule> {
    findings.iter().map(|finding| finding.rule).collect()
}

fn only(rule: Rule, findings: &[Finding]) -> &Finding {
    let of_rule: Vec<_> = findings
        .iter()
        .filter(|finding| finding.rule == rule)
        .collect();
    assert_eq!(of_rule.len(), 1, "{rule}: {findings:#?}");
    of_rule[0]
}

#[test]
fn the_clean_twins_are_clean() {
    // Only the rows of the loaded one are not all enrolled.
    assert!(
        findings(CLEAN, None).is_empty(),
        "{:#?}",
        findings(CLEAN, None)
    );
    let loaded = findings(LOADED, Some(ROWS));
    let expected = BTreeSet::from([Rule::NotEnrolled, Rule::StateFileAddress]);
    assert_eq!(rules(&loaded), expected, "{loaded:#?}");
    assert_eq!(
        only(Rule::StateFileAddress, &loaded).severity,
        Severity::Note,
        "a name that remembers its address"
    );
}

#[test]
fn a_file_that_is_dropped_whole_is_one_finding() {
    for (file, line) in [
        ("1\r\n", 1),
        (ROWS, 1),
        ("1\n2 web 1 a\n", 2),
        ("1\n2 web 1 a - 2 8 10 10 0 0 0 0 6 22 0 0 - 80 -", 2),
    ] {
        let found = findings_of(LOADED, Some(file), None);
        let finding = only(Rule::StateFileDropped, &found);
        assert_eq!(
            finding.place,
            Place::StateFile {
                name: "/var/lib/state".to_owned(),
                line
            },
            "{file:?}"
        );
        assert!(
            finding
                .message
                .starts_with("HAProxy drops all of /var/lib/state"),
            "{}",
            finding.message
        );
    }
}

#[test]
fn intervals_below_a_second_need_another_check_to_be_slow() {
    let fast = CLEAN.replace("agent-inter 2s", "agent-inter 500ms");
    let without_cap = fast.replace("    max-spread-checks 1\n", "");
    assert!(
        !rules(&findings(&fast, None)).contains(&Rule::AgentInterval),
        "the spread is capped"
    );
    assert!(
        !rules(&findings(&without_cap, None)).contains(&Rule::AgentInterval),
        "no other check"
    );
    let slowed = without_cap.replace("\"web/b\\n\"", "\"web/b\\n\" check inter 10s");
    let found = findings(&slowed, None);
    let finding = found
        .iter()
        .find(|finding| finding.rule == Rule::AgentInterval)
        .unwrap();
    assert_eq!(
        finding.message,
        "web/a asks every 500ms, but after a start only within 10s"
    );
}

#[test]
fn a_seed_is_told_by_its_mark() {
    let config = LOADED
        .replace(" # haplane: seed", "")
        .replace("    max-spread-checks 1\n", "");
    let file = format!("1\n{HEADER}\n{SEED_MARK} lb-01\n");
    let seeded = rules(&findings_of(&config, Some(&file), None));
    assert!(
        !seeded.contains(&Rule::StateFileInUse) && !seeded.contains(&Rule::ReloadWindow),
        "{seeded:?}"
    );
    let other = rules(&findings_of(&config, Some(&format!("1\n{HEADER}\n")), None));
    assert!(
        other.contains(&Rule::StateFileInUse) && other.contains(&Rule::ReloadWindow),
        "{other:?}"
    );
}

#[test]
fn a_comment_allows_one_finding_on_its_line() {
    let config = CLEAN.replace("weight 100 agent-check agent-send \"web/b\\n\"", "weight 1 agent-check agent-send \"web/b\\n\" # haplane: allow weight-too-small only ever drained");
    assert!(
        findings(&config, None).is_empty(),
        "{:#?}",
        findings(&config, None)
    );
    for (comment, told) in [
        ("# haplane: allow weight-too-small", "gives no reason"),
        ("# haplane: allow nonsense because", "names no rule"),
    ] {
        let config = CLEAN.replace("\"web/b\\n\"", &format!("\"web/b\\n\" {comment}"));
        let found = findings(&config, None);
        assert!(
            only(Rule::AllowUnused, &found).message.contains(told),
            "{found:#?}"
        );
    }
}

#[test]
fn versions() {
    let found = |version: (u16, u16, u16)| {
        let version = HaproxyVersion::new(version.0, version.1, version.2);
        findings_of(CLEAN, None, Some(version)).len()
    };
    assert_eq!(found((2, 8, 25)), 0);
    assert_eq!(found((2, 4, 1)), 1, "agent checks crash it");
    assert_eq!(found((2, 4, 2)), 0);
    assert_eq!(found((2, 7, 0)), 1, "no more fixes");
}

#[test]
fn the_running_process_against_the_files() {
    let config = Config::parse(
        vec![SourceFile::new("haproxy.cfg", LOADED)],
        &Context::default(),
    );
    let running = |rows: &str| {
        let rows = read_answer(&format!("1\n{HEADER}\n{rows}\n")).unwrap();
        let files = StateFiles::default();
        let subject = Subject {
            config: &config,
            files: &files,
            global_file: None,
            running: Some(&rows),
            version: None,
        };
        let found = audit(&subject);
        found
            .into_iter()
            .filter(|finding| {
                matches!(
                    finding.rule,
                    Rule::RunningDiffers | Rule::RunningMissing | Rule::AgentDisabled
                )
            })
            .collect::<Vec<_>>()
    };
    assert!(running(ROWS).is_empty(), "{:#?}", running(ROWS));
    let filled = ROWS
        .replace("s1 127.0.0.1 0 5", "s1 192.0.2.50 2 4")
        .replace("- 1 -", "- 8005 -");
    assert!(
        running(&filled).is_empty(),
        "a filled slot: {:#?}",
        running(&filled)
    );
    let changed = ROWS
        .replace("1 a 192.0.2.1 2 0 10 10", "1 a 192.0.2.7 2 0 10 20")
        .replace("0 2 6 22 0 0 - 80", "0 2 6 18 0 0 - 81")
        .replace("2 web 4 off", "2 web 4 extra");
    let told: Vec<_> = running(&changed)
        .into_iter()
        .map(|finding| (finding.rule, finding.message))
        .collect();
    let told: Vec<_> = told
        .iter()
        .map(|(rule, message)| format!("{rule}: {message}"))
        .collect();
    assert_eq!(
        told,
        [
            "running-differs: web/a runs with address 192.0.2.7 (configured: 192.0.2.1), configured weight 20 (configured: 10)",
            "agent-disabled: the agent check of web/e is switched off in the running process",
            "running-differs: web/e runs with port 81 (configured: 80)",
            "running-missing: web/off is not in the running process",
            "running-missing: web/extra is in the running process only: added at run time, or not reloaded",
        ]
    );
}

#[test]
fn the_fix_is_of_the_case() {
    let fix = |from: &str, to: &str, rule: Rule| {
        let all = findings(&CLEAN.replacen(from, to, 1), None);
        let found = all.into_iter().find(|finding| finding.rule == rule);
        found.expect("a finding").fix
    };
    let slip = fix(
        "192.0.2.1:80 weight",
        "192.0.2.1:80 chekc weight",
        Rule::ConfigUnknown,
    );
    assert_eq!(slip, "did you mean check?");
    let newer = fix(
        "192.0.2.1:80 weight",
        "192.0.2.1:80 teleport weight",
        Rule::ConfigUnknown,
    );
    assert!(newer.contains("newer HAProxy"), "{newer}");
    let undecided = fix(
        "backend web",
        ".if feature(X)\n.endif\nbackend web",
        Rule::ConfigUnknown,
    );
    assert!(undecided.contains("--haproxy-version"), "{undecided}");

    let enrolled = "agent-check agent-send \"web/b\\n\"";
    let plain = fix(enrolled, "", Rule::NotEnrolled);
    assert!(plain.starts_with("run `haplane enroll`"), "{plain}");
    let disabled = fix(enrolled, "disabled", Rule::NotEnrolled);
    assert!(
        disabled.contains("`haplane set web/b maint --force`"),
        "{disabled}"
    );
}

#[test]
fn names_are_unique_and_stable() {
    let ids: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    assert_eq!(ids.len(), Rule::ALL.len());
    for rule in Rule::ALL {
        assert_eq!(Rule::from_id(rule.id()), Some(*rule));
        assert!(
            rule.id()
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '-')
        );
    }
}

/// A file that is wrong throughout says no more on its hundred thousandth line than on its first.
#[test]
fn a_state_file_that_is_wrong_throughout_is_told_in_part() {
    let row = "3 web 1 a 127.0.0.1 2 0 1 1 9 1 0 0 0 0 0 0 - 99999999 - 0 0 - - 0\n";
    let found = findings(LOADED, Some(&row.repeat(5_000)));
    let dropped = found
        .iter()
        .filter(|finding| finding.rule == Rule::StateFileDropped);
    assert_eq!(dropped.count(), 1_001);
}
