//! `/v1/kv`: one key, a whole prefix, or its names.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::StatusCode;
use serde::Deserialize;

use crate::consul::client::{Call, Client, Freshness, Target, decode};
use crate::consul::connection::Answer;
use crate::consul::meta::{Meta, is_first_hand};
use crate::consul::settings::{Consistency, Prefix};
use crate::error::{StoreError, StoreErrorKind};

const ROOT: &str = "/v1/kv/";

/// What a client waits beyond Consul's own wait, which is up to a sixteenth longer than asked
/// (facts 8.1). What is behind it waits in vain as long: a path that was cut without a word.
const SLACK: Duration = Duration::from_secs(5);

/// One pair of the KV store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPair {
    /// The whole key.
    pub key: String,
    /// The value's bytes.
    pub value: Vec<u8>,
    /// A number that the writer chose.
    pub flags: u64,
    /// The index of the last write to it.
    pub modify_index: u64,
}

/// How a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadHow {
    pub(crate) consistency: Consistency,
    /// Wait until the index moves past this one.
    pub(crate) blocking: Option<Blocking>,
}

/// A blocking query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    pub(crate) index: u64,
    pub(crate) wait: Duration,
}

impl ReadHow {
    pub(crate) const CONSISTENT: Self = Self {
        consistency: Consistency::Consistent,
        blocking: None,
    };

    pub(crate) fn call(self, target: Target) -> Call {
        let target = match self.consistency {
            Consistency::Default => target,
            Consistency::Stale => target.with("stale", ""),
            Consistency::Consistent => target.with("consistent", ""),
        };
        let Some(Blocking { index, wait }) = self.blocking else {
            return Call::get(target);
        };
        // 0 would make Consul answer at once.
        let index = index.max(1);
        let target = target
            .with("index", &index.to_string())
            .with("wait", &format!("{}ms", wait.as_millis()));
        Call {
            deadline: wait + wait / 16 + SLACK,
            ..Call::get(target)
        }
    }
}

/// A whole prefix, and how it was read in the end.
pub(crate) struct Listing {
    pub(crate) meta: Meta,
    pub(crate) pairs: Vec<KvPair>,
    pub(crate) how: ReadHow,
}

/// A pair as Consul writes it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct WirePair {
    key: String,
    /// Base64; `null` for an empty value (facts 8.4), never missing.
    #[serde(deserialize_with = "Option::deserialize")]
    value: Option<String>,
    flags: u64,
    modify_index: u64,
}

impl WirePair {
    pub(crate) fn decode(self) -> Result<KvPair, StoreError> {
        let value = BASE64
            .decode(self.value.unwrap_or_default())
            .map_err(|source| {
                let what = format!("Consul's value of {} is not base64", self.key);
                StoreError::new(StoreErrorKind::Undecodable, what).because(source)
            })?;
        Ok(KvPair {
            key: self.key,
            value,
            flags: self.flags,
            modify_index: self.modify_index,
        })
    }
}

impl Client {
    /// Reads one key, consistent. Here, unlike in a list, a missing permission is told from an
    /// absent key (facts 8.2).
    pub(crate) async fn kv_get(&self, key: &str) -> Result<Option<KvPair>, StoreError> {
        let permission = format!("key {key:?} {{ policy = \"read\" }}");
        self.kv_get_with(key, &permission).await
    }

    /// The same, where a missing permission is to be named otherwise.
    pub(crate) async fn kv_get_with(
        &self,
        key: &str,
        permission: &str,
    ) -> Result<Option<KvPair>, StoreError> {
        let doing = format!("reading {key}");
        let call = ReadHow::CONSISTENT.call(Target::new(ROOT, key));
        let answer = self.send(call).await?;
        let (_, mut pairs) = self.found(&answer, &doing, permission)?;
        match pairs.pop() {
            None => Ok(None),
            Some(pair) if pairs.is_empty() && pair.key == key => Ok(Some(pair)),
            Some(_) => {
                let what = format!("Consul answered with other keys, {doing}");
                Err(StoreError::new(StoreErrorKind::Undecodable, what))
            }
        }
    }

    /// Reads everything below a prefix. `how` decides once it is known whether the connection is
    /// new.
    pub(crate) async fn kv_list(
        &self,
        prefix: &Prefix,
        how: impl Fn(Freshness) -> ReadHow,
    ) -> Result<Listing, StoreError> {
        let doing = format!("reading {prefix}");
        let target = Target::new(ROOT, prefix.as_str()).with("recurse", "");
        let (answer, freshness) = self
            .send_with(|freshness| how(freshness).call(target.clone()))
            .await?;
        let (meta, pairs) = self.found(&answer, &doing, &may_read(prefix))?;
        Ok(Listing {
            meta,
            pairs,
            how: how(freshness),
        })
    }

    /// The names of the keys below a prefix, in order.
    pub(crate) async fn kv_names(&self, prefix: &Prefix) -> Result<Vec<String>, StoreError> {
        let doing = format!("listing {prefix}");
        let target = Target::new(ROOT, prefix.as_str()).with("keys", "");
        let answer = self.send(ReadHow::CONSISTENT.call(target)).await?;
        is_first_hand(&answer.fields)?;
        match answer.status {
            StatusCode::OK => decode(&answer, &doing),
            StatusCode::NOT_FOUND => absent(&answer).map(|_| Vec::new()),
            _ => Err(self.refusal(&answer, &doing, &may_read(prefix))),
        }
    }

    fn found(
        &self,
        answer: &Answer,
        doing: &str,
        permission: &str,
    ) -> Result<(Meta, Vec<KvPair>), StoreError> {
        is_first_hand(&answer.fields)?;
        match answer.status {
            StatusCode::OK => {
                let wire: Vec<WirePair> = decode(answer, doing)?;
                let pairs = wire.into_iter().map(WirePair::decode);
                let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
                Ok((Meta::from_fields(&answer.fields)?, pairs))
            }
            StatusCode::NOT_FOUND => Ok((absent(answer)?, Vec::new())),
            _ => Err(self.refusal(answer, doing, permission)),
        }
    }
}

/// Consul's own 404 is empty and carries an index; another server's is neither.
fn absent(answer: &Answer) -> Result<Meta, StoreError> {
    if !answer.body.is_empty() {
        let what = "this is not Consul's KV store: its 404 has a text; check the address";
        return Err(StoreError::new(StoreErrorKind::Undecodable, what));
    }
    Meta::from_fields(&answer.fields)
}

/// What a token needs to read a prefix, in Consul's own words.
pub(crate) fn may_read(prefix: &Prefix) -> String {
    format!(
        "key_prefix \"{prefix}\" {{ policy = \"read\" }} (or \"list\", where Consul has \
         enable_key_list_policy)"
    )
}

/// What a token needs to write a prefix, in Consul's own words.
pub(crate) fn may_write(prefix: &Prefix) -> String {
    format!("key_prefix \"{prefix}\" {{ policy = \"write\" }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(json: &str) -> Result<KvPair, String> {
        let pair: WirePair = serde_json::from_str(json).map_err(|e| e.to_string())?;
        pair.decode().map_err(|e| e.to_string())
    }

    #[test]
    fn pairs_are_read_whole_or_not_at_all() {
        let good = r#"{"LockIndex":0,"Key":"a","Flags":7,"Value":"ZHJhaW4=","CreateIndex":1,"ModifyIndex":2,"New":[]}"#;
        let pair = wire(good).unwrap();
        assert_eq!(
            (pair.value.as_slice(), pair.flags, pair.modify_index),
            (&b"drain"[..], 7, 2)
        );
        let empty = wire(r#"{"Key":"a","Flags":0,"Value":null,"ModifyIndex":2}"#).unwrap();
        assert!(empty.value.is_empty());
        for bad in [
            r#"{"Key":"a","Flags":0,"ModifyIndex":2}"#,
            r#"{"Key":"a","Flags":0,"Value":"%%","ModifyIndex":2}"#,
            r#"{"Key":"a","Flags":0,"Value":"ZHJhaW4","ModifyIndex":2}"#,
            r#"{"Key":"a","Flags":-1,"Value":null,"ModifyIndex":2}"#,
            r#"{"Key":"a","Flags":0,"Value":7,"ModifyIndex":2}"#,
            r#"{"Flags":0,"Value":null,"ModifyIndex":2}"#,
        ] {
            assert!(wire(bad).is_err(), "{bad}");
        }
    }
}
