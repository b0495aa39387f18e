use haplane_store::consul::TokenSettings;

use super::*;
use crate::settings::Settings;

fn read(text: &str, overrides: Vec<Override>) -> (Option<Settings>, String) {
    let document = Document::parse("haplane.toml", text, overrides);
    let settings = Settings::read(&document, |_| None);
    let report = document
        .finish()
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    (settings, report)
}

#[test]
fn every_problem_is_shown_at_once_with_its_place() {
    let text = r#"store = "consul:htp://x"
prefix = "haplane"
nodes = "lb-01"

[agent]
lisen = "127.0.0.1:9777"
listen = "0.0.0.0:9777"
sync_timeout = 30
absent = "maybe"
max_connections = 0

[consul]
cert_file = "/etc/haplane/cert.pem"

[haproxy]
push = true
"#;
    let (_, report) = read(text, Vec::new());
    insta::assert_snapshot!(report);
}

#[test]
fn broken_toml_is_shown_with_a_caret_too() {
    let (_, report) = read("store = \"dir:/x\nprefix = haplane\n[agent\n", Vec::new());
    insta::assert_snapshot!(report);
}

#[test]
fn an_empty_document_is_the_defaults() {
    let (settings, report) = read("", Vec::new());
    let settings = settings.unwrap();
    assert_eq!(report, "");
    assert_eq!(
        settings.store.location.to_string(),
        "dir:/var/lib/haplane/state"
    );
    assert_eq!(settings.store.state_prefix.as_str(), "haplane/state/");
    assert_eq!(settings.agent.listen.to_string(), "127.0.0.1:9777");
    assert!(settings.agent.require_marker && settings.agent.register);
}

#[test]
fn a_value_from_outside_wins_and_its_errors_name_where_it_came_from() {
    let given = |text: &str| Override {
        key: "agent.listen".to_owned(),
        text: text.to_owned(),
        origin: "--listen".to_owned(),
    };
    let file = "[agent]\nlisten = \"127.0.0.1:1\"\n";
    let (settings, _) = read(file, vec![given("127.0.0.1:2")]);
    assert_eq!(settings.unwrap().agent.listen.port(), 2);
    let (_, report) = read(file, vec![given("nowhere")]);
    insta::assert_snapshot!(report);
}

#[test]
fn a_token_from_outside_wins_except_over_that_of_another_environment() {
    let text = r#"
store = "consul:http://127.0.0.1:8500"
[consul]
token_file = "/etc/haplane/token"
[env.gprd.consul]
token_file = "/etc/haplane/gprd"
[env.gstg]
"#;
    let document = Document::parse("haplane.toml", text, Vec::new());
    let variable = |name: &str| (name == "CONSUL_HTTP_TOKEN_FILE").then(|| "/mine".to_owned());
    let settings = Settings::read(&document, variable).unwrap();
    let file = |path: &str| TokenSettings::File(path.into());
    assert_eq!(settings.store.consul.token, file("/mine"));
    let of = |name: &str| settings.environments[name].store.consul.token.clone();
    assert_eq!(
        (of("gprd"), of("gstg")),
        (file("/etc/haplane/gprd"), file("/mine"))
    );
}

#[test]
fn environments_inherit_what_they_do_not_say() {
    let text = r#"
store = "consul:http://127.0.0.1:8500"
prefix = "lb"
[consul]
token_file = "/etc/haplane/token"
[env.gprd]
store = "consul:https://consul.gprd.example:8501"
confirm = true
[env.gprd.consul]
ca_file = "/etc/ca.pem"
"#;
    let (settings, report) = read(text, Vec::new());
    assert_eq!(report, "");
    let settings = settings.unwrap();
    let gprd = &settings.environments["gprd"];
    assert!(gprd.confirm);
    assert_eq!(
        gprd.store.location.to_string(),
        "consul:https://consul.gprd.example:8501"
    );
    assert_eq!(gprd.store.state_prefix.as_str(), "lb/state/");
    assert_eq!(gprd.store.consul.token, settings.store.consul.token);
    assert!(gprd.store.consul.tls.ca_file.is_some() && settings.store.consul.tls.ca_file.is_none());
}

#[test]
fn the_effective_configuration_names_its_origins() {
    let text = "[agent]\nlisten = \"127.0.0.1:1\"\n";
    let document = Document::parse("haplane.toml", text, Vec::new());
    Settings::read(&document, |_| None);
    let effective = document.effective();
    let of = |key: &str| effective.iter().find(|one| one.key == key).unwrap().clone();
    assert_eq!(of("agent.listen").origin, "haplane.toml:2");
    assert_eq!(of("agent.sync_timeout").value, "\"30s\"");
    assert_eq!(of("agent.sync_timeout").origin, "default");
    assert_eq!(of("agent.max_connections").value, "4096");
}

#[test]
fn a_broken_variable_of_consuls_stops_only_who_uses_consul() {
    let broken = |name: &str| (name == "CONSUL_HTTP_SSL").then(|| "perhaps".to_owned());
    for (text, is_fine) in [("store = \"dir:/x\"", true), ("store = \"consul\"", false)] {
        let document = Document::parse("haplane.toml", text, Vec::new());
        Settings::read(&document, broken);
        assert_eq!(document.finish().is_ok(), is_fine, "{text}");
    }
}

#[test]
fn a_secret_that_was_written_into_the_file_is_not_repeated() {
    for (text, place) in [
        ("token = \"hunter2\"\n", "haplane.toml:1: unknown key token"),
        (
            "[consul]\ntoken = \"hunter2\"\n",
            "haplane.toml:2: unknown key consul.token",
        ),
        (
            "[consul]\n\"Token\" = \"hunter2\"\n",
            "haplane.toml:2: unknown key consul.Token",
        ),
        (
            "consul = { http-token = \"hunter2\" }\n",
            "haplane.toml:1: unknown key consul.http-token",
        ),
        ("[consul]\ntoken = \"hunter2\n", "haplane.toml:2: "),
        ("[consul]\npassword = hunter2\n", "haplane.toml:2: "),
    ] {
        let (_, report) = read(text, Vec::new());
        assert!(report.contains(place), "{text}: {report}");
        assert!(!report.contains("hunter2"), "{text}: {report}");
    }
    let (_, report) = read("[consul]\ntoken = \"hunter2\"\n", Vec::new());
    assert!(report.contains("consul.token_file"), "{report}");
    let (_, report) = read("[consul]\ntoken_file = 7\n", Vec::new());
    assert!(report.contains("token_file = 7"), "no secret: {report}");
}

#[test]
fn one_port_cannot_serve_both() {
    let read = |checks: &str, http: &str| {
        let text = format!(
            "[agent]\nlisten = \"{checks}\"\n[http]\nlisten = \"{http}\"\nallow_remote = true\n"
        );
        read(&text, Vec::new()).1
    };
    for http in ["127.0.0.1:7", "0.0.0.0:7"] {
        let report = read("127.0.0.1:7", http);
        assert!(
            report.contains("where HAProxy asks already"),
            "{http}: {report}"
        );
    }
    for (checks, http) in [
        ("127.0.0.1:7", "127.0.0.1:8"),
        ("127.0.0.1:7", "127.0.0.2:7"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ] {
        assert_eq!(read(checks, http), "", "{checks} {http}");
    }
}

#[test]
fn an_unknown_key_is_told_where_it_belongs() {
    for (text, help) in [
        ("stroe = \"dir:/x\"\n", "did you mean store?"),
        ("[agent]\npush = true\n", "push belongs to [haproxy]"),
        ("[agent]\npsuh = true\n", "did you mean push, of [haproxy]?"),
        (
            "[agent]\nprefix = \"x\"\n",
            "prefix belongs to the top of the file, before all tables",
        ),
        ("listen = \"x\"\n", "listen belongs to [agent] or [http]"),
        (
            "confirm = true\n[env.gprd]\n",
            "confirm belongs to [env.gprd]",
        ),
        (
            "[http]\nzzzzzz = 1\n",
            "known here: allow_remote, listen, pprof",
        ),
    ] {
        let (_, report) = read(text, Vec::new());
        assert!(
            report.contains(&format!("= help: {help}\n"))
                || report.ends_with(&format!("= help: {help}")),
            "{text}: {report}"
        );
    }
}
