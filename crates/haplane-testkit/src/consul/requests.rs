//! The kit's own requests to a Consul: keys, services, snapshots.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Access, Consul, MANAGEMENT_TOKEN};
use crate::http::{Request, Response};

/// A key as Consul has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The whole key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Its flags.
    pub flags: u64,
    /// The index at which it was last written.
    pub modify_index: u64,
}

impl Consul {
    /// Sends any request, with the management token if this Consul has ACL.
    pub async fn request(&self, request: Request) -> io::Result<Response> {
        let request = if self.options.access == Access::Open
            || request.headers.get("X-Consul-Token").is_some()
        {
            request
        } else {
            request.header("X-Consul-Token", MANAGEMENT_TOKEN)
        };
        request.send(&self.target()).await
    }

    /// Sends a request that must be answered with 200.
    pub(super) async fn must(&self, request: Request) -> Response {
        let what = format!("{} {}", request.method, request.path);
        let answer = self
            .request(request)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        answer
    }

    /// Writes a key.
    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        self.put_with_flags(key, value, 0).await;
    }

    /// Writes a key with flags.
    pub async fn put_with_flags(&self, key: &str, value: impl Into<Vec<u8>>, flags: u64) {
        let answer = self
            .must(Request::put(&format!("/v1/kv/{key}?flags={flags}"), value))
            .await;
        assert_eq!(answer.text().trim(), "true", "PUT of {key}");
    }

    /// Writes many keys, 64 in each transaction.
    pub async fn put_many(&self, keys: impl IntoIterator<Item = (String, String)>) {
        let operations: Vec<_> = keys
            .into_iter()
            .map(|(key, value)| serde_json::json!({"KV": {"Verb": "set", "Key": key, "Value": STANDARD.encode(value)}}))
            .collect();
        for chunk in operations.chunks(64) {
            self.must(Request::put("/v1/txn", Value::from(chunk).to_string()))
                .await;
        }
    }

    /// Deletes a key.
    pub async fn delete(&self, key: &str) {
        self.must(Request::new("DELETE", &format!("/v1/kv/{key}")))
            .await;
    }

    /// Deletes every key whose name starts with `prefix`.
    pub async fn delete_prefix(&self, prefix: &str) {
        self.must(Request::new("DELETE", &format!("/v1/kv/{prefix}?recurse")))
            .await;
    }

    /// Reads a key, consistently.
    pub async fn get(&self, key: &str) -> Option<Entry> {
        self.entries(&format!("/v1/kv/{key}?consistent"))
            .await
            .pop()
    }

    /// Reads all keys whose name starts with `prefix`, consistently.
    pub async fn list(&self, prefix: &str) -> Vec<Entry> {
        self.entries(&format!("/v1/kv/{prefix}?recurse&consistent"))
            .await
    }

    async fn entries(&self, path: &str) -> Vec<Entry> {
        let answer = self
            .request(Request::get(path))
            .await
            .unwrap_or_else(|error| panic!("GET {path}: {error}"));
        if answer.status == 404 {
            return Vec::new();
        }
        answer
            .ok()
            .json()
            .as_array()
            .expect("a list of keys")
            .iter()
            .map(entry)
            .collect()
    }

    /// The whole state, as Consul saves it.
    pub async fn snapshot(&self) -> Vec<u8> {
        self.must(Request::get("/v1/snapshot")).await.body
    }

    /// Puts a saved state in place of the present one.
    pub async fn restore(&self, snapshot: Vec<u8>) {
        self.must(Request::put("/v1/snapshot", snapshot)).await;
    }

    /// Registers a service with the agent; `definition` as in Consul's HTTP interface.
    pub async fn register(&self, definition: &Value) {
        self.must(Request::put(
            "/v1/agent/service/register",
            definition.to_string(),
        ))
        .await;
    }

    /// Removes a service, by its id.
    pub async fn deregister(&self, id: &str) {
        self.must(Request::put(
            &format!("/v1/agent/service/deregister/{id}"),
            "",
        ))
        .await;
    }
}

fn entry(json: &Value) -> Entry {
    let number = |field: &str| json[field].as_u64().unwrap();
    Entry {
        key: json["Key"].as_str().unwrap().to_owned(),
        value: json["Value"]
            .as_str()
            .map(|text| STANDARD.decode(text).unwrap())
            .unwrap_or_default(),
        flags: number("Flags"),
        modify_index: number("ModifyIndex"),
    }
}
