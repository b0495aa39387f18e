//! The token goes to Consul and nowhere else.

use haplane_testkit::authority::Authority;
use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::fake_consul::{FakeConsul, Reply};
use haplane_testkit::process::Signal;

use crate::agent_process::{Agent, Launch, PATIENCE};

const PAGES: [&str; 7] = [
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/node",
    "/v1/state",
    "/v1/rows",
];

/// Everything that an agent shows to anybody, at this moment.
async fn all_that_it_shows(agent: &mut Agent) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    for path in PAGES {
        let page = agent.page(path).await.unwrap();
        shown.push((path.to_owned(), page.text()));
        let headers = format!("{:?}", page.headers);
        shown.push((format!("headers of {path}"), headers));
    }
    let pid = agent.process().pid();
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let arguments = String::from_utf8_lossy(&arguments).into_owned();
    shown.push(("the process list".to_owned(), arguments));
    shown.push(("the log".to_owned(), agent.log()));
    shown
}

fn nowhere(secret: &str, shown: &[(String, String)]) {
    for (place, text) in shown {
        assert!(!text.is_empty(), "{place} was looked at");
        assert!(!text.contains(secret), "in {place}: {text}");
    }
}

/// From a start without rights over a good life to an end without a store, with the chattiest log.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_appears_nowhere() {
    let authority = Authority::new("ours");
    let mut consul = Consul::start(Options::new().acl().https(&authority)).await;
    consul.put("haplane/state/.haplane", "").await;
    consul.put("haplane/state/canary", "drain").await;
    let client = authority.client("lb-01");
    let key = std::fs::read_to_string(&client.key).unwrap();
    let key = key.lines().nth(1).unwrap().to_owned();
    let rules = r#"key_prefix "haplane/state/" { policy = "read" }"#;
    consul.set_policy("reader", "").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");

    for (variable, format) in [
        ("CONSUL_HTTP_TOKEN", "text"),
        ("CONSUL_HTTP_TOKEN_FILE", "json"),
    ] {
        consul.set_policy("reader", "").await;
        let token = consul.create_token(&["reader"]).await;
        let secret = token.secret.clone();
        std::fs::write(&file, format!("{secret}\n")).unwrap();
        let value = if variable == "CONSUL_HTTP_TOKEN" {
            &secret
        } else {
            file.to_str().unwrap()
        };
        let launch = Launch::on(format!("consul:{}", consul.https_url()))
            .with(variable, value)
            .with("CONSUL_CACERT", authority.file().to_str().unwrap())
            .with("CONSUL_CLIENT_CERT", client.certificate.to_str().unwrap())
            .with("CONSUL_CLIENT_KEY", client.key.to_str().unwrap())
            .registering()
            .flags(&["--log", "trace", "--log-format", format]);
        let printed = launch.clone().flags(&["--print-config"]).run().exits(0);
        let mut shown = vec![
            ("--print-config".to_owned(), printed.stdout),
            ("its errors".to_owned(), printed.stderr + "(none)"),
        ];

        let mut agent = launch.start();
        eventually("a refusal", PATIENCE, async || {
            let ready = agent
                .page("/readyz")
                .await
                .map_err(|error| error.to_string())?;
            if ready.text().contains("enied") {
                Ok(())
            } else {
                Err(ready.text())
            }
        })
        .await;
        shown.extend(all_that_it_shows(&mut agent).await);
        consul.set_policy("reader", rules).await;
        agent.becomes_ready().await;
        agent.answers("web/a canary", "drain").await;
        agent.process().signal(Signal::HUP);
        shown.extend(all_that_it_shows(&mut agent).await);
        consul.delete_token(&token).await;
        eventually("a token that Consul does not know", PATIENCE, async || {
            consul
                .put("haplane/state/nobody", agent.log().len().to_string())
                .await;
            let error = agent.json("/v1/node").await["store"]["error"].clone();
            if error.is_string() {
                Ok(())
            } else {
                Err(error)
            }
        })
        .await;
        shown.extend(all_that_it_shows(&mut agent).await);
        consul.kill();
        eventually("a Consul that is gone", PATIENCE, async || {
            let gone = agent
                .metric("haplane_store_errors_total{kind=\"unreachable\"}")
                .await;
            if gone > 0.5 { Ok(()) } else { Err(gone) }
        })
        .await;
        shown.extend(all_that_it_shows(&mut agent).await);
        agent.process().signal(Signal::TERM);
        agent.process().exit(PATIENCE).await;
        shown.push(("the whole log".to_owned(), agent.log()));
        assert!(agent.log().contains("DEBUG"), "it was chatty");
        nowhere(&secret, &shown);
        nowhere(&key, &shown);
        consul.launch();
        consul.ready().await;
    }
}

/// A peer that sends the token back, and a token that is none.
#[tokio::test(flavor = "multi_thread")]
async fn not_even_when_a_peer_repeats_it_or_it_cannot_be_sent() {
    let secret = "d1d2b3a4-hunter2-secret";
    let fake = FakeConsul::start();
    fake.always(
        "/v1/",
        Reply::status(403, format!("token {secret} not found")),
    );
    let mut agent = Launch::on(format!("consul:{}", fake.url()))
        .with("CONSUL_HTTP_TOKEN", secret)
        .registering()
        .flags(&["--log", "trace"])
        .start();
    eventually("the refusal, without the token", PATIENCE, async || {
        let ready = agent
            .page("/readyz")
            .await
            .map_err(|error| error.to_string())?;
        if ready.text().contains("***") {
            Ok(())
        } else {
            Err(ready.text())
        }
    })
    .await;
    nowhere(secret, &all_that_it_shows(&mut agent).await);

    let two_lines = format!("{secret}\n{secret}");
    for bad in [two_lines.as_str(), "hunter2-\u{7f}-secret"] {
        let mut agent = Launch::on(format!("consul:{}", fake.url()))
            .with("CONSUL_HTTP_TOKEN", bad)
            .flags(&["--log", "trace", "--sync-timeout", "1s"])
            .start();
        let status = agent.process().exit(PATIENCE).await;
        assert_ne!(status.code(), Some(0));
        let log = agent.log();
        assert!(log.contains("token"), "it says what is wrong: {log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
}
