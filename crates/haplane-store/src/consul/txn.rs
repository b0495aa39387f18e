//! `/v1/txn`: several operations, all of them or none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::consul::client::{Call, Client, Failure, Target, decode, denied};
use crate::consul::token::Reread;
use crate::error::{StoreError, StoreErrorKind};

/// The most operations that Consul takes in one transaction (facts 8.4).
pub(crate) const MAX_OPS: usize = 64;

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Writes a key that is still at this index; 0 is "not there".
    Cas {
        key: String,
        value: String,
        flags: u64,
        index: u64,
    },
    /// Deletes a key that is still at this index.
    DeleteCas { key: String, index: u64 },
    /// Goes through when the key is not there.
    CheckAbsent { key: String },
    /// Deletes a key, whatever it is.
    Delete { key: String },
}

/// A transaction that was not carried out, or of which no answer came.
#[derive(Debug)]
pub(crate) enum TxnError {
    /// These operations, by their place, did not find what they expected.
    Stale(Vec<usize>),
    /// Anything else.
    Failed(Failure),
}

impl From<StoreError> for TxnError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

#[derive(Serialize)]
struct WireOp<'a> {
    #[serde(rename = "KV")]
    kv: WireKv<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct WireKv<'a> {
    verb: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl Op {
    fn key(&self) -> &str {
        match self {
            Self::Cas { key, .. }
            | Self::DeleteCas { key, .. }
            | Self::CheckAbsent { key }
            | Self::Delete { key } => key,
        }
    }

    fn wire(&self) -> WireOp<'_> {
        let (verb, key) = match self {
            Self::Cas { key, .. } => ("cas", key),
            Self::DeleteCas { key, .. } => ("delete-cas", key),
            Self::CheckAbsent { key } => ("check-not-exists", key),
            Self::Delete { key } => ("delete", key),
        };
        let (value, flags, index) = match self {
            Self::Cas {
                value,
                flags,
                index,
                ..
            } => (Some(BASE64.encode(value)), Some(*flags), Some(*index)),
            Self::DeleteCas { index, .. } => (None, None, Some(*index)),
            Self::CheckAbsent { .. } | Self::Delete { .. } => (None, None, None),
        };
        let kv = WireKv {
            verb,
            key,
            value,
            flags,
            index,
        };
        WireOp { kv }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireDone {
    results: Option<Vec<WireResult>>,
}

#[derive(Deserialize)]
struct WireResult {
    #[serde(rename = "KV")]
    kv: Option<WireWritten>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireWritten {
    modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct WireRolledBack {
    pub(super) errors: Vec<WireError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct WireError {
    pub(super) op_index: usize,
    pub(super) what: String,
}

impl Client {
    /// Carries out all of these or none, and gives the largest index of the keys that are set.
    /// Deletions and checks bring none.
    pub(crate) async fn txn(
        &self,
        ops: &[Op],
        doing: &str,
        permission: &str,
    ) -> Result<Option<u64>, TxnError> {
        match self.txn_once(ops, doing, permission).await {
            // A missing permission has the status of a conflict here (facts 12.9), so that the
            // client did not see that it might help to read the token again.
            Err(TxnError::Failed(failure))
                if failure.error.kind == StoreErrorKind::Denied
                    && self.reread_token().await? == Reread::Changed =>
            {
                self.txn_once(ops, doing, permission).await
            }
            other => other,
        }
    }

    async fn txn_once(
        &self,
        ops: &[Op],
        doing: &str,
        permission: &str,
    ) -> Result<Option<u64>, TxnError> {
        debug_assert!(ops.len() <= MAX_OPS, "{} operations", ops.len());
        let wire: Vec<WireOp<'_>> = ops.iter().map(Op::wire).collect();
        let body = serde_json::to_vec(&wire).map_err(|source| {
            let what = format!("this cannot be written as JSON, {doing}");
            StoreError::new(StoreErrorKind::Config, what).because(source)
        })?;
        let call = Call::put(Target::new("/v1/txn", ""), body);
        let answer = self.send(call).await.map_err(TxnError::Failed)?;
        let after_sending = |error| TxnError::Failed(Failure { error, sent: true });
        match answer.status {
            StatusCode::OK => {
                let done: WireDone = decode(&answer, doing).map_err(after_sending)?;
                let written = done.results.unwrap_or_default();
                let indexes = written
                    .iter()
                    .filter_map(|result| Some(result.kv.as_ref()?.modify_index));
                Ok(indexes.max())
            }
            StatusCode::CONFLICT => {
                // An older answer to a denied transaction is plain text.
                match serde_json::from_slice::<WireRolledBack>(&answer.body) {
                    Ok(rolled_back) => Err(rolled_back.read(ops, doing, permission)),
                    Err(_) => Err(word_of(&self.said(&answer), doing, permission)),
                }
            }
            status => Err(TxnError::Failed(Failure {
                error: self.refusal(&answer, doing, permission),
                sent: status.is_server_error(),
            })),
        }
    }
}

impl WireRolledBack {
    fn read(self, ops: &[Op], doing: &str, permission: &str) -> TxnError {
        match self.errors.iter().find(|error| !error.is_stale(ops)) {
            Some(other) => word_of(&other.what, doing, permission),
            None if self.errors.is_empty() => word_of("(no reason)", doing, permission),
            None => TxnError::Stale(self.errors.iter().map(|error| error.op_index).collect()),
        }
    }
}

impl WireError {
    /// Consul's words for an operation that did not find what it expected, which name its key.
    fn is_stale(&self, ops: &[Op]) -> bool {
        ops.get(self.op_index).is_some_and(|op| {
            let key = op.key();
            self.what.contains(&format!(" key {key:?}, index is stale"))
                || self.what == format!("key {key:?} exists")
        })
    }
}

/// What is known after a 409 that does not say of our own keys why: a denial came before anything was
/// done. Anything else may be the answer to another question, and is looked into like a lost one.
fn word_of(what: &str, doing: &str, permission: &str) -> TxnError {
    if what.contains("Permission denied") || what.contains("ACL not found") {
        return denied(doing, what, permission).into();
    }
    let what = format!("Consul's refusal is not one of this transaction, {doing}: {what}");
    TxnError::Failed(Failure {
        error: StoreError::new(StoreErrorKind::Status, what),
        sent: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(errors: &str) -> TxnError {
        let json = format!(r#"{{"Results":null,"Errors":{errors}}}"#);
        let wire: WireRolledBack = serde_json::from_str(&json).unwrap();
        let key = |key: &str| key.to_owned();
        let set = |at: &str| Op::Cas {
            key: key(at),
            value: key("drain"),
            flags: 7,
            index: 3,
        };
        let ops = [
            set("t/1"),
            set("t/0"),
            Op::CheckAbsent { key: key("t/9") },
            Op::DeleteCas {
                key: key("t/8"),
                index: 3,
            },
        ];
        wire.read(&ops, "writing", "a right")
    }

    #[test]
    fn a_conflict_is_told_from_a_missing_permission() {
        let stale = read(
            r#"[{"OpIndex":1,"What":"failed to set key \"t/0\", index is stale"},
                {"OpIndex":2,"What":"key \"t/9\" exists"},
                {"OpIndex":3,"What":"failed to delete key \"t/8\", index is stale"}]"#,
        );
        assert!(matches!(stale, TxnError::Stale(places) if places == [1, 2, 3]));
        for what in ["Permission denied", "rpc error: ACL not found"] {
            let denied = read(&format!(r#"[{{"OpIndex":0,"What":"{what}"}}]"#));
            let TxnError::Failed(failure) = denied else {
                panic!("{denied:?}")
            };
            assert_eq!(failure.error.kind, StoreErrorKind::Denied);
            assert!(failure.error.what.contains("a right"));
            assert!(!failure.sent, "it is known not to have happened");
        }
    }

    #[test]
    fn a_conflict_about_other_keys_says_nothing_of_this_transaction() {
        for errors in [
            r#"[{"OpIndex":0,"What":"lock is already held"}]"#,
            r#"[{"OpIndex":0,"What":"failed index check"}]"#,
            r#"[{"OpIndex":1,"What":"failed to set key \"t/1\", index is stale"}]"#,
            r#"[{"OpIndex":7,"What":"failed to set key \"t/1\", index is stale"}]"#,
            "[]",
        ] {
            let TxnError::Failed(failure) = read(errors) else {
                panic!("{errors}");
            };
            assert_eq!(failure.error.kind, StoreErrorKind::Status, "{errors}");
            assert!(failure.sent, "it may have happened: {errors}");
        }
    }

    #[test]
    fn operations_as_consul_reads_them() {
        let ops = [
            Op::Cas {
                key: "a".into(),
                value: "drain".into(),
                flags: 7,
                index: 0,
            },
            Op::DeleteCas {
                key: "b".into(),
                index: 3,
            },
            Op::CheckAbsent { key: "c".into() },
        ];
        let wire: Vec<_> = ops.iter().map(Op::wire).collect();
        assert_eq!(
            serde_json::to_string(&wire).unwrap(),
            concat!(
                r#"[{"KV":{"Verb":"cas","Key":"a","Value":"ZHJhaW4=","Flags":7,"Index":0}},"#,
                r#"{"KV":{"Verb":"delete-cas","Key":"b","Index":3}},"#,
                r#"{"KV":{"Verb":"check-not-exists","Key":"c"}}]"#
            )
        );
    }
}
