//! The ways to a store: HTTPS with a private authority and client certificates, a unix socket, a
//! folder.

use std::time::Duration;

use haplane_testkit::authority::Authority;
use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::{eventually, throughout};

use crate::agent_process::{Launch, PATIENCE};

async fn desired(consul: &Consul) {
    consul.put("haplane/state/.haplane", "").await;
    consul.put("haplane/state/canary", "drain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn https_with_a_private_authority_and_a_client_certificate() {
    let (ours, other) = (Authority::new("ours"), Authority::new("another"));
    let consul = Consul::start(Options::new().https(&ours)).await;
    desired(&consul).await;
    let client = ours.client("lb-01");
    let (ca, cert, key) = (ours.file(), client.certificate, client.key);
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let on = || Launch::on(format!("consul:{}", consul.https_url()));

    let mut agent = on()
        .with("CONSUL_CACERT", &path(&ca))
        .with("CONSUL_CLIENT_CERT", &path(&cert))
        .with("CONSUL_CLIENT_KEY", &path(&key))
        .ready()
        .await;
    agent.answers("web/b canary", "drain").await;
    consul.put("haplane/state/canary", "maint").await;
    agent.answers("web/b canary", "maint").await;

    // The same by the file, with Consul's own address.
    let file = agent.dir().join("haplane.toml");
    let text = format!(
        "store = \"consul\"\n[consul]\nca_file = {ca:?}\ncert_file = {cert:?}\nkey_file = {key:?}\n"
    );
    std::fs::write(&file, text).unwrap();
    let address = consul.https_url();
    agent.replace(
        &Launch::on("")
            .with("CONSUL_HTTP_ADDR", address.trim_start_matches("https://"))
            .with("CONSUL_HTTP_SSL", "true")
            .flags(&["--config", &path(&file)]),
    );
    agent.becomes_ready().await;
    agent.answers("web/b canary", "maint").await;

    // Neither an unknown server nor a client that Consul does not know gets any further.
    let nobody = on().with("CONSUL_CACERT", &path(&ca));
    let stranger = on()
        .with("CONSUL_CACERT", &path(&other.file()))
        .with("CONSUL_CLIENT_CERT", &path(&cert))
        .with("CONSUL_CLIENT_KEY", &path(&key));
    for launch in [nobody, stranger] {
        let agent = launch.start();
        let reason = eventually("a reason", PATIENCE, async || {
            let ready = agent
                .page("/readyz")
                .await
                .map_err(|error| error.to_string())?;
            let text = ready.text();
            let told = text.contains("ertificate") && text.contains("localhost");
            if told { Ok(ready) } else { Err(text) }
        })
        .await;
        assert_eq!(reason.status, 503, "{}", reason.text());
        assert!(
            agent.ask("web/b canary").await.is_err(),
            "it does not listen"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket() {
    let mut consul = Consul::start(Options::new().unix_socket()).await;
    desired(&consul).await;
    let address = format!("unix://{}", consul.socket().display());
    let agent = Launch::on(format!("consul:{address}")).ready().await;
    agent.answers("web/b canary", "drain").await;
    assert_eq!(agent.json("/v1/node").await["store"]["address"], address);
    // Over a restart, with the same path.
    consul.restart().await;
    consul.put("haplane/state/canary", "50%").await;
    agent.answers("web/b canary", "ready 50%").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_goes_away_and_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (place.path().join("state"), place.path().join("elsewhere"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(".haplane"), "").unwrap();
    std::fs::write(folder.join("canary"), "drain\n").unwrap();
    let agent = Launch::on(format!("dir:{}", folder.display()))
        .ready()
        .await;
    agent.answers("web/b canary", "drain").await;
    std::fs::create_dir(folder.join("web")).unwrap();
    std::fs::write(folder.join("web/b"), "50%").unwrap();
    agent.answers("web/b canary", "ready 50%").await;
    std::fs::write(folder.join("web/b"), "maint").unwrap();
    agent.answers("web/b canary", "maint").await;

    std::fs::rename(&folder, &elsewhere).unwrap();
    eventually("the loss told", PATIENCE, async || {
        let store = agent.json("/v1/node").await["store"].clone();
        if store["error"].is_null() && store["guard"].is_null() {
            Err(store)
        } else {
            Ok(())
        }
    })
    .await;
    // An empty folder in its place is no state either.
    std::fs::create_dir(&folder).unwrap();
    throughout(
        "the last snapshot",
        Duration::from_millis(500),
        async || match agent.ask("web/b canary").await {
            Ok(line) if line == "maint" => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
    assert_eq!(agent.page("/readyz").await.unwrap().status, 200);
    std::fs::remove_dir(&folder).unwrap();
    std::fs::rename(&elsewhere, &folder).unwrap();
    std::fs::remove_file(folder.join("web/b")).unwrap();
    agent.answers("web/b canary", "drain").await;
}
