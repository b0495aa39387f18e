//! haproxy.cfg: what a row is set to and where that comes from, what is refused, and what is left open.
//!
//! What HAProxy makes of these texts was tried on HAProxy 2.8.25 (`-c`, `-dC`, `show servers state`); the end-to-end
//! tests hold the parser to it.

use std::fmt::Write as _;

use haplane_haproxy::HaproxyVersion;
use haplane_haproxy::cfg::{
    Activity, Config, Context, Environment, Severity, SourceFile, StateSource,
};
use proptest::prelude::*;

fn parse(text: &str) -> Config {
    Config::parse(
        vec![SourceFile::new("haproxy.cfg", text)],
        &Context::default(),
    )
}

fn parse_with(text: &str, variables: &[(&str, &str)], version: Option<HaproxyVersion>) -> Config {
    let environment = Environment::from_pairs(variables.iter().copied());
    Config::parse(
        vec![SourceFile::new("haproxy.cfg", text)],
        &Context {
            environment,
            version,
        },
    )
}

/// `backend/server address:port weight`, one row a line.
fn rows(config: &Config) -> Vec<String> {
    config
        .rows()
        .map(|row| {
            let server = row.server;
            let weight = server.settings.weight.value;
            format!(
                "{} {}:{} {weight}",
                row.key().unwrap(),
                server.address,
                server.port
            )
        })
        .collect()
}

fn remarks(config: &Config) -> Vec<String> {
    config
        .diagnostics()
        .iter()
        .map(|diagnostic| {
            let place = config.locate(diagnostic.span);
            format!(
                "{}:{} {}: {}",
                place.line,
                place.column,
                diagnostic.severity.as_str(),
                diagnostic.message
            )
        })
        .collect()
}

#[test]
fn defaults_are_inherited_as_haproxy_inherits_them() {
    let config = parse(
        "defaults d1\n default-server weight 11\n\
         defaults\n default-server weight 22 disabled\n\
         backend a\n server s 192.0.2.1:80\n\
         backend b from d1\n server s 192.0.2.1:80\n\
         defaults d3 from d1\n default-server port 7\n\
         backend c\n server s 192.0.2.1:80\n default-server weight 33 agent-check agent-port 4\n \
         server t 192.0.2.1:80 enabled\n default-server weight 34\n server u 192.0.2.1:80\n\
         listen f\n server-template x 2-4 192.0.2.1:80 check\n",
    );
    assert_eq!(
        rows(&config),
        [
            "a/s 192.0.2.1:80 22",
            "b/s 192.0.2.1:80 11",
            "c/s 192.0.2.1:80 11",
            "c/t 192.0.2.1:80 33",
            "c/u 192.0.2.1:80 34",
            "f/x2 192.0.2.1:80 11",
            "f/x3 192.0.2.1:80 11",
            "f/x4 192.0.2.1:80 11",
        ]
    );
    assert!(remarks(&config).is_empty(), "{:?}", remarks(&config));
    let row = |name: &str| {
        config
            .rows()
            .find(|row| row.key().unwrap().to_string() == name)
            .unwrap()
            .server
    };
    assert!(row("a/s").settings.disabled.value && !row("b/s").settings.disabled.value);
    assert_eq!(
        row("c/s").settings.agent.port.as_ref().unwrap().value,
        7,
        "a default-server line counts for the lines after it"
    );
    assert_eq!(row("c/u").settings.agent.port.as_ref().unwrap().value, 4);
    assert_eq!(row("c/u").settings.check.port.as_ref().unwrap().value, 7);
    let from = row("c/u")
        .settings
        .agent
        .port
        .as_ref()
        .unwrap()
        .from
        .unwrap();
    let place = config.locate(from);
    assert_eq!((place.line, place.column, place.width), (13, 39, 12));
}

#[test]
fn global_and_state_files() {
    let config = parse(
        "global\n stats socket /run/a.sock mode 600 level admin\n stats socket ipv4@192.0.2.1:9999\n \
         server-state-base /var/lib\n server-state-file global.state\n max-spread-checks 1\n\
         defaults\n load-server-state-from-file global\n\
         backend a\n load-server-state-from-file local\n server-state-file-name mine\n\
         backend b\n\
         backend c\n load-server-state-from-file none\n",
    );
    let global = config.global();
    assert_eq!(global.stats_sockets.len(), 2);
    assert_eq!(global.stats_sockets[0].level.value, "admin");
    assert_eq!(global.stats_sockets[0].mode.as_ref().unwrap().value, "600");
    assert_eq!(global.stats_sockets[1].level.value, "operator");
    assert_eq!(
        global.server_state_file.as_ref().unwrap().value,
        "global.state"
    );
    assert_eq!(
        global.max_spread_checks.as_ref().unwrap().value.as_millis(),
        1
    );
    let sources: Vec<_> = config
        .backends()
        .iter()
        .map(|backend| backend.settings.state_source.value)
        .collect();
    assert_eq!(
        sources,
        [StateSource::Local, StateSource::Global, StateSource::None]
    );
    assert_eq!(config.backends()[0].local_state_file(), "mine");
    assert_eq!(config.backends()[1].local_state_file(), "b");
}

#[test]
fn branches() {
    let text = ".if defined(A)\nbackend taken\n.elif version_atleast(2.6)\nbackend newer\n.else\nbackend other\n.endif\n";
    let names = |config: &Config| -> Vec<String> {
        let backends = config.backends().iter();
        backends
            .map(|backend| format!("{} {:?}", backend.name, backend.activity))
            .collect()
    };
    let version = Some(HaproxyVersion::new(2, 8, 25));
    assert_eq!(
        names(&parse_with(text, &[("A", "")], version)),
        ["taken Active"]
    );
    assert_eq!(names(&parse_with(text, &[], version)), ["newer Active"]);
    assert_eq!(
        names(&parse_with(text, &[], Some(HaproxyVersion::new(2, 2, 9)))),
        ["other Active"]
    );
    let open = parse_with(text, &[], None);
    assert_eq!(names(&open), ["newer Undecided", "other Undecided"]);
    assert_eq!(
        remarks(&open),
        ["3:1 note: `version_atleast(2.6)` cannot be decided here: its branches are all looked at"]
    );
    assert_eq!(
        open.lines()
            .iter()
            .filter(|line| line.activity == Activity::Inactive)
            .count(),
        1
    );
}

#[test]
fn an_undecided_branch_is_never_an_error() {
    let config = parse(
        "backend a\n.if feature(QUIC)\n server s 192.0.2.1:1\n.else\n server s 192.0.2.1:2\n.endif\n.if enabled(X)\n\
         .alert \"no\"\n.endif\n",
    );
    assert_eq!(rows(&config).len(), 2, "both are kept");
    assert!(!config.is_refused(), "{:?}", remarks(&config));
}

#[test]
fn variables_follow_the_global_section() {
    let text = "global\n presetenv PORT 81\n setenv HOST 192.0.2.9\n unsetenv GONE\nbackend a\n \
                server s \"${HOST}:${PORT}\" weight \"${GONE-7}\" \"${EXTRA[*]}\" check\n";
    let config = parse_with(
        text,
        &[("PORT", "80"), ("GONE", "1"), ("EXTRA", "backup port 9")],
        None,
    );
    assert_eq!(rows(&config), ["a/s 192.0.2.9:80 7"]);
    let server = config.rows().next().unwrap().server;
    assert!(server.settings.backup.value && server.settings.check.enabled.value);
    assert_eq!(server.settings.check.port.as_ref().unwrap().value, 9);
    let unset = parse("backend a\n server s 192.0.2.1:80 weight \"${NOPE}\"\n");
    assert_eq!(
        remarks(&unset),
        ["2:2 note: the environment variable NOPE is not set here and stands for nothing"]
    );
}

#[test]
fn several_files_are_one_configuration_but_a_section_ends_with_its_file() {
    let files = vec![
        SourceFile::new("a.cfg", "defaults\n default-server weight 5\nbackend a\n"),
        SourceFile::new(
            "b.cfg",
            " server s 192.0.2.1:80\nbackend b\n server s 192.0.2.1:80\n",
        ),
    ];
    let config = Config::parse(files, &Context::default());
    assert_eq!(rows(&config), ["b/s 192.0.2.1:80 5"]);
    assert_eq!(
        remarks(&config),
        ["1:2 error: `server` stands before any section"]
    );
}

#[test]
fn what_haproxy_refuses_is_told_with_its_place() {
    for (text, want) in [
        ("foo\n", "1:1 error: `foo` stands before any section"),
        (
            "backend a\n server s\n",
            "2:2 error: `server` needs <name> <address>",
        ),
        (
            "backend a\n server s/x 192.0.2.1:1\n",
            "2:9 error: the name \"s/x\" holds '/'",
        ),
        ("backend a/b\n", "1:9 error: the name \"a/b\" holds '/'"),
        (
            "backend a\nbackend a\n",
            "2:9 error: a backend called a stands before this one already",
        ),
        (
            "backend a\n server s 192.0.2.1:1\n server s 192.0.2.1:2\n",
            "3:9 error: a server of this name",
        ),
        (
            "backend a\n server s1 192.0.2.1:1\n server-template s 2 192.0.2.1:2\n",
            "3:18 error: a server of this name",
        ),
        (
            "backend a\n server s 192.0.2.1:70000\n",
            "2:11 error: \"70000\" is no port",
        ),
        (
            "backend a\n server s 192.0.2.1:80-90\n",
            "2:11 error: a server has one port, not the range 80-90",
        ),
        (
            "backend a\n server s 192.0.2.1:1 weight 257\n",
            "2:30 error: `weight`: \"257\" is no weight from 0 to 256",
        ),
        (
            "backend a\n server s 192.0.2.1:1 inter 0\n",
            "2:29 error: `inter`: an interval cannot be 0",
        ),
        (
            "backend a\n server s 192.0.2.1:1 agent-check\n",
            "2:2 error: `agent-check` needs `agent-port` (or `port`)",
        ),
        (
            "backend a\n server-template s 3-2 192.0.2.1:1\n",
            "2:20 error: \"3-2\" is no number of servers",
        ),
        (
            "backend a from d\n",
            "1:16 error: no `defaults d` stands before this",
        ),
        (
            "backend a\n server s \"192.0.2.1\n",
            "2:11 error: this quotation mark has no partner on the line",
        ),
        (
            ".if 1\n",
            "1:1 error: this `.if` has no `.endif` in its file",
        ),
        (".endif\n", "1:1 error: this `.endif` belongs to no `.if`"),
        (
            ".if streq(a)\n.endif\n",
            "1:1 error: HAProxy cannot read the condition",
        ),
        (".bogus\n", "1:1 error: HAProxy knows no directive `.bogus`"),
        (
            ".alert \"not here\"\n",
            "1:1 error: the configuration refuses itself: not here",
        ),
        ("backend a", "1:10 error: the last line has no line end"),
        (
            "backend a\n server s\0 192.0.2.1:1\nbackend b\n",
            "2:10 error: a NUL byte",
        ),
    ] {
        let config = parse(text);
        let remarks = remarks(&config);
        assert!(
            remarks.iter().any(|remark| remark.starts_with(want)),
            "{text:?}: {remarks:?}"
        );
        assert!(config.is_refused());
    }
}

#[test]
fn what_haproxy_takes_is_no_error() {
    for text in [
        "",
        "\n# only a comment\n",
        "backend a\r\n server s 192.0.2.1:80\r\n",
        "backend a\nfrontend a\n",
        "backend a\n server s 192.0.2.1 weight 5x port 70000\n",
        "backend a\n server s [::1]:80 track b/x source 0.0.0.0 interface lo check\n",
        "backend a\n server s 192.0.2.1:80 \"\" bogus\n",
        "defaults x\ndefaults x\nbackend a\n",
        "defaults x\ndefaults y from x\nbackend a from x\n",
        "peers p\n server s 192.0.2.1:80\nresolvers r\n nameserver n 192.0.2.1:53\n",
        "backend a\n no option http-server-close\n default option httplog\n",
        "[scope]\nbackend a\n",
        ".if 0\n.bogus\nfoo bar\n.endif\n",
    ] {
        let config = parse(text);
        let errors = config
            .diagnostics()
            .iter()
            .filter(|one| one.severity != Severity::Note)
            .count();
        assert_eq!(errors, 0, "{text:?}: {:?}", remarks(&config));
    }
}

#[test]
fn bounds() {
    let rows_of = |text: &str| parse(text).rows().count();
    assert_eq!(
        rows_of("backend a\n server-template s 1-4000000000 192.0.2.1:1\n server t 192.0.2.1:1\n"),
        1
    );
    let deep = ".if 1\n".repeat(50_000) + &".endif\n".repeat(50_000);
    assert!(parse(&deep).is_refused());
    let long = format!(
        "backend a\n # {}\n acl x path {}\n",
        "x".repeat(1 << 20),
        "y".repeat(1 << 20)
    );
    assert!(!parse(&long).is_refused());
    let lines = Config::parse(
        vec![SourceFile::new("lines", "\n".repeat(1_000_001))],
        &Context::default(),
    );
    assert_eq!(
        remarks(&lines),
        ["1:1 error: not read: more than 1000000 lines"]
    );
    let huge = vec![b'\n'; (64 << 20) + 1];
    let config = Config::parse(vec![SourceFile::new("huge", huge)], &Context::default());
    assert_eq!(
        remarks(&config),
        ["1:1 error: not read: more than 64 MiB of configuration"]
    );
}

#[test]
fn variables_made_of_variables_are_bounded() {
    let config = parse(&format!(
        "global\n setenv A x\n{}",
        " setenv A \"$A$A\"\n".repeat(40)
    ));
    let told = remarks(&config);
    assert!(
        told[0].contains("the variables on this line come to more than 1048576 bytes"),
        "{told:?}"
    );
}

#[test]
fn ten_thousand_servers() {
    let mut text = String::from("defaults\n default-server inter 2s\nbackend web\n");
    for number in 0..10_000 {
        writeln!(
            text,
            "  server s{number} 192.0.2.1:{} check weight 100 # a server",
            1 + number % 60_000
        )
        .unwrap();
    }
    assert_eq!(parse(&text).rows().count(), 10_000);
}

/// Lines that look like a configuration, and some that do not.
fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => r#"[ \t]{0,3}(server|server-template|default-server|backend|defaults|global|\.if|\.elif|\.else|\.endif|setenv|no|listen)( [a-z0-9./:$\\"'{}#*\-]{1,12}){0,6}"#,
        1 => "\\PC{0,60}",
        1 => r#"[ "'\\$#{}\[\]*x0-9a]{0,40}"#,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_makes_the_parser_panic(lines in prop::collection::vec(any_line(), 0..40), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut text = lines.join("\n").into_bytes();
        text.extend(bytes);
        let config = Config::parse(vec![SourceFile::new("f", text.clone())], &Context::default());
        prop_assert_eq!(config.files()[0].bytes(), &text[..], "printing is byte-exact");
        for diagnostic in config.diagnostics() {
            let place = config.locate(diagnostic.span);
            prop_assert!(place.line >= 1 && place.column >= 1);
        }
        for line in config.lines() {
            let raw = config.files()[0].line(line.number);
            for word in &line.words {
                prop_assert!(word.range.start <= word.range.end && word.range.end as usize <= raw.len());
            }
        }
    }
}
