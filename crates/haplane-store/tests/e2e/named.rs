//! Asking for keys by name: the only way in which Consul 1.8 tells that something is denied.

use haplane_core::guard::Refusal;
use haplane_store::consul::{ConsulSettings, ConsulStore, Secret, TokenSettings};
use haplane_store::{Named, Store as _};
use haplane_testkit::consul::{Consul, MANAGEMENT_TOKEN, Options};

use crate::follower::{Follower, SOON, says};

const ALL: &str = r#"key_prefix "haplane/state/" { policy = "read" }"#;
const ALL_BUT_ONE: &str = r#"key_prefix "haplane/state/" { policy = "read" }
    key "haplane/state/k137" { policy = "deny" }"#;

fn store(consul: &Consul, secret: &str) -> ConsulStore {
    let settings = ConsulSettings {
        address: consul.url().parse().unwrap(),
        token: TokenSettings::Literal(Secret::new(secret)),
        ..ConsulSettings::default()
    };
    let prefix = |text: &str| text.parse().unwrap();
    ConsulStore::new(settings, prefix("haplane/state"), prefix("haplane/log")).unwrap()
}

/// A marker and the keys from `k000` to `k199`, all drained.
async fn two_hundred(consul: &Consul) {
    let names = (0..200).map(|n| format!("haplane/state/k{n:03}"));
    let drained = names.map(|name| (name, "drain".to_owned()));
    let marker = ("haplane/state/.haplane".to_owned(), "m1".to_owned());
    consul.put_many(drained.chain([marker])).await;
}

#[tokio::test]
async fn each_name_is_absent_present_or_denied() {
    let consul = Consul::start(Options::new().acl()).await;
    two_hundred(&consul).await;
    let rules = r#"key_prefix "haplane/state/" { policy = "read" }
        key_prefix "haplane/state/k1" { policy = "deny" }"#;
    consul.set_policy("agent", rules).await;
    let token = consul.create_token(&["agent"]).await;
    let paths: Vec<String> = (0..400)
        .map(|n| format!("k{n:03}"))
        .chain(["b,3A1/s,2Ejson".to_owned(), "k1-not-there".to_owned()])
        .collect();
    let named = store(&consul, &token.secret).read_names(&paths).await;
    let want: Vec<Named> = paths
        .iter()
        .map(|path| match path.as_str() {
            path if path.starts_with("k1") => Named::Denied,
            path if path < "k200" && path.starts_with('k') => Named::Present,
            _ => Named::Absent,
        })
        .collect();
    assert_eq!(named.unwrap(), want);

    let nobody = store(&consul, "01234567-0123-0123-0123-0123456789ab");
    let denied = nobody.read_names(&paths[..70]).await.unwrap();
    assert_eq!(denied, [Named::Denied; 70]);
    assert_eq!(nobody.read_names(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn one_denied_key_among_many_that_are_really_gone_is_not_missed() {
    let consul = Consul::start(Options::new().acl()).await;
    two_hundred(&consul).await;
    consul.set_policy("agent", ALL).await;
    let token = consul.create_token(&["agent"]).await;
    let follower = Follower::start(store(&consul, &token.secret));
    follower.until_says("k137", "drain", SOON).await;

    consul.set_policy("agent", ALL_BUT_ONE).await;
    let manager = store(&consul, MANAGEMENT_TOKEN);
    let others = (0..200).filter(|&n| n != 137);
    for name in others.map(|n| format!("haplane/state/k{n:03}")) {
        consul.delete(&name).await;
    }
    consul.put("haplane/state/later", "maint").await;
    follower.until_refused(Refusal::Denied).await;
    let still = manager.read_path("k137").await.unwrap();
    assert!(still.is_some(), "it was never cleared");
    follower
        .until("the denied key to stay", SOON, |view| {
            view.snapshot
                .as_ref()
                .is_some_and(|snapshot| says(snapshot, "k137").is_some())
        })
        .await;

    consul.set_policy("agent", ALL).await;
    follower.until_says("later", "maint", SOON * 4).await;
}
