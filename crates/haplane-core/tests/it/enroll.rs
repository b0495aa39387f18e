//! Enrolment: what is written where, what stays, and that nothing else moves.

use std::fmt::Write as _;

use haplane_core::enroll::{EnrollError, Group, Plan, Wanted, apply, enroll, remove};
use haplane_haproxy::cfg::{Config, Context, SourceFile};
use proptest::prelude::*;

fn parse(text: &str) -> Config {
    Config::parse(
        vec![SourceFile::new("haproxy.cfg", text)],
        &Context::default(),
    )
}

fn wanted() -> Wanted {
    let group = |key: &str, rows: &[&str]| Group {
        key: key.parse().unwrap(),
        rows: rows.iter().map(|glob| glob.parse().unwrap()).collect(),
    };
    Wanted {
        slowstart: Some("60s".to_owned()),
        exclude: vec!["packhorse/*".parse().unwrap()],
        groups: vec![
            group("canary", &["canary_*/*", "*/*-cny-*"]),
            group("zone/us-east1-b", &["*/*-us-east1-b*"]),
        ],
        ..Wanted::default()
    }
}

fn plan(text: &str) -> Plan {
    enroll(&parse(text), &Context::default(), &wanted()).unwrap()
}

fn enrolled(text: &str) -> String {
    let config = parse(text);
    let bytes = apply(&config, &plan(text).edits).remove(0);
    String::from_utf8(bytes).unwrap()
}

const ADDED: &str = "agent-check agent-addr 127.0.0.1 agent-port 9777 agent-inter 2s agent-send";

#[test]
fn parameters_go_behind_the_last_word() {
    for (line, want) in [
        (
            " server a 192.0.2.1:80\n",
            format!(" server a 192.0.2.1:80 {ADDED} \"web/a\\n\" slowstart 60s\n"),
        ),
        (
            "\tserver\ta\t192.0.2.1:80  \t# hi\n",
            format!("\tserver\ta\t192.0.2.1:80 {ADDED} \"web/a\\n\" slowstart 60s  \t# hi\n"),
        ),
        (
            " server 'x-cny-1' 192.0.2.1:80 check\r\n",
            format!(
                " server 'x-cny-1' 192.0.2.1:80 check {ADDED} \"web/x-cny-1 canary\\n\" slowstart 60s\r\n"
            ),
        ),
        (
            " server a 192.0.2.1:80 \"\" not read\n",
            format!(" server a 192.0.2.1:80 {ADDED} \"web/a\\n\" slowstart 60s \"\" not read\n"),
        ),
        (
            " server a 192.0.2.1:80 slowstart 5s#c\n",
            format!(" server a 192.0.2.1:80 slowstart 5s {ADDED} \"web/a\\n\"#c\n"),
        ),
        (
            " server-template s 3 192.0.2.1:80 disabled\n",
            format!(
                " server-template s 3 192.0.2.1:80 disabled {ADDED} \"@free\\n\" slowstart 60s\n"
            ),
        ),
        (
            " server g-cny-us-east1-b 192.0.2.1:80\n",
            format!(
                " server g-cny-us-east1-b 192.0.2.1:80 {ADDED} \"web/g-cny-us-east1-b canary zone/us-east1-b\\n\" slowstart 60s\n"
            ),
        ),
        (
            " server a 192.0.2.1:80 port 8080 addr 192.0.2.2\n",
            format!(
                " server a 192.0.2.1:80 port 8080 addr 192.0.2.2 {ADDED} \"web/a\\n\" slowstart 60s\n"
            ),
        ),
    ] {
        let text = format!("# a file\nbackend web\n{line}\n# its end\n");
        let got = enrolled(&text);
        assert_eq!(got, format!("# a file\nbackend web\n{want}\n# its end\n"));
        assert_eq!(enrolled(&got), got, "a second run changes nothing");
        assert_eq!(removed(&got), text, "and back again");
    }
}

fn removed(text: &str) -> String {
    let config = parse(text);
    let plan = remove(&config, &Context::default(), &wanted()).unwrap();
    String::from_utf8(apply(&config, &plan.edits).remove(0)).unwrap()
}

#[test]
fn what_is_in_force_is_not_written_again() {
    let defaults = "defaults\n default-server agent-check agent-addr 127.0.0.1 agent-port 9777 agent-inter 2s slowstart 60s\n";
    let text = format!("{defaults}backend web\n server a 192.0.2.1:80 # c\n");
    assert_eq!(
        enrolled(&text),
        format!("{defaults}backend web\n server a 192.0.2.1:80 agent-send \"web/a\\n\" # c\n")
    );
    assert_eq!(plan(&enrolled(&text)).unchanged, 1);
}

#[test]
fn changed_groups_and_ports_rewrite_the_words_in_place() {
    let text = "backend web\n server a-cny-1 192.0.2.1:80 agent-port 9777 agent-send \"web/a-cny-1 old\\n\" agent-check weight 5 agent-addr 127.0.0.1 slowstart 60s # c\n";
    let want = "backend web\n server a-cny-1 192.0.2.1:80 agent-port 9777 agent-send \"web/a-cny-1 canary\\n\" agent-check weight 5 agent-addr 127.0.0.1 slowstart 60s # c\n";
    assert_eq!(enrolled(text), want);
    let moved = Wanted {
        agent_port: 9999,
        agent_inter: "5s".to_owned(),
        ..wanted()
    };
    let config = parse(want);
    let edits = enroll(&config, &Context::default(), &moved).unwrap().edits;
    let got = String::from_utf8(apply(&config, &edits).remove(0)).unwrap();
    assert_eq!(
        got,
        want.replace("9777", "9999")
            .replace("slowstart 60s", "slowstart 60s agent-inter 5s")
    );
}

#[test]
fn what_is_left_alone_is_listed_with_its_reason() {
    let text = "backend packhorse\n server p 192.0.2.1:80\n\
                backend web\n server t 192.0.2.1:80 track packhorse/p\n server d 192.0.2.1:80 disabled\n \
                server o 192.0.2.1:80 agent-check agent-port 5555 agent-send \"load\\n\"\n \
                server n 192.0.2.1:80 no-agent-check\n server \"v${X-1}\" 192.0.2.1:80\n\
                .if feature(QUIC)\n server q 192.0.2.1:80\n.endif\n.if 0\n server z 192.0.2.1:80\n.endif\n\
                backend off\n disabled\n server x 192.0.2.1:80\nbackend odd\n server y 192.0.2.1:80 cookie \\\n";
    let plan = plan(text);
    assert!(plan.edits.is_empty(), "{plan:#?}");
    let left: Vec<_> = plan
        .left_alone
        .iter()
        .map(|one| format!("{}: {}", one.name, one.reason))
        .collect();
    let starts = [
        "packhorse/p: it is excluded",
        "web/t: it follows packhorse/p",
        "web/d: it is disabled",
        "web/o: it already asks another agent, on port 5555",
        "web/n: it says no-agent-check",
        "web/v1: its name depends on an environment variable",
        "web/q: it stands in a branch of .if that cannot be decided",
        "off/x: its backend is disabled",
        "odd/y: its last word ends with a backslash",
        "z: it stands in a branch of .if that is not taken",
    ];
    assert_eq!(left.len(), starts.len(), "{left:#?}");
    for (told, start) in left.iter().zip(starts) {
        assert!(told.starts_with(start), "{told}");
    }
}

/// An unset variable swallows the quotation mark behind it and glues on what follows.
#[test]
fn a_line_that_would_read_otherwise_is_left_alone_and_the_others_are_not() {
    let text = "backend web\n server a \"192.0.2.1:80${NOT_SET}\"\n server b 192.0.2.1:80\n";
    let plan = plan(text);
    assert_eq!(plan.left_alone.len(), 1, "{plan:#?}");
    assert!(
        plan.left_alone[0]
            .reason
            .contains("would not read as planned")
    );
    assert_eq!(plan.changed.len(), 1);
    assert_eq!(plan.changed[0].1, "web/b");
}

#[test]
fn a_line_has_room_for_sixty_four_words() {
    let line = |words: usize| {
        format!(
            "backend web\n server a 192.0.2.1:80{}\n",
            " check".repeat(words - 3)
        )
    };
    assert_eq!(plan(&line(50)).changed.len(), 1);
    let full = plan(&line(60));
    assert!(
        full.edits.is_empty() && full.left_alone[0].reason.contains("64 words"),
        "{full:#?}"
    );
}

#[test]
fn nothing_is_planned_on_what_haproxy_refuses() {
    let config = parse("backend web\n server a\n");
    assert!(matches!(
        enroll(&config, &Context::default(), &wanted()),
        Err(EnrollError::Refused(_))
    ));
    let config = parse("backend web\n server a 192.0.2.1:80\n");
    for wrong in [
        Wanted {
            agent_inter: "0".to_owned(),
            ..wanted()
        },
        Wanted {
            agent_inter: "2 s".to_owned(),
            ..wanted()
        },
        Wanted {
            slowstart: Some("1.5s".to_owned()),
            ..wanted()
        },
        Wanted {
            agent_address: "a b".to_owned(),
            ..wanted()
        },
        Wanted {
            agent_port: 0,
            ..wanted()
        },
    ] {
        let error = enroll(&config, &Context::default(), &wrong).unwrap_err();
        assert!(matches!(error, EnrollError::Wanted(_)), "{error}");
    }
}

#[test]
fn ten_thousand_servers() {
    let mut text = String::from("backend web\n");
    for number in 0..10_000 {
        writeln!(
            text,
            "  server s{number}-us-east1-b 192.0.2.1:80 check weight 100 # comment"
        )
        .unwrap();
    }
    assert_eq!(plan(&text).changed.len(), 10_000);
}

/// Server lines in every style that HAProxy takes, between other lines.
fn any_file() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        6 => ("[ \t]{0,4}", prop::sample::select(vec!["server", "\"server\""]), "[ \t]{1,3}", "[a-z]{1,3}(-cny-)?[a-z]{0,3}", "[ \t]{1,2}192\\.0\\.2\\.[1-9]:80", "( check| weight [1-9]0?| backup|\tcookie \"a b\"| slowstart 9s| agent-port 9777| inter 5s){0,4}", "[ \t]{0,3}", "(#[ a-z\"']{0,12})?", "\r?")
            .prop_map(|(a, b, c, d, e, f, g, h, i)| format!("{a}{b}{c}{d}{e}{f}{g}{h}{i}")),
        2 => "[ \t]{0,3}(# [a-z ]{0,20}|option httplog|mode tcp|)\r?",
        1 => "backend b[0-9]{1,4}",
        1 => "[ ]{1,2}default-server( weight 5| agent-inter 2s| slowstart 3s| agent-addr 127\\.0\\.0\\.1){1,3}",
    ];
    prop::collection::vec(line, 0..25)
        .prop_map(|lines| format!("backend first\n{}\n", lines.join("\n")))
}

proptest! {
    #[test]
    fn every_other_byte_is_kept_and_a_second_run_is_empty(text in any_file()) {
        let config = parse(&text);
        prop_assume!(!config.is_refused());
        let plan = enroll(&config, &Context::default(), &wanted()).unwrap();
        let got = String::from_utf8(apply(&config, &plan.edits).remove(0)).unwrap();
        for (before, after) in text.split('\n').zip(got.split('\n')) {
            // Only insertions, in one place: what is left of the line stands around it.
            let prefix = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
            prop_assert!(after.ends_with(&before[prefix..]), "{before:?} {after:?}");
        }
        let again = enroll(&parse(&got), &Context::default(), &wanted()).unwrap();
        prop_assert!(again.edits.is_empty(), "{again:#?}");
        let back = parse(&got);
        let undone = remove(&back, &Context::default(), &wanted()).unwrap();
        let undone = String::from_utf8(apply(&back, &undone.edits).remove(0)).unwrap();
        // A port that was there before cannot be told from one that was put there.
        if !text.contains("agent-port") {
            prop_assert_eq!(undone, text);
        }
    }
}

/// A folder of many files: each is as large as its own edits make it.
#[test]
fn every_file_gets_its_own_edits_and_no_room_for_those_of_others() {
    let files = (0..300).map(|n| {
        let text = format!("backend b{n}\n server s 127.0.0.1:1\n");
        SourceFile::new(format!("{n:03}.cfg"), text)
    });
    let config = Config::parse(files.collect(), &Context::default());
    let plan = enroll(&config, &Context::default(), &wanted()).unwrap();
    let edited = apply(&config, &plan.edits);
    assert_eq!(edited.len(), 300);
    for (n, bytes) in edited.iter().enumerate() {
        assert!(bytes.capacity() < 2_000, "{}", bytes.capacity());
        let text = String::from_utf8(bytes.clone()).unwrap();
        let sends = format!("agent-send \"b{n}/s\\n\"");
        assert!(text.contains(&sends), "{text}");
    }
}
