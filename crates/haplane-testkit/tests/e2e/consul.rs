//! Consul's behaviour that haplane is built on, and the kit's grip on it.

use std::sync::Arc;
use std::time::Duration;

use haplane_testkit::authority::{Authority, Certificate};
use haplane_testkit::consul::{Cluster, Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::http::{Request, Target};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[tokio::test]
async fn keys_keep_values_and_flags_and_survive_a_restart_but_not_an_empty_one() {
    let mut consul = Consul::start(Options::new()).await;
    consul
        .put_with_flags("haplane/state/canary", "drain", 7)
        .await;
    consul.put("haplane/state2/x", "maint").await;

    consul.restart().await;
    let keys = consul.list("haplane/state/").await;
    assert_eq!(keys.len(), 1);
    assert_eq!(
        (keys[0].value.as_slice(), keys[0].flags),
        (&b"drain"[..], 7)
    );

    consul.restart_empty().await;
    let answer = consul
        .request(Request::get("/v1/kv/haplane/state/?recurse"))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.headers.get("X-Consul-Index")),
        (404, Some("1")),
        "facts 8.1"
    );
}

#[tokio::test]
async fn an_older_snapshot_brings_old_values_back() {
    let consul = Consul::start(Options::new()).await;
    consul.put("k", "old").await;
    let saved = consul.snapshot().await;
    consul.put("k", "new").await;
    consul.restore(saved).await;
    eventually("the old value", Duration::from_secs(5), async || {
        let entry = consul.get("k").await;
        if entry.as_ref().is_some_and(|entry| entry.value == b"old") {
            Ok(())
        } else {
            Err(entry)
        }
    })
    .await;
}

#[tokio::test]
async fn without_rights_a_list_looks_empty_and_a_single_key_says_so() {
    let consul = Consul::start(Options::new().acl()).await;
    consul.put("haplane/state/canary", "drain").await;
    consul
        .set_policy("reader", r#"key_prefix "haplane/" { policy = "read" }"#)
        .await;
    let token = consul.create_token(&["reader"]).await;
    let list = async || {
        let request =
            Request::get("/v1/kv/haplane/state/?recurse").header("X-Consul-Token", &token.secret);
        consul.request(request).await.unwrap()
    };
    assert_eq!(list().await.status, 200);

    consul
        .set_policy("reader", r#"key_prefix "other/" { policy = "read" }"#)
        .await;
    let denied = eventually("the list denied", Duration::from_secs(5), async || {
        let answer = list().await;
        if answer.status == 404 {
            Ok(answer)
        } else {
            Err(answer.text())
        }
    })
    .await;
    assert!(
        denied.body.is_empty() && denied.headers.get("X-Consul-Index").is_some(),
        "facts 8.2: like no keys"
    );
    let single =
        Request::get("/v1/kv/haplane/state/canary").header("X-Consul-Token", &token.secret);
    let single = consul.request(single).await.unwrap();
    assert_eq!(
        (single.status, single.text().as_str()),
        (403, "Permission denied")
    );

    consul.delete_token(&token).await;
    eventually("the token gone", Duration::from_secs(5), async || {
        let answer = list().await;
        if answer.status == 403 {
            Ok(())
        } else {
            Err((answer.status, answer.text()))
        }
    })
    .await;
}

#[tokio::test]
async fn with_the_list_policy_a_list_without_rights_is_refused() {
    let consul = Consul::start(Options::new().acl_with_list_policy()).await;
    consul.put("haplane/state/canary", "drain").await;
    let token = consul.create_token(&[]).await;
    let request =
        Request::get("/v1/kv/haplane/state/?recurse").header("X-Consul-Token", &token.secret);
    assert_eq!(consul.request(request).await.unwrap().status, 403);
}

#[tokio::test]
async fn it_serves_http_on_a_unix_socket() {
    let consul = Consul::start(Options::new().unix_socket()).await;
    assert!(matches!(consul.target(), Target::Unix(_)));
    consul.put("k", "v").await;
    assert_eq!(consul.get("k").await.unwrap().value, b"v");
}

#[tokio::test]
async fn https_wants_a_client_certificate() {
    let authority = Authority::new("haplane test authority");
    let consul = Consul::start(Options::new().https(&authority)).await;
    let client = authority.client("agent");

    let refused = leader_over_tls(&consul, &authority, None).await;
    assert!(
        refused.is_err(),
        "served a client without a certificate: {refused:?}"
    );
    let served = leader_over_tls(&consul, &authority, Some(&client))
        .await
        .unwrap();
    assert!(served.starts_with("\"127.0.0.1:"), "{served}");
}

async fn leader_over_tls(
    consul: &Consul,
    authority: &Authority,
    client: Option<&Certificate>,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority.file()).unwrap())
        .unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match client {
        Some(client) => {
            let chain = vec![CertificateDer::from_pem_file(&client.certificate).unwrap()];
            config
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&client.key).unwrap())
                .unwrap()
        }
        None => config.with_no_client_auth(),
    };
    let address = consul.https_url().trim_start_matches("https://").to_owned();
    let tcp = TcpStream::connect(address).await?;
    let name = "localhost".try_into().unwrap();
    let tls = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await?;
    Ok(Request::get("/v1/status/leader")
        .send_over(tls)
        .await?
        .text())
}

#[tokio::test]
async fn one_connection_too_many_is_reset() {
    let consul = Consul::start(Options::new().max_connections(3)).await;
    let mut held = Vec::new();
    let refused = eventually("a refused connection", Duration::from_secs(5), async || {
        let mut next = TcpStream::connect(consul.address()).await.unwrap();
        let end = tokio::time::timeout(Duration::from_millis(200), next.read(&mut [0])).await;
        held.push(next);
        end.map_err(|_| held.len())
    })
    .await;
    assert!(matches!(refused, Ok(0) | Err(_)), "answered: {refused:?}");
    assert!(held.len() <= 5, "{} connections were served", held.len());
}

#[tokio::test]
async fn a_frozen_consul_keeps_its_port_and_answers_nothing() {
    let mut consul = Consul::start(Options::new()).await;
    consul.freeze().await;
    let request = Request::get("/v1/status/leader");
    let answer =
        tokio::time::timeout(Duration::from_millis(300), request.send(&consul.target())).await;
    assert!(answer.is_err(), "a frozen Consul answered {answer:?}");
    consul.thaw();
    consul.ready().await;
}

#[tokio::test]
async fn a_cluster_goes_on_without_its_leader() {
    let mut cluster = Cluster::start_with_acl().await;
    cluster.client.put("k", "v").await;
    let leader = cluster.leader().await;
    cluster.servers[leader].kill();
    eventually("another leader", Duration::from_secs(15), async || {
        let answer = cluster
            .client
            .request(Request::put("/v1/kv/k", "w"))
            .await
            .map_err(|error| error.to_string())?;
        if answer.status == 200 {
            Ok(())
        } else {
            Err(answer.text())
        }
    })
    .await;
    assert_ne!(cluster.leader().await, leader);
    cluster.servers[leader].launch();
    cluster.servers[leader].ready().await;
}
