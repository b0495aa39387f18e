//! Several keys read in one request: a transaction of `get`.
//!
//! Consul leaves out of its results, without a word, what the token may not read, and refuses the
//! whole transaction for one key that is not there. So what did not come is asked for by its own name.
//! Tried with Consul 1.8.7.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::consul::client::{Call, Client, Target, decode};
use crate::consul::kv::{KvPair, WirePair};
use crate::consul::meta::is_first_hand;
use crate::consul::txn::MAX_OPS;
use crate::error::{StoreError, StoreErrorKind};

#[derive(Serialize)]
struct WireOp<'a> {
    #[serde(rename = "KV")]
    kv: WireGet<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct WireGet<'a> {
    verb: &'static str,
    key: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireFound {
    results: Option<Vec<WireResult>>,
}

#[derive(Deserialize)]
struct WireResult {
    #[serde(rename = "KV")]
    kv: WirePair,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireFailed {
    errors: Vec<WireError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireError {
    op_index: usize,
    what: String,
}

/// What one transaction brought.
enum Brought {
    /// The keys that are there and that we may read.
    Pairs(Vec<KvPair>),
    /// Nothing, because these are not there.
    NotThere(BTreeSet<String>),
    /// Nothing that is understood.
    Nothing,
}

impl Client {
    /// Reads these keys, consistent, in their order. One that is not there is left out; one that may
    /// not be read is an error that names `permission`.
    pub(crate) async fn kv_get_several(
        &self,
        keys: &[String],
        permission: &str,
    ) -> Result<Vec<KvPair>, StoreError> {
        let mut pairs = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_OPS) {
            pairs.extend(self.kv_get_at_once(keys, permission).await?);
        }
        Ok(pairs)
    }

    async fn kv_get_at_once(
        &self,
        keys: &[String],
        permission: &str,
    ) -> Result<Vec<KvPair>, StoreError> {
        let mut left: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut brought = self.get_in_one(&left).await?;
        if let Brought::NotThere(absent) = &brought {
            left.retain(|key| !absent.contains(*key));
            brought = self.get_in_one(&left).await?;
        }
        let pairs = match brought {
            Brought::Pairs(pairs) => pairs,
            Brought::NotThere(_) | Brought::Nothing => Vec::new(),
        };
        let mut found: BTreeMap<String, KvPair> = pairs
            .into_iter()
            .map(|pair| (pair.key.clone(), pair))
            .collect();
        let mut in_order = Vec::with_capacity(left.len());
        for key in left {
            match found.remove(key) {
                Some(pair) => in_order.push(pair),
                None => in_order.extend(self.kv_get_with(key, permission).await?),
            }
        }
        Ok(in_order)
    }

    async fn get_in_one(&self, keys: &[&str]) -> Result<Brought, StoreError> {
        if keys.is_empty() {
            return Ok(Brought::Pairs(Vec::new()));
        }
        let ops: Vec<WireOp<'_>> = keys
            .iter()
            .map(|key| WireOp {
                kv: WireGet { verb: "get", key },
            })
            .collect();
        let body = serde_json::to_vec(&ops).map_err(|source| {
            let what = "keys cannot be asked for: they cannot be written as JSON";
            StoreError::new(StoreErrorKind::Config, what).because(source)
        })?;
        let target = Target::new("/v1/txn", "").with("consistent", "");
        let answer = self.send(Call::put(target, body)).await?;
        is_first_hand(&answer.fields)?;
        match answer.status {
            StatusCode::OK => {
                let found: WireFound = decode(&answer, "reading several keys at once")?;
                let found = found.results.unwrap_or_default().into_iter();
                let pairs: Result<_, _> = found.map(|one| one.kv.decode()).collect();
                Ok(Brought::Pairs(pairs?))
            }
            StatusCode::CONFLICT => Ok(not_there(&answer.body, keys)),
            _ => Ok(Brought::Nothing),
        }
    }
}

/// The keys of which a refusal says, by their names, that they are not there.
fn not_there(body: &[u8], keys: &[&str]) -> Brought {
    let Ok(failed) = serde_json::from_slice::<WireFailed>(body) else {
        return Brought::Nothing;
    };
    let absent = failed.errors.iter().map(|error| {
        let key = keys.get(error.op_index)?;
        (error.what == format!("key {key:?} doesn't exist")).then(|| (*key).to_owned())
    });
    match absent.collect::<Option<BTreeSet<String>>>() {
        Some(absent) if !absent.is_empty() => Brought::NotThere(absent),
        _ => Brought::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_names_the_key_says_that_it_is_not_there() {
        let absent = |body: &str| match not_there(body.as_bytes(), &["log/a", "log/b"]) {
            Brought::NotThere(absent) => absent.into_iter().collect(),
            _ => Vec::new(),
        };
        let one =
            r#"{"Results":null,"Errors":[{"OpIndex":1,"What":"key \"log/b\" doesn't exist"}]}"#;
        assert_eq!(absent(one), ["log/b"]);
        for other in [
            r#"{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"log/b\" doesn't exist"}]}"#,
            r#"{"Results":null,"Errors":[{"OpIndex":7,"What":"key \"log/b\" doesn't exist"}]}"#,
            r#"{"Results":null,"Errors":[{"OpIndex":1,"What":"Permission denied"}]}"#,
            r#"{"Results":null,"Errors":[]}"#,
            "Permission denied",
        ] {
            assert!(absent(other).is_empty(), "{other}");
        }
    }
}
