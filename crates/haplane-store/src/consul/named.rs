//! Many keys asked for by name, in few requests.
//!
//! A list leaves out, without a word, what the token may not read (facts 8.2). A transaction of
//! `check-index` tells it: the right to each key is checked before any of them is looked at, and all
//! that are denied are named; else all that are absent, and all that are at another index. It reads
//! only, and needs no more than the right to read. Tried with Consul 1.8.7.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Serialize;

use crate::consul::client::{Call, Client, Target};
use crate::consul::meta::is_first_hand;
use crate::consul::txn::{MAX_OPS, WireError, WireRolledBack};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Named;

/// An index that no key ever has, so that each check fails and says why.
const NO_INDEX: u64 = 0;

#[derive(Serialize)]
struct WireOp<'a> {
    #[serde(rename = "KV")]
    kv: WireCheck<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct WireCheck<'a> {
    verb: &'static str,
    key: &'a str,
    index: u64,
}

impl WireError {
    /// What Consul says of this key. The answer has to name the key that was asked for: one to another
    /// question proves nothing. A denial is believed as it is, since 1.8 names no key there, and to
    /// believe it changes nothing.
    fn named(&self, key: &str) -> Option<Named> {
        let what = self.what.as_str();
        // Consul's own quotation marks and escapes; where they differ from these, it is not understood.
        if what.contains("Permission denied") {
            Some(Named::Denied)
        } else if what.contains(&format!("key {key:?} doesn't exist")) {
            Some(Named::Absent)
        } else if what.contains(&format!("key {key:?}, current modify index ")) {
            Some(Named::Present)
        } else {
            None
        }
    }
}

impl Client {
    /// Asks for each of these keys by its own name.
    pub(crate) async fn kv_named(&self, keys: &[String]) -> Result<Vec<Named>, StoreError> {
        let mut named = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_OPS) {
            named.extend(self.kv_named_at_once(keys).await?);
        }
        Ok(named)
    }

    async fn kv_named_at_once(&self, keys: &[String]) -> Result<Vec<Named>, StoreError> {
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        let Some(mut said) = self.check(&all).await? else {
            return self.kv_named_singly(keys).await;
        };
        if said.len() < keys.len() {
            // Only those that are denied were named; the others can be asked for without them.
            let others: Vec<usize> = (0..keys.len())
                .filter(|place| !said.contains_key(place))
                .collect();
            let rest: Vec<&str> = others
                .iter()
                .filter_map(|&place| all.get(place).copied())
                .collect();
            let Some(of_rest) = self.check(&rest).await? else {
                return self.kv_named_singly(keys).await;
            };
            let of_rest = of_rest
                .into_iter()
                .filter_map(|(place, named)| Some((*others.get(place)?, named)));
            said.extend(of_rest);
        }
        if said.len() == keys.len() {
            Ok(said.into_values().collect())
        } else {
            self.kv_named_singly(keys).await
        }
    }

    /// One transaction. What it says of keys, by their place; `None` when it was not understood, or
    /// not allowed on the way there.
    async fn check(&self, keys: &[&str]) -> Result<Option<BTreeMap<usize, Named>>, StoreError> {
        let ops: Vec<WireOp<'_>> = keys
            .iter()
            .map(|key| WireOp {
                kv: WireCheck {
                    verb: "check-index",
                    key,
                    index: NO_INDEX,
                },
            })
            .collect();
        let body = serde_json::to_vec(&ops).map_err(|source| {
            let what = "keys cannot be asked for by name: they cannot be written as JSON";
            StoreError::new(StoreErrorKind::Config, what).because(source)
        })?;
        let target = Target::new("/v1/txn", "").with("consistent", "");
        let answer = self.send(Call::put(target, body)).await?;
        is_first_hand(&answer.fields)?;
        if answer.status != StatusCode::CONFLICT {
            return Ok(None);
        }
        let Ok(failed) = serde_json::from_slice::<WireRolledBack>(&answer.body) else {
            return Ok(None);
        };
        let said = failed.errors.iter().map(|error| {
            let key = keys.get(error.op_index)?;
            Some((error.op_index, error.named(key)?))
        });
        Ok(said.collect())
    }

    async fn kv_named_singly(&self, keys: &[String]) -> Result<Vec<Named>, StoreError> {
        let mut named = Vec::with_capacity(keys.len());
        for key in keys {
            named.push(Named::of(self.kv_get(key).await)?);
        }
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_consul() {
        let said = |what: &str| {
            let error = WireError {
                op_index: 0,
                what: what.to_owned(),
            };
            error.named("haplane/state/a")
        };
        for (what, want) in [
            ("Permission denied", Some(Named::Denied)),
            (
                "Permission denied: token with AccessorID 'x' lacks permission 'key:read' on \"a\"",
                Some(Named::Denied),
            ),
            (
                "failed to check index, key \"haplane/state/a\" doesn't exist",
                Some(Named::Absent),
            ),
            (
                "failed index check for key \"haplane/state/a\", current modify index 15 != 0",
                Some(Named::Present),
            ),
            ("ACL not found", None),
            ("something else", None),
        ] {
            assert_eq!(said(what), want, "{what}");
        }
        for of_another in ["haplane/state/b", "haplane/state/a2", "x/haplane/state/a"] {
            let absent = format!("failed to check index, key {of_another:?} doesn't exist");
            let present =
                format!("failed index check for key {of_another:?}, current modify index 15 != 0");
            assert_eq!(
                (said(&absent), said(&present)),
                (None, None),
                "{of_another}"
            );
        }
    }
}
