//! The honest part of the fake: keys with Consul's indexes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::reply::Answer;
use crate::http::Request;

/// Keys, and when each name was last written or deleted.
#[derive(Debug)]
pub(super) struct Keys {
    index: u64,
    entries: BTreeMap<String, Entry>,
    /// The index of the last change of every name that ever was: what a prefix's index is made of.
    touched: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    flags: u64,
    created: u64,
    modified: u64,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            index: 1,
            entries: BTreeMap::new(),
            touched: BTreeMap::new(),
        }
    }
}

impl Keys {
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Writes a key. The same value and flags again change nothing, as in Consul 1.8.
    pub(super) fn put(&mut self, key: &str, value: &[u8], flags: u64) {
        let known = self.entries.get(key);
        if known.is_some_and(|entry| entry.value == value && entry.flags == flags) {
            return;
        }
        let created = known.map(|entry| entry.created);
        self.index += 1;
        let entry = Entry {
            value: value.to_owned(),
            flags,
            created: created.unwrap_or(self.index),
            modified: self.index,
        };
        self.entries.insert(key.to_owned(), entry);
        self.touched.insert(key.to_owned(), self.index);
    }

    pub(super) fn delete(&mut self, key: &str) {
        if self.entries.remove(key).is_some() {
            self.index += 1;
            self.touched.insert(key.to_owned(), self.index);
        }
    }

    /// Whether Consul would hold this request now.
    pub(super) fn holds(&self, request: &Request) -> bool {
        let Some(key) = read_key(request) else {
            return false;
        };
        let known: u64 = request
            .query("index")
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        known > 0 && self.index_of(key, request) <= known
    }

    /// The answer to a request: of keys for `/v1/kv/`, 200 `true` for any write elsewhere.
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        let Some(key) = request
            .path_only()
            .strip_prefix("/v1/kv/")
            .map(str::to_owned)
        else {
            return match (request.method.as_str(), request.path_only()) {
                ("GET", "/v1/status/leader") => Answer::new(200, b"\"127.0.0.1:8300\"".to_vec()),
                ("GET", _) => Answer::new(404, Vec::new()),
                _ => Answer::new(200, b"true".to_vec()),
            };
        };
        match request.method.as_str() {
            "GET" => self.read(&key, request),
            "PUT" => self.write(request, &key, |keys| {
                let flags = request
                    .query("flags")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or_default();
                keys.put(&key, &request.body, flags);
            }),
            "DELETE" => self.write(request, &key, |keys| {
                let doomed: Vec<_> = keys
                    .matching(&key, request)
                    .map(|(name, _)| name.clone())
                    .collect();
                for name in doomed {
                    keys.delete(&name);
                }
            }),
            other => panic!("the fake Consul knows no {other}"),
        }
    }

    fn read(&self, key: &str, request: &Request) -> Answer {
        let found: Vec<Value> = self
            .matching(key, request)
            .map(|(name, entry)| entry.json(name))
            .collect();
        let answer = if found.is_empty() {
            Answer::new(404, Vec::new())
        } else {
            Answer::new(200, Value::from(found).to_string().into_bytes())
        };
        answer
            .header("Content-Type", "application/json")
            .header("X-Consul-Index", &self.index_of(key, request).to_string())
            .header("X-Consul-KnownLeader", "true")
            .header("X-Consul-LastContact", "0")
    }

    /// Check-and-set first: its failure is 200 `false`.
    fn write(&mut self, request: &Request, key: &str, change: impl FnOnce(&mut Self)) -> Answer {
        let present = self.entries.get(key).map_or(0, |entry| entry.modified);
        let expected = request
            .query("cas")
            .map(|text| text.parse::<u64>().expect("cas=NUMBER"));
        if expected.is_some_and(|expected| expected != present) {
            return Answer::new(200, b"false".to_vec());
        }
        change(self);
        Answer::new(200, b"true".to_vec())
    }

    fn matching(&self, key: &str, request: &Request) -> impl Iterator<Item = (&String, &Entry)> {
        let covers = covers(key, request);
        self.entries.iter().filter(move |(name, _)| covers(name))
    }

    fn index_of(&self, key: &str, request: &Request) -> u64 {
        let covers = covers(key, request);
        self.touched
            .iter()
            .filter(|(name, _)| covers(name))
            .map(|(_, &index)| index)
            .max()
            .unwrap_or(1)
    }
}

impl Entry {
    fn json(&self, name: &str) -> Value {
        let value = (!self.value.is_empty()).then(|| STANDARD.encode(&self.value));
        json!({
            "LockIndex": 0, "Key": name, "Flags": self.flags, "Value": value,
            "CreateIndex": self.created, "ModifyIndex": self.modified,
        })
    }
}

fn read_key(request: &Request) -> Option<&str> {
    if request.method == "GET" {
        request.path_only().strip_prefix("/v1/kv/")
    } else {
        None
    }
}

/// Which names a request is about: one, or with `recurse` all that start with it.
fn covers(key: &str, request: &Request) -> impl Fn(&str) -> bool + use<> {
    let (key, prefix) = (key.to_owned(), request.query("recurse").is_some());
    move |name| {
        if prefix {
            name.starts_with(&key)
        } else {
            name == key
        }
    }
}
