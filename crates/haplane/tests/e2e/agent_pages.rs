//! The agent's HTTP side as other programs rely on it: paths, fields, names of metrics.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use haplane_testkit::agent_peer::{Asking, ask};
use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::http::{Headers, Request, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::command::Haplane;

async fn start() -> (Consul, Agent) {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    consul.put("haplane/state/canary", "drain").await;
    consul.put("haplane/state/web/c", "25%\n").await;
    consul.put("haplane/state/web/d", "down").await;
    let agent = Launch::on_consul(&consul).ready().await;
    (consul, agent)
}

/// Fields may be added, never renamed.
#[track_caller]
fn has_fields(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value.get(field).is_some(), "no {field} in {value}");
    }
}

#[track_caller]
fn is_past(value: &Value) {
    let time: Timestamp = value.as_str().unwrap().parse().unwrap();
    assert!(time <= Timestamp::now(), "{value}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_of_v1() {
    let (consul, agent) = start().await;
    for words in [
        "web/a",
        "web/b canary",
        "web/b canary",
        "web/c @up",
        "@free web/e",
    ] {
        agent.ask(words).await.unwrap();
    }
    let index = consul
        .get("haplane/state/web/d")
        .await
        .unwrap()
        .modify_index;

    let node = agent.json("/v1/node").await;
    has_fields(
        &node,
        &[
            "node",
            "version",
            "started_at",
            "store",
            "haproxy",
            "counts",
        ],
    );
    assert_eq!(node["node"], "lb-01");
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    is_past(&node["started_at"]);
    has_fields(
        &node["store"],
        &["kind", "address", "index", "synced_at", "age_ms", "guard"],
    );
    assert_eq!(node["store"]["kind"], "consul");
    assert_eq!(node["store"]["address"], consul.url());
    assert_eq!(node["store"]["index"], index);
    is_past(&node["store"]["synced_at"]);
    assert!(node["store"]["age_ms"].is_u64(), "{node}");
    assert!(node["store"]["guard"].is_null(), "{node}");
    assert_eq!(node["haproxy"], json!([]), "no socket, nothing to see");
    assert_eq!(node["counts"]["keys"], 2);
    assert_eq!(node["counts"]["invalid"], 1);
    assert_eq!(node["counts"]["rows"], 4);

    let state = agent.json("/v1/state").await;
    has_fields(&state, &["index", "synced_at", "keys", "invalid"]);
    assert_eq!(state["index"], index);
    is_past(&state["synced_at"]);
    assert_eq!(state["keys"], json!({"canary": "drain", "web/c": "25%"}));
    assert_eq!(state["invalid"], json!({"web/d": "down"}));

    let rows = agent.json("/v1/rows").await;
    let rows = rows.as_array().unwrap();
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            has_fields(row, &["last_asked", "asked_ms_ago", "observed", "verdict"]);
            is_past(&row["last_asked"]);
            assert!(row["asked_ms_ago"].is_u64(), "{row}");
            assert!(row["observed"].is_null(), "{row}");
            assert_eq!(row["verdict"], "unobserved", "{row}");
            assert_eq!(row["index"], index, "{row}");
            json!([
                row["row"],
                row["keys"],
                row["answer"],
                row["decided_by"],
                row["asks"]
            ])
        })
        .collect();
    assert_eq!(
        told,
        [
            json!(["@free", [], "maint", null, 1]),
            json!(["web/a", ["web/a"], "ready 100%", null, 1]),
            json!(["web/b", ["web/b", "canary"], "drain", "canary", 2]),
            json!(["web/c", ["web/c"], "up ready 25%", "web/c", 1]),
        ]
    );
}

/// Asks for an answer that does not come: no byte, which changes nothing in HAProxy.
async fn is_refused(agent: &Agent, line: &[u8]) {
    match ask(agent.checks(), line).await {
        Ok(answer) => assert_eq!(answer, b"", "{line:?}"),
        // Closed before it had read all of what was sent.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{line:?}"),
    }
}

/// Every series of the page, without its value.
fn series(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn absences_are_asked_for_so_many_at_once_and_no_more() {
    let (_consul, agent) = start().await;
    let ask = async |keys: usize| {
        let keys: Vec<String> = (0..keys).map(|n| format!("none/{n}")).collect();
        let request = Request {
            headers: Headers(vec![(
                "Content-Type".to_owned(),
                "application/json".to_owned(),
            )]),
            body: json!(keys).to_string().into(),
            ..Request::new("POST", "/v1/absent")
        };
        request.send(&agent.http().into()).await.unwrap()
    };
    eventually("the word on all of them", PATIENCE, async || {
        let said = ask(512).await.ok().json();
        if said["absent"] == true {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
    assert_eq!(ask(513).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_have_their_names_and_count() {
    let (_consul, agent) = start().await;
    let keys_17 = "k ".repeat(17) + "\n";
    for line in [
        "\n",
        "web/a ,\n",
        "web/a @down\n",
        "web/a @free\n",
        "@up\n",
        &keys_17,
        &"k".repeat(5000),
    ] {
        is_refused(&agent, line.as_bytes()).await;
    }
    is_refused(&agent, b"web/\xff\n").await;
    assert_eq!(
        ask(agent.checks(), b"web/a\r\n").await.unwrap(),
        b"ready 100%\n"
    );
    assert_eq!(
        ask(agent.checks(), b"web/b canary").await.unwrap(),
        b"drain\n"
    );
    let slowly = Asking::of(agent.checks()).slowly(Duration::from_millis(2));
    assert_eq!(slowly.ask(b"web/c\n").await.unwrap(), b"ready 25%\n");
    agent.ask("@free").await.unwrap();

    let prometheus = Request {
        headers: Headers(vec![(
            "Accept".to_owned(),
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.3".to_owned(),
        )]),
        ..Request::get("/metrics")
    };
    let answer = prometheus.send(&agent.http().into()).await.unwrap().ok();
    let kind = answer.headers.get("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let page = answer.text();
    assert!(page.ends_with("# EOF\n"), "whole");
    assert!(!page.contains("web/"), "a row's name is never a label");
    let series = series(&page);
    for name in [
        "haplane_build_info{version=\"0.1.0\"}",
        "haplane_store_index",
        "haplane_store_last_contact_timestamp_seconds",
        "haplane_store_last_change_timestamp_seconds",
        "haplane_store_errors_total{kind=\"unreachable\"}",
        "haplane_store_errors_total{kind=\"denied\"}",
        "haplane_store_guard_active{reason=\"marker_missing\"}",
        "haplane_store_guard_active{reason=\"denied\"}",
        "haplane_answer_seconds_count",
        "haplane_answer_seconds_bucket{le=\"+Inf\"}",
        "haplane_propagation_seconds_count{stage=\"answered\"}",
        "haplane_rows{verdict=\"unobserved\"}",
        "haplane_rows{verdict=\"silent\"}",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        assert!(series.contains(name), "no {name} in {page}");
    }
    for (name, value) in [
        ("haplane_keys{value=\"drain\"}", 1),
        ("haplane_keys{value=\"weight\"}", 1),
        ("haplane_keys{value=\"ready\"}", 0),
        ("haplane_keys{value=\"maint\"}", 0),
        ("haplane_invalid_values", 1),
        ("haplane_answers_total{answer=\"ready\"}", 1),
        ("haplane_answers_total{answer=\"drain\"}", 1),
        ("haplane_answers_total{answer=\"weight\"}", 1),
        ("haplane_answers_total{answer=\"free\"}", 1),
        ("haplane_answers_total{answer=\"maint\"}", 0),
        ("haplane_answers_total{answer=\"keep\"}", 0),
        ("haplane_unterminated_lines_total", 1),
        ("haplane_refused_total{reason=\"empty\"}", 1),
        ("haplane_refused_total{reason=\"not_utf8\"}", 1),
        ("haplane_refused_total{reason=\"too_long\"}", 1),
        ("haplane_refused_total{reason=\"too_many_words\"}", 1),
        ("haplane_refused_total{reason=\"bad_key\"}", 1),
        ("haplane_refused_total{reason=\"bad_word\"}", 1),
        ("haplane_refused_total{reason=\"free_not_first\"}", 1),
        ("haplane_refused_total{reason=\"no_key\"}", 1),
        // What never happened stands there as well.
        ("haplane_refused_total{reason=\"denied_key\"}", 0),
        ("haplane_refused_total{reason=\"max_connections\"}", 0),
    ] {
        let line = format!("{name} {value}");
        assert!(
            page.lines().any(|seen| seen == line),
            "not {line} in {page}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_texts_and_nothing_else_is_served() {
    let (_consul, agent) = start().await;
    let send = async |method, path| -> io::Result<Response> {
        Request::new(method, path).send(&agent.http().into()).await
    };
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = send("GET", path).await.unwrap().ok();
        assert_eq!(answer.text(), text);
        let kind = answer.headers.get("content-type").unwrap();
        assert!(kind.starts_with("text/plain"), "{kind}");
    }
    for path in [
        "/v1",
        "/v1/",
        "/v1/nodes",
        "/v2/node",
        "/v1/node/",
        "/..",
        "/metrics/x",
    ] {
        assert_eq!(send("GET", path).await.unwrap().status, 404, "{path}");
    }
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/node",
        "/v1/state",
        "/v1/rows",
    ] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let status = send(method, path).await.unwrap().status;
            assert_eq!(status, 405, "{method} {path}: it is read-only");
        }
        // As for every server of HTTP: what GET says, without the body.
        let head = Request::new("HEAD", path);
        let mut bytes = Vec::new();
        raw(&agent, &head, &mut bytes).await;
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert!(text.ends_with("\r\n\r\n"), "no body: {text}");
    }
}

/// Everything that comes back until the agent closes.
async fn raw(agent: &Agent, request: &Request, bytes: &mut Vec<u8>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(agent.http()).await.unwrap();
    let head = format!(
        "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        request.method, request.path
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_to_end(bytes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_registers_with_its_probe_and_stays_registered_when_it_stops() {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    let mut agent = Launch::registered(&consul, "lb-01").ready().await;
    let services = async || {
        let request = Request::get("/v1/agent/services");
        consul.request(request).await.unwrap().ok().json()
    };
    let service = eventually("the service", PATIENCE, async || {
        let services = services().await;
        match services.get("haplane-agent-lb-01") {
            Some(service) => Ok(service.clone()),
            None => Err(services),
        }
    })
    .await;
    assert_eq!(service["Service"], "haplane-agent");
    assert_eq!(service["Port"], agent.http().port());
    assert_eq!(service["Address"], "127.0.0.1");
    let meta = &service["Meta"];
    assert_eq!(meta["node"], "lb-01");
    assert_eq!(meta["version"], env!("CARGO_PKG_VERSION"));
    // Consul's own check of `/readyz`.
    eventually("a passing check", PATIENCE, async || {
        let request = Request::get("/v1/health/service/haplane-agent?passing");
        let healthy = consul.request(request).await.unwrap().ok().json();
        if healthy.as_array().unwrap().len() == 1 {
            Ok(())
        } else {
            Err(healthy)
        }
    })
    .await;
    agent
        .process()
        .signal(haplane_testkit::process::Signal::TERM);
    agent.process().exit(PATIENCE).await;
    let services = services().await;
    assert!(services.get("haplane-agent-lb-01").is_some(), "{services}");
}

/// A pod ends for good.
#[tokio::test(flavor = "multi_thread")]
async fn where_it_shall_leave_it_is_registered_no_more_when_it_has_stopped() {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    let launch = Launch::registered(&consul, "pod-1").flags(&["--leave"]);
    let mut agent = launch.ready().await;
    let is_registered = async || {
        let request = Request::get("/v1/agent/services");
        let services = consul.request(request).await.unwrap().ok().json();
        services.get("haplane-agent-pod-1").is_some()
    };
    eventually("the service", PATIENCE, async || {
        is_registered().await.then_some(()).ok_or("not yet")
    })
    .await;
    agent
        .process()
        .signal(haplane_testkit::process::Signal::TERM);
    assert_eq!(agent.process().exit(PATIENCE).await.code(), Some(0));
    assert!(!is_registered().await);
}

/// Behind one Consul agent the later registration takes the place of the earlier: a proof would be one of half
/// the fleet.
#[tokio::test(flavor = "multi_thread")]
async fn two_agents_of_one_name_are_noticed_by_both_and_no_proof_is_given() {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "m").await;
    let one = Launch::registered(&consul, "lb-01").ready().await;
    let other = Launch::registered(&consul, "lb-01").ready().await;
    for agent in [&one, &other] {
        eventually("the rival is noticed", PATIENCE, async || {
            let node = agent
                .page("/v1/node")
                .await
                .map_err(|error| error.to_string())?;
            let rival = node.ok().json()["rival"].clone();
            let is_told = rival.as_str().is_some_and(|told| told.contains("lb-01"));
            is_told.then_some(()).ok_or(rival.to_string())
        })
        .await;
    }
    let haplane = Haplane::on(format!("consul:{}", consul.url()));
    // Which of the two is found changes all the time.
    let is_told = |why: &Value| {
        let why = why.as_str().unwrap_or_default();
        why.contains("registers as node lb-01 too") && why.contains("its own `node`")
    };
    let status = haplane.run(&["status", "--json"]).exits(0).json();
    assert!(is_told(&status["nodes"][0]["rival"]), "{status}");
    let waited = haplane
        .run(&["wait", "--timeout", "0s", "--json"])
        .exits(4)
        .json();
    assert!(is_told(&waited["laggards"][0]["why"]), "{waited}");
}
