//! Writes whose answer is lost, or is about something else: looked for, and never repeated.

use haplane_store::{CommitError, Store as _, StoreErrorKind};
use haplane_testkit::eventually::eventually;
use haplane_testkit::fake_consul::Reply;

use crate::consul::open;
use crate::contract::{change, transaction};
use crate::follower::SOON;
use crate::lies::drained;

#[tokio::test]
async fn a_write_without_an_answer_is_looked_for_and_never_repeated() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    let change = |text| change(&haplane_core::Snapshot::default(), "web/b", Some(text));
    let sent = || {
        let received = fake.received().into_iter();
        received
            .filter(|r| r.request.path.starts_with("/v1/txn"))
            .count()
    };
    fake.always("/v1/txn", Reply::close());
    // It happened.
    let happened = transaction(vec![change("50%")]);
    let entry = happened.log.clone().unwrap();
    let (committed, ()) = tokio::join!(store.commit(&happened), async {
        eventually("the write", SOON, async || {
            (sent() == 1).then_some(()).ok_or(sent())
        })
        .await;
        let text = serde_json::to_string(&entry).unwrap();
        fake.put(&format!("haplane/log/{}", entry.id), &text);
    });
    assert_eq!(committed.unwrap().index, fake.index());
    assert_eq!(sent(), 1);
    // It did not.
    let lost = store.commit(&transaction(vec![change("25%")])).await;
    let Err(CommitError::Store(error)) = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert!(error.what.contains("the write is not there"), "{error}");
    assert_eq!(sent(), 2);
}

/// What Consul says of one key of a transaction, in its own form.
pub(crate) fn refused(what: &str) -> Reply {
    let what = what.replace('"', "\\\"");
    let body =
        format!(r#"{{"Results":null,"Errors":[{{"OpIndex":0,"What":"{what}"}}],"Index":0}}"#);
    Reply::status(409, body)
}

#[tokio::test]
async fn a_refusal_that_is_not_about_our_keys_is_looked_into_like_a_lost_answer() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    let writing = change(&haplane_core::Snapshot::default(), "web/b", Some("50%"));
    let transaction = transaction(vec![writing]);
    let entry = transaction.log.clone().unwrap();
    fake.always("/v1/txn", refused("failed index check"));
    let (committed, ()) = tokio::join!(store.commit(&transaction), async {
        eventually("the write", SOON, async || {
            let received = fake.received().into_iter();
            let mut paths = received.map(|r| r.request.path);
            paths
                .any(|path| path.starts_with("/v1/txn"))
                .then_some(())
                .ok_or(())
        })
        .await;
        let text = serde_json::to_string(&entry).unwrap();
        fake.put(&format!("haplane/log/{}", entry.id), &text);
    });
    assert_eq!(committed.unwrap().index, fake.index(), "it was written");
    // Of our own key it is believed at once.
    fake.honest();
    fake.always(
        "/v1/txn",
        refused("failed to set key \"haplane/state/web/b\", index is stale"),
    );
    let conflict = store.commit(&transaction).await;
    assert!(
        matches!(conflict, Err(CommitError::Conflict { .. })),
        "{conflict:?}"
    );
}

#[tokio::test]
async fn the_log_is_trimmed_only_by_a_list_that_lacks_no_key() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    let names = (1..4).map(|id| format!("\"haplane/log/{id:016x}\""));
    let names = format!("[{}]", names.collect::<Vec<_>>().join(","));
    fake.always("/v1/kv/haplane/log", Reply::garbage(names));
    for partial in [
        Reply::status(404, ""),
        Reply::at_once().header("X-Consul-Results-Filtered-By-ACLs", "true"),
    ] {
        fake.always("/v1/kv/haplane/state", partial);
        assert_eq!(store.trim_log(1).await.unwrap(), 0);
    }
    let mut received = fake.received().into_iter();
    assert!(received.all(|one| one.request.path.starts_with("/v1/kv/")));
}
