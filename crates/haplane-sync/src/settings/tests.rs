//! What is refused in a configuration, where it is said to be, and what is said of it.

use super::*;

pub(crate) fn read(text: &str) -> Result<SyncSettings, String> {
    let document = Document::parse("haplane.toml", text, Vec::new());
    let settings = Settings::read(&document, |_| None);
    let sync = settings.and_then(|settings| SyncSettings::read(&document, &settings));
    document.finish().map_err(|error| error.to_string())?;
    Ok(sync.unwrap())
}

const SYNC: &str = "[sync]\nsocket = \"/run/a.sock\"\n";

/// `[sync]` in two lines, then one pool: `[[pool]]` stands in line 3.
pub(crate) fn with_pool(keys: &str) -> String {
    let usual = [
        ("name", "web"),
        ("backend", "web"),
        ("source", "consul:webapp"),
        ("slots", "web-"),
    ];
    let missing: Vec<_> = usual
        .iter()
        .filter(|(key, _)| !keys.contains(&format!("{key} = ")))
        .map(|(key, value)| format!("{key} = \"{value}\"\n"))
        .collect();
    format!("{SYNC}[[pool]]\n{keys}\n{}", missing.concat())
}

/// Exactly these problems: each begins so, and stands in this line.
fn assert_refused(text: &str, expected: &[(usize, &str)]) {
    let report = read(text).expect_err(text);
    let problems: Vec<_> = report
        .split("error: ")
        .filter(|part| !part.is_empty())
        .collect();
    assert_eq!(problems.len(), expected.len(), "{text}\n{report}");
    for (problem, (line, message)) in problems.iter().zip(expected) {
        assert!(problem.starts_with(message), "{text}\n{problem}");
        let place = format!("haplane.toml:{line}:");
        assert!(
            problem.contains(&place) && problem.contains('^'),
            "{text}\n{problem}"
        );
    }
}

#[test]
fn values_that_would_do_something_else() {
    for (key, message) in [
        (
            "slots = \"we b-\"",
            "pool[0].slots: \"we b-\" begins no server's name",
        ),
        (
            "groups = [\"@free\"]",
            "pool[0].groups: \"@free\" is no key",
        ),
        (
            "source = \"consul:\"",
            "pool[0].source: \"consul:\" is neither",
        ),
        (
            "source = \"file:web.hosts\"",
            "pool[0].source: \"file:web.hosts\" is neither",
        ),
        (
            "source = \"file:/w\"\ntags = [\"a\"]",
            "pool[0].tags: a host list has none of this",
        ),
        (
            "server_parameters = \"check\"",
            "pool[0].server_parameters: slots are as haproxy.cfg has them",
        ),
        (
            "max_servers = 3",
            "pool[0].max_servers: slots are as haproxy.cfg has them",
        ),
        (
            "mode = \"dynamic\"\ncheck_port = \"instance\"",
            "pool[0].check_port: a dynamic server is born",
        ),
        (
            "mode = \"dynamic\"\nserver_parameters = \"check; show env\"",
            "pool[0].server_parameters: a semicolon",
        ),
        (
            "mode = \"dynamic\"\nserver_parameters = \"check <<\"",
            "pool[0].server_parameters: a semicolon",
        ),
    ] {
        let line = 3 + key.lines().count();
        assert_refused(&with_pool(key), &[(line, message)]);
    }
    let groups: Vec<_> = (0..16).map(|n| format!("\"g{n}\"")).collect();
    let groups = format!("groups = [{}]", groups.join(", "));
    assert_refused(
        &with_pool(&groups),
        &[(4, "pool[0].groups: a slot cannot send more than 15")],
    );
    for (sync, message) in [
        (
            "socket = \"run/a.sock\"",
            "sync.socket: \"run/a.sock\" is neither",
        ),
        (
            "socket = \"master:a.sock\"",
            "sync.socket: \"master:a.sock\" is neither",
        ),
        (
            "socket = [\"/a\", \"/b\", \"/a\"]",
            "sync.socket: \"/a\" is named twice",
        ),
        ("socket = []", "sync.socket: there is no socket"),
        (
            "socket = [\"/a\", \"\"]",
            "sync.socket: this cannot be empty",
        ),
    ] {
        let text = with_pool("").replace("socket = \"/run/a.sock\"", sync);
        assert_refused(&text, &[(2, message)]);
    }
    let text = with_pool("").replace(SYNC, &format!("{SYNC}agent = \"127.0.0.1:0\"\n"));
    assert_refused(&text, &[(3, "sync.agent: \"127.0.0.1:0\" has no port")]);
}

/// A pool with a mistake is no pool that is missing, and a key that is missing is missed where its table begins.
#[test]
fn one_mistake_is_one_error() {
    assert_refused(
        &with_pool("hold = 5"),
        &[(4, "pool[0].hold: expected a duration")],
    );
    assert_refused(
        &format!("{SYNC}[[pool]]\nname = \"web\"\nbackend = \"web\"\nslots = \"web-\"\n"),
        &[(3, "pool[0].source: a pool needs this key")],
    );
    assert_refused(
        "[sync]\nreconcile = \"1s\"\n[[pool]]\nname = \"web\"\nbackend = \"web\"\nslots = \"web-\"\nsource = \"consul:a\"\n",
        &[(1, "sync.socket: there is no socket")],
    );
}

#[test]
fn no_server_is_in_two_pools() {
    let two = |first: &str, second: &str| {
        let pool = |name: &str, keys: &str| {
            format!(
                "[[pool]]\nname = \"{name}\"\nbackend = \"web\"\nsource = \"consul:a\"\n{keys}\n"
            )
        };
        format!("{SYNC}{}{}", pool("a", first), pool("b", second))
    };
    let slots = |prefix: &str| format!("slots = \"{prefix}\"");
    let dynamic = |prefix: &str| format!("slots = \"{prefix}\"\nmode = \"dynamic\"");
    for (first, second, server) in [
        (slots("web-"), slots("web-"), "web-1"),
        (slots("web-"), slots("web-1"), "web-11"),
        (slots("web-20"), slots("web-"), "web-201"),
        (slots("web-"), dynamic("web-"), "web-1"),
        (slots("web-a-"), dynamic("web-"), "web-a-1"),
        (dynamic("web-"), dynamic("web-x"), "web-x1"),
        (slots("web-"), dynamic("web-7"), "web-71"),
    ] {
        let text = two(&first, &second);
        let line = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with("slots"))
            .map(|(index, _)| index + 1)
            .last();
        let message = format!("pool[1].slots: the pool \"a\" keeps web/{server} too");
        assert_refused(&text, &[(line.unwrap(), &message)]);
    }
    for (first, second) in [
        (slots("web-"), slots("web-1a-")),
        (slots("web-"), slots("web-1-")),
        (slots("web-"), dynamic("web-a")),
        (dynamic("a-"), dynamic("b-")),
    ] {
        let text = two(&first, &second);
        assert_eq!(read(&text).unwrap().pools.len(), 2, "{text}");
    }
    let elsewhere = two(&slots("web-"), &slots("web-")).replacen("\"web\"", "\"api\"", 1);
    assert_eq!(read(&elsewhere).unwrap().pools.len(), 2);
    assert_refused(
        &two(&slots("a-"), &slots("b-")).replace("name = \"b\"", "name = \"a\""),
        &[(9, "pool[1].name: another pool is named \"a\" too")],
    );
}
