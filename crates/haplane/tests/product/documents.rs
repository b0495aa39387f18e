//! The documents against the program: links, metrics, alerts, the dashboard, every command typed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use haplane_testkit::agent_peer::ask;
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Headers, Request, Target};
use haplane_testkit::peers::Peer;
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use serde_json::Value;

use crate::agent::{Agent, Folder};
use crate::checkout::{files, metric_names, path, succeed, text};

/// Every page, by its path in the repository.
fn pages() -> Vec<String> {
    let folders = ["", "docs/", "docs/adr/", "docs/rules/", "docs/runbooks/"];
    let names = |folder: &'static str| {
        let all = files(if folder.is_empty() { "." } else { folder }, ".md");
        all.into_iter().map(move |name| format!("{folder}{name}"))
    };
    folders.into_iter().flat_map(names).collect()
}

#[test]
fn every_link_leads_somewhere() {
    for page in pages() {
        let folder = Path::new(&page).parent().unwrap().to_owned();
        for target in text(&page).split("](").skip(1) {
            let target = target.split([')', '#', ' ']).next().unwrap();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let linked = path(folder.join(target).to_str().unwrap());
            assert!(
                linked.exists(),
                "{page} links to {target}, which is not there"
            );
        }
    }
}

#[test]
fn the_index_names_every_page() {
    let index = text("docs/README.md");
    for page in files("docs", ".md") {
        if page != "README.md" {
            let link = format!("({page})");
            assert!(index.contains(&link), "docs/README.md does not name {page}");
        }
    }
}

/// Every source below a folder.
fn sources(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(path(folder)).unwrap();
    let below = entries.flat_map(|entry| {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            sources(&name)
        } else {
            vec![name]
        }
    });
    let is_rust = |name: &String| Path::new(name).extension().is_some_and(|end| end == "rs");
    below.filter(is_rust).collect()
}

/// Comments name the measurement that they rest on: `facts 8.2`.
#[test]
fn every_fact_that_a_comment_rests_on_is_written_down() {
    let page = text("docs/facts.md");
    let numbers = page.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#').trim_start();
        let (number, _) = heading.split_once(' ')?;
        Some(number.trim_end_matches('.').to_owned())
    });
    let mut sections: BTreeSet<String> = numbers.collect();
    let slots = page.split("## 12.").nth(1).unwrap();
    let items = slots.lines().filter_map(|line| line.split_once(". "));
    sections.extend(items.map(|(number, _)| format!("12.{number}")));
    for file in sources("crates") {
        for cited in text(&file).split("facts ").skip(1) {
            let is_number = |c: char| c.is_ascii_digit() || c == '.';
            let end = cited.find(|c| !is_number(c)).unwrap_or(cited.len());
            let number = cited[..end].trim_end_matches('.');
            let is_known = number.is_empty() || sections.contains(number);
            assert!(is_known, "{file}: docs/facts.md has no section {number}");
        }
    }
}

/// The widest line of prose, in characters.
const WIDEST: usize = 140;

#[test]
fn prose_fits_an_editor() {
    for page in pages() {
        let text = text(&page);
        let outside = text.split("```").step_by(2).flat_map(str::lines);
        // A table's row cannot be broken, and what the code says of a rule is one line.
        let prose = outside.filter(|line| !line.starts_with('|') && !line.starts_with("Usually: "));
        for line in prose {
            assert!(line.chars().count() <= WIDEST, "{page}: {line}");
        }
    }
}

/// The lines of all fenced blocks that run haplane, without their prompt.
fn commands(page: &str) -> Vec<String> {
    let text = text(page);
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .flat_map(str::lines)
        .map(|line| {
            line.trim_start_matches("$ ")
                .trim_start_matches("SUDO_USER=\"$CHAT_USER\" ")
        })
        .filter(|line| line.starts_with("haplane "))
        .map(without_the_rest)
        .collect()
}

/// The command alone, without comment and what follows a pipe.
fn without_the_rest(line: &str) -> String {
    let end = [" #", " |", " >", " &&", ";", "  "]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min();
    line[..end.unwrap_or(line.len())].to_owned()
}

/// The words that a shell makes of a line; the brackets around what may be left out are none.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match c {
            '\'' | '"' if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(c),
            '[' | ']' if quote.is_none() => {}
            ' ' if quote.is_none() => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// Panics unless the program takes the line as it stands.
#[track_caller]
fn assert_is_taken(line: &str, place: &str) {
    let taken = haplane::cli::command().try_get_matches_from(words(line));
    if let Err(error) = taken {
        let is_help = !error.use_stderr();
        assert!(is_help, "{place}: {line}\n{error}");
    }
}

#[test]
fn every_command_in_them_is_taken_as_it_stands() {
    let mut seen = 0;
    for page in pages() {
        for command in commands(&page) {
            assert_is_taken(&command, &page);
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} commands found");
}

#[test]
fn every_example_of_a_help_page_is_taken_as_it_stands() {
    let mut program = haplane::cli::command();
    let top = program.render_help().to_string();
    let subs = program.get_subcommands_mut();
    let pages = subs.map(|sub| (sub.get_name().to_owned(), sub.render_help().to_string()));
    let pages: Vec<_> = [("haplane".to_owned(), top)]
        .into_iter()
        .chain(pages)
        .collect();
    for (name, page) in pages.iter().filter(|(name, _)| name != "help") {
        let (_, examples) = page.split_once("Examples:\n").expect(name);
        let lines = examples.lines().map(str::trim);
        let lines: Vec<String> = lines
            .filter(|line| line.starts_with("haplane "))
            .map(without_the_rest)
            .collect();
        assert!(!lines.is_empty(), "{name}: {page}");
        for line in lines {
            assert_is_taken(&line, name);
        }
    }
}

#[test]
fn every_command_is_in_the_documents() {
    let all: String = pages().iter().map(|page| text(page)).collect();
    for command in haplane::cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(
            name == "help" || all.contains(&format!("haplane {name}")),
            "no page speaks of haplane {name}"
        );
    }
}

/// The metrics that docs/metrics.md lists.
fn documented() -> BTreeSet<String> {
    text("docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `haplane_"))
        .map(|rest| format!("haplane_{}", rest.split('`').next().unwrap()))
        .collect()
}

/// The metrics of a page, by the names that their samples have.
fn served(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("# TYPE haplane_"))
        .map(|rest| match rest.split_once(' ').unwrap() {
            (name, "counter") => format!("haplane_{name}_total"),
            (name, "info") => format!("haplane_{name}_info"),
            (name, _) => format!("haplane_{name}"),
        })
        .collect()
}

/// The labels of each metric that docs/metrics.md lists.
fn documented_labels() -> BTreeMap<String, BTreeSet<String>> {
    let quoted = |cell: &str| -> Vec<String> {
        let words = cell.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    let page = text("docs/metrics.md");
    let lines = page.lines().filter(|line| line.starts_with("| `haplane_"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            let labels = quoted(cells[3]).into_iter().collect();
            (quoted(cells[1]).remove(0), labels)
        })
        .collect()
}

/// Asserts that a sample has the labels that its metric is documented with.
fn assert_labels(sample: &str, documented: &BTreeMap<String, BTreeSet<String>>) {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
    let name = name.split(' ').next().unwrap();
    let parts = ["_bucket", "_count", "_sum"];
    let whole = parts.iter().find_map(|part| name.strip_suffix(part));
    let name = whole.filter(|name| documented.contains_key(*name));
    let name = name.unwrap_or_else(|| sample.split(['{', ' ']).next().unwrap());
    let labels = labels.split_once('}').map_or("", |(labels, _)| labels);
    let labels: BTreeSet<String> = labels
        .split(',')
        .filter_map(|label| Some(label.split_once('=')?.0.to_owned()))
        .filter(|label| label != "le")
        .collect();
    assert_eq!(Some(&labels), documented.get(name), "{sample}");
}

/// Not there before something has happened, as their lines in the page say.
const LATER: [&str; 2] = [
    "haplane_sync_source_failures",
    "haplane_sync_time_to_full_seconds",
];

#[tokio::test]
async fn the_page_of_metrics_and_the_programs_agree() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let haproxy = Haproxy::start(
        Version::V28,
        Config::new(
            "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
             backend web\n server-template web- 1-3 127.0.0.1:1 disabled\n",
        ),
    )
    .await;
    let socket = haproxy.admin_socket().display().to_string();

    let observing = haplane.with("HAPLANE_HAPROXY_SOCKET", &socket);
    let agent = Agent::start(&observing).await;
    ask(agent.checks.address(), b"@nonsense\n").await.ok();

    let (sync_port, heartbeat_port) = (Port::reserve(), Port::reserve());
    let own = tempfile::tempdir().unwrap();
    let (hosts, toml) = (own.path().join("hosts"), own.path().join("haplane.toml"));
    std::fs::write(&hosts, "127.0.0.1:8080\n").unwrap();
    let configuration = format!(
        "[sync]\nsocket = {socket:?}\nhttp = \"{}\"\nagent = \"\"\n\
         [[pool]]\nname = \"web\"\nbackend = \"web\"\nsource = \"file:{}\"\nslots = \"web-\"\n",
        sync_port.address(),
        hosts.display()
    );
    std::fs::write(&toml, configuration).unwrap();
    let command = haplane.command(&["sync", "--config", toml.to_str().unwrap()]);
    let _sync = Process::spawn("haplane sync", command, &own.path().join("sync.log"));
    let agents = agent.page().trim_end_matches('/').to_owned();
    let listen = heartbeat_port.address().to_string();
    let command = haplane.command(&[
        "heartbeat",
        "--heartbeat-listen",
        &listen,
        "--agents",
        &agents,
    ]);
    let _heart = Process::spawn("haplane heartbeat", command, &own.path().join("heart.log"));

    let targets =
        [&agent.http, &sync_port, &heartbeat_port].map(|port| Target::Tcp(port.address()));
    let labels = documented_labels();
    let mut expected = documented();
    for later in LATER {
        assert!(expected.remove(later), "{later} is documented");
    }
    let accept = "application/openmetrics-text;version=1.0.0".to_owned();
    let as_prometheus = Request {
        headers: Headers(vec![("Accept".to_owned(), accept)]),
        ..Request::get("/metrics")
    };
    eventually("all metrics", Duration::from_secs(20), async || {
        let mut found = BTreeSet::new();
        for target in &targets {
            let page = as_prometheus.send(target).await;
            let page = page.map_err(|error| error.to_string())?.text();
            for sample in page.lines().filter(|line| line.starts_with("haplane_")) {
                assert_labels(sample, &labels);
            }
            found.extend(served(&page));
        }
        let found: BTreeSet<_> = found
            .into_iter()
            .filter(|name| !LATER.contains(&name.as_str()))
            .collect();
        let differ: Vec<_> = found.symmetric_difference(&expected).collect();
        if differ.is_empty() {
            Ok(())
        } else {
            Err(format!("only served, or only documented: {differ:?}"))
        }
    })
    .await;

    // Whoever does not ask for OpenMetrics: Prometheus's own reader of the older format takes all of it.
    for target in &targets {
        let page = Request::get("/metrics").send(target).await.unwrap().text();
        let file = own.path().join("page");
        std::fs::write(&file, &page).unwrap();
        let mut promtool = Command::new(Peer::Promtool.program());
        promtool.args(["check", "metrics"]);
        promtool.stdin(std::fs::File::open(&file).unwrap());
        let checked = promtool.output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(!said.contains("error"), "{said}\n{page}");
    }
}

/// Words that look like metrics and are labels or names of other things.
fn is_metric(name: &str) -> bool {
    !matches!(name, "haplane_agent" | "haplane_sync" | "haplane_heartbeat")
}

#[test]
fn alerts_and_dashboard_use_metrics_that_there_are() {
    let documented = documented();
    let mut users = vec!["packaging/grafana/haplane.json".to_owned()];
    users.extend(
        files("alerts", ".rules.yml")
            .iter()
            .map(|file| format!("alerts/{file}")),
    );
    for user in users {
        for metric in metric_names(&text(&user))
            .iter()
            .filter(|name| is_metric(name))
        {
            let metric = metric.trim_end_matches("_bucket");
            assert!(documented.contains(metric), "{user} uses {metric}");
        }
    }
}

#[test]
fn the_dashboard_is_what_its_code_makes() {
    let made = succeed(&mut Command::new(path("scripts/grafana")));
    assert_eq!(
        made,
        text("packaging/grafana/haplane.json"),
        "run: scripts/grafana > packaging/grafana/haplane.json"
    );
}

#[test]
fn the_page_of_alerts_names_each_alert_once() {
    let page = text("docs/alerts.md");
    for runbook in files("docs/runbooks", ".md") {
        let link = format!("](runbooks/{runbook})");
        assert_eq!(
            page.matches(&link).count(),
            1,
            "docs/alerts.md and {runbook}"
        );
    }
}

/// Over an agent that is asked, as it would not say anything of nodes and rows else.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_fields_are_those_of_the_documents() {
    let page = text("docs/json.md");
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    let _asking = agent.asked(&["web/a canary", "web/b"]);
    let agents = agent.page().trim_end_matches('/').to_owned();
    let haplane = folder.haplane().with("HAPLANE_AGENTS", &agents);
    let asks = || async {
        let rows = agent
            .get("/v1/rows")
            .await
            .map_err(|error| error.to_string())?;
        let rows = rows.text();
        if rows.contains("web/a") && rows.contains("web/b") {
            Ok(())
        } else {
            Err(rows)
        }
    };
    eventually("both rows ask", Duration::from_secs(10), asks).await;
    let documents = [
        haplane.run(&[
            "set", "canary", "drain", "--reason", "x", "--wait", "--json",
        ]),
        haplane.run(&["set", "web/a", "ready", "--dry-run", "--json"]),
        haplane.run(&["show", "--json"]),
        haplane.run(&["status", "--json"]),
        haplane.run(&["why", "web/a", "--json"]),
        haplane.run(&["wait", "--json"]),
        haplane.run(&["ready", "canary", "--json"]),
        haplane.run(&["canary", "--status", "--json"]),
        haplane.run(&["log", "--json"]),
        haplane.run(&["init", "--json"]),
    ];
    let mut names = BTreeSet::new();
    for document in documents {
        fields(&document.exits(0).json(), &mut names);
    }
    let is_said = |name: &String| {
        page.match_indices(name.as_str()).any(|(at, _)| {
            let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            edge(page[..at].chars().next_back()) && edge(page[at + name.len()..].chars().next())
        })
    };
    // Answers are counted by their text.
    let is_field = |name: &&String| !name.contains(' ');
    let missing: Vec<&String> = names
        .iter()
        .filter(is_field)
        .filter(|name| !is_said(name))
        .collect();
    assert!(missing.is_empty(), "docs/json.md does not name {missing:?}");
}

/// The names of all fields, at any depth.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                fields(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}
