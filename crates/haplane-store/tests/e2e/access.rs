//! Ways in: sockets, certificates, tokens, and what is said when one is refused.

use std::error::Error as _;

use haplane_core::marker;
use haplane_store::consul::service::{HttpCheck, Registration, Which};
use haplane_store::consul::{
    Address, Client, ConsulSettings, ConsulStore, Secret, TlsSettings, TokenSettings,
};
use haplane_store::{CommitError, Store as _, StoreError, StoreErrorKind, Transaction};
use haplane_testkit::authority::Authority;
use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;

use crate::contract::{change, read, transaction, write};
use crate::follower::{Follower, RECOVERY, SOON, says};

fn store(settings: ConsulSettings) -> ConsulStore {
    let prefix = |text: &str| text.parse().unwrap();
    ConsulStore::new(settings, prefix("haplane/state"), prefix("haplane/log")).unwrap()
}

fn with_token(consul: &Consul, secret: &str) -> ConsulSettings {
    ConsulSettings {
        address: consul.url().parse().unwrap(),
        token: TokenSettings::Literal(Secret::new(secret)),
        ..ConsulSettings::default()
    }
}

fn registration() -> Registration {
    Registration {
        id: "haplane-agent-lb-01".into(),
        name: "haplane-agent".into(),
        address: String::new(),
        port: 9778,
        meta: [("node".to_owned(), "lb-01".to_owned())].into(),
        check: HttpCheck {
            // Nobody listens there: the check is critical, the instance counts all the same.
            url: "http://127.0.0.1:1/readyz".into(),
            interval: "1s".into(),
            timeout: "1s".into(),
            deregister_critical_service_after: "24h".into(),
        },
    }
}

fn failed(outcome: Result<impl std::fmt::Debug, CommitError>) -> StoreError {
    match outcome {
        Err(CommitError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_unix_socket_is_as_good_as_a_port() {
    let consul = Consul::start(Options::new().unix_socket()).await;
    let settings = ConsulSettings {
        address: format!("unix://{}", consul.socket().display())
            .parse()
            .unwrap(),
        ..ConsulSettings::default()
    };
    let store = store(settings);
    write(&store, &[("canary", Some("drain"))]).await;
    assert_eq!(
        says(&read(&store).await.snapshot, "canary").unwrap(),
        "drain"
    );
}

#[tokio::test]
async fn https_takes_a_private_authority_and_a_client_certificate() {
    let authority = Authority::new("the site's own");
    let consul = Consul::start(Options::new().https(&authority)).await;
    let client = authority.client("agent");
    let good = TlsSettings {
        ca_file: Some(authority.file()),
        cert_file: Some(client.certificate.clone()),
        key_file: Some(client.key.clone()),
        server_name: None,
    };
    let with = |tls: TlsSettings| {
        store(ConsulSettings {
            address: consul.https_url().parse().unwrap(),
            tls,
            ..ConsulSettings::default()
        })
    };
    let mine = with(good.clone());
    write(&mine, &[("canary", Some("drain"))]).await;
    assert_eq!(
        says(&read(&mine).await.snapshot, "canary").unwrap(),
        "drain"
    );

    let stranger = Authority::new("somebody else");
    let intruder = stranger.client("agent");
    let bad = |change: fn(&mut TlsSettings, &Authority)| {
        let mut tls = good.clone();
        change(&mut tls, &stranger);
        tls
    };
    for (what, tls, kind) in [
        (
            "no certificate of ours",
            bad(|tls, _| (tls.cert_file, tls.key_file) = (None, None)),
            StoreErrorKind::Unreachable,
        ),
        (
            "another authority's",
            bad(|tls, stranger| tls.ca_file = Some(stranger.file())),
            StoreErrorKind::Unreachable,
        ),
        (
            "the machine's authorities",
            bad(|tls, _| tls.ca_file = None),
            StoreErrorKind::Unreachable,
        ),
        (
            "another name",
            bad(|tls, _| tls.server_name = Some("example.org".into())),
            StoreErrorKind::Unreachable,
        ),
        (
            "a key without its certificate",
            bad(|tls, _| tls.cert_file = None),
            StoreErrorKind::Config,
        ),
        (
            "no such file",
            bad(|tls, _| tls.ca_file = Some("/nonexistent/ca.pem".into())),
            StoreErrorKind::Config,
        ),
    ] {
        let error = with(tls).read_path(marker::PATH).await.unwrap_err();
        // A machine may trust nobody at all.
        let trusts_nobody =
            what == "the machine's authorities" && error.kind == StoreErrorKind::Config;
        assert!(
            error.kind == kind || trusts_nobody,
            "{what}: {}",
            error.story()
        );
        assert!(
            error.source().is_some() || error.kind == StoreErrorKind::Config,
            "{what}: {error}"
        );
    }
    let plain: Address = consul.url().parse().unwrap();
    let wrongly = store(ConsulSettings {
        address: plain.clone().with_tls(),
        tls: good.clone(),
        ..ConsulSettings::default()
    });
    let error = wrongly.read_path(marker::PATH).await.unwrap_err();
    let says_so = format!("the other side does not speak TLS: {plain}?");
    assert!(error.what.contains(&says_so), "{}", error.story());
    let mixed = TlsSettings {
        key_file: Some(intruder.key.clone()),
        ..good
    };
    let error = with(mixed).read_path(marker::PATH).await.unwrap_err();
    assert!(
        error.what.contains("do not go together"),
        "{}",
        error.story()
    );
}

#[tokio::test]
async fn a_reload_reads_certificates_and_token_again_without_a_gap() {
    let authority = Authority::new("the site's own");
    let consul = Consul::start(Options::new().https(&authority)).await;
    let (old, new) = (authority.client("old"), authority.client("new"));
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::copy(&old.certificate, &cert).unwrap();
    std::fs::copy(&old.key, &key).unwrap();
    let settings = ConsulSettings {
        address: consul.https_url().parse().unwrap(),
        tls: TlsSettings {
            ca_file: Some(authority.file()),
            cert_file: Some(cert.clone()),
            key_file: Some(key.clone()),
            server_name: None,
        },
        ..ConsulSettings::default()
    };
    let store = std::sync::Arc::new(store(settings));
    write(&*store, &[("canary", Some("drain"))]).await;
    let follower = Follower::start(std::sync::Arc::clone(&store));
    follower.until_says("canary", "drain", SOON).await;
    // What is in the files now is not used before it is asked for: broken files prove it.
    std::fs::write(&key, "garbage").unwrap();
    write(&*store, &[("canary", Some("maint"))]).await;
    follower.until_says("canary", "maint", RECOVERY).await;
    store.reload();
    follower
        .until("the broken key", SOON, |view| {
            view.failure
                .as_ref()
                .is_some_and(|f| f.kind == StoreErrorKind::Config)
        })
        .await;
    std::fs::copy(&new.certificate, &cert).unwrap();
    std::fs::copy(&new.key, &key).unwrap();
    follower.until_says("canary", "maint", RECOVERY).await;
}

#[tokio::test]
async fn a_missing_permission_is_named_and_nothing_is_written() {
    let consul = Consul::start(Options::new().acl()).await;
    let rules = [
        ("none", ""),
        ("reader", r#"key_prefix "haplane/" { policy = "read" }"#),
        (
            "without-log",
            r#"key_prefix "haplane/state/" { policy = "write" }"#,
        ),
        (
            "one-key",
            r#"key_prefix "haplane/" { policy = "write" } key "haplane/state/web/b" { policy = "deny" }"#,
        ),
    ];
    for (name, rules) in rules {
        consul.set_policy(name, rules).await;
        let token = consul.create_token(&[name]).await;
        let store = store(with_token(&consul, &token.secret));
        let nothing = haplane_core::Snapshot::default();
        let changes = ["web/a", "web/b"].map(|key| change(&nothing, key, Some("drain")));
        let error = failed(store.commit(&transaction(changes.into())).await);
        assert_eq!(
            error.kind,
            StoreErrorKind::Denied,
            "{name}: {}",
            error.story()
        );
        let wanted = r#"key_prefix "haplane/state/" { policy = "write" }"#;
        assert!(error.what.contains(wanted), "{name}: {error}");
        assert!(!error.story().contains(&token.secret), "{name}");
        assert_eq!(consul.list("haplane/").await, [], "{name}");
    }
    let init = Transaction {
        changes: Vec::new(),
        log: None,
    };
    let nobody = store(with_token(&consul, "01234567-0123-0123-0123-0123456789ab"));
    let error = failed(nobody.commit(&init).await);
    assert_eq!(error.kind, StoreErrorKind::Denied, "{}", error.story());
    assert!(
        error.what.contains("does not know this token"),
        "{}",
        error.story()
    );
}

/// In a list, Consul shows the same to whom it denies the log as where there is none.
#[tokio::test]
async fn a_log_that_may_not_be_read_is_not_an_empty_one() {
    let consul = Consul::start(Options::new().acl()).await;
    let may = |log: &str| format!(r#"key_prefix "haplane/state/" {{ policy = "write" }} {log}"#);
    let reads_log = r#"key_prefix "haplane/log/" { policy = "read" }"#;
    consul.set_policy("without", &may("")).await;
    consul.set_policy("with", &may(reads_log)).await;
    let without = consul.create_token(&["without"]).await;
    let without = store(with_token(&consul, &without.secret));
    let with = consul.create_token(&["with"]).await;
    let with = store(with_token(&consul, &with.secret));
    assert_eq!(with.log(10).await.unwrap(), [], "nothing was written yet");
    let denied = |error: StoreError| {
        assert_eq!(error.kind, StoreErrorKind::Denied, "{}", error.story());
        assert!(
            error
                .what
                .contains(r#"key_prefix "haplane/log/" { policy = "read" }"#),
            "{}",
            error.story()
        );
    };
    denied(without.log(10).await.unwrap_err());

    consul
        .set_policy("all", r#"key_prefix "haplane/" { policy = "write" }"#)
        .await;
    let all = consul.create_token(&["all"]).await;
    let writer = store(with_token(&consul, &all.secret));
    write(&writer, &[("canary", Some("drain"))]).await;
    let entries = with.log(10).await.unwrap();
    assert_eq!(entries.len(), 1);
    denied(without.log(10).await.unwrap_err());
    denied(without.log_entries(&[entries[0].id]).await.unwrap_err());
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let consul = Consul::start(Options::new().acl()).await;
    let pages = include_str!("../../../../docs/state.md");
    let mut stores = Vec::new();
    for name in ["agent", "writer"] {
        let (_, rules) = pages
            .split_once(&format!("```hcl\n# {name}\n"))
            .expect(name);
        let (rules, _) = rules.split_once("```").unwrap();
        consul.set_policy(name, rules).await;
        let token = consul.create_token(&[name]).await;
        stores.push(store(with_token(&consul, &token.secret)));
    }
    let [agent, writer] = stores.try_into().ok().expect("two of them");
    write(
        &writer,
        &[("canary", Some("drain")), ("web/a", Some("50%"))],
    )
    .await;
    write(&writer, &[("web/a", None)]).await;
    assert_eq!(writer.log(10).await.unwrap().len(), 2);
    assert_eq!(writer.trim_log(1).await.unwrap(), 0, "the oldest is in use");
    agent.client().register(&registration()).await.unwrap();
    let found = eventually("the agent", SOON, async || {
        let found = writer
            .client()
            .instances("haplane-agent", Which::All)
            .await
            .unwrap();
        found.list.first().cloned().ok_or(found)
    })
    .await;
    let follower = Follower::start(agent);
    follower.until_says("canary", "drain", SOON).await;
    writer
        .client()
        .forget_instance(&found.node, &found.id)
        .await
        .unwrap();
}

#[tokio::test]
async fn where_lists_need_a_right_of_their_own_it_is_named() {
    let consul = Consul::start(Options::new().acl_with_list_policy()).await;
    let prefix = |policy: &str| format!(r#"key_prefix "haplane/" {{ policy = "{policy}" }}"#);
    consul.put("haplane/state/.haplane", "m").await;
    consul.set_policy("agent", &prefix("read")).await;
    let token = consul.create_token(&["agent"]).await;
    let store = store(with_token(&consul, &token.secret));
    let follower = Follower::start(store);
    let failure = follower.until_failing().await.failure.unwrap();
    assert_eq!(failure.kind, StoreErrorKind::Denied);
    assert!(
        failure.what.contains("enable_key_list_policy"),
        "{failure:?}"
    );
    consul.set_policy("agent", &prefix("list")).await;
    follower
        .until("a snapshot", RECOVERY, |view| view.snapshot.is_some())
        .await;
}

#[tokio::test]
async fn a_write_takes_up_a_new_token_from_the_file() {
    let consul = Consul::start(Options::new().acl()).await;
    consul
        .set_policy("reader", r#"key_prefix "haplane/" { policy = "read" }"#)
        .await;
    consul
        .set_policy("writer", r#"key_prefix "haplane/" { policy = "write" }"#)
        .await;
    let (weak, strong) = (
        consul.create_token(&["reader"]).await,
        consul.create_token(&["writer"]).await,
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, &weak.secret).unwrap();
    let store = store(ConsulSettings {
        token: TokenSettings::File(file.clone()),
        ..with_token(&consul, "")
    });
    let nothing = haplane_core::Snapshot::default();
    let write = transaction(vec![change(&nothing, "canary", Some("drain"))]);
    failed(store.commit(&write).await);
    std::fs::write(&file, &strong.secret).unwrap();
    store.commit(&write).await.unwrap();
    assert_eq!(
        store.log(10).await.unwrap(),
        [write.log.unwrap()],
        "with the new token"
    );
}

#[tokio::test]
async fn nobody_there_is_an_error_that_says_so_at_once() {
    let mut consul = Consul::start(Options::new()).await;
    let store = store(with_token(&consul, "hunter2"));
    consul.kill();
    let error = failed(store.commit(&transaction(Vec::new())).await);
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert!(error.what.contains(&consul.url()), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));
    // A name that the kept connection once led to.
    consul.launch();
    consul.ready().await;
    write(&store, &[("canary", Some("drain"))]).await;
    consul.restart().await;
    write(&store, &[("canary", Some("maint"))]).await;
}

#[tokio::test]
async fn services_are_announced_found_and_forgotten() {
    let consul = Consul::start(Options::new()).await;
    let client = Client::new(ConsulSettings {
        address: consul.url().parse().unwrap(),
        ..ConsulSettings::default()
    });
    let none = client.instances("haplane-agent", Which::All).await.unwrap();
    assert!(none.list.is_empty() && none.consistent && none.meta.known_leader);
    let registration = registration();
    client.register(&registration).await.unwrap();
    client.register(&registration).await.unwrap();
    let watcher = client.sibling();
    let found = eventually("the instance", SOON, async || {
        let found = client.instances("haplane-agent", Which::All).await.unwrap();
        if found.list.len() == 1 {
            Ok(found)
        } else {
            Err(found)
        }
    })
    .await;
    let instance = &found.list[0];
    assert_eq!(
        (instance.id.as_str(), instance.port),
        ("haplane-agent-lb-01", 9778)
    );
    assert_eq!(instance.address, "127.0.0.1");
    assert_eq!(instance.meta["node"], "lb-01");
    assert!(!instance.is_passing());
    assert_eq!(instance.weight, 1);
    let passing = client
        .instances("haplane-agent", Which::Passing)
        .await
        .unwrap();
    assert_eq!(passing.list, []);
    // Parked until something changes.
    watcher
        .instances("haplane-agent", Which::All)
        .await
        .unwrap();
    let (index, wait) = (found.meta.index, std::time::Duration::from_secs(30));
    let parked = watcher.instances_after("haplane-agent", Which::All, index, wait);
    let (woken, gone) = tokio::join!(
        tokio::time::timeout(SOON, parked),
        client.deregister("haplane-agent", &instance.id)
    );
    gone.unwrap();
    assert_eq!(woken.expect("to be woken").unwrap().list, []);
    client
        .forget_instance(&instance.node, &instance.id)
        .await
        .unwrap();
}
