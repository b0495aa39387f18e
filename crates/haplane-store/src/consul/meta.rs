//! What Consul says about an answer, in its head: read strictly, since a read is judged by it.

use std::time::Duration;

use haplane_core::guard::Extent;
use http::HeaderMap;

use crate::error::{StoreError, StoreErrorKind};

const FILTERED: &str = "x-consul-results-filtered-by-acls";

/// The head of an answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// `X-Consul-Index`.
    pub index: u64,
    /// `X-Consul-KnownLeader`.
    pub known_leader: bool,
    /// `X-Consul-LastContact`: how old the answering server's view may be.
    pub last_contact: Duration,
    /// `X-Consul-Results-Filtered-By-ACLs`, which versions after 1.8 send: something was left out
    /// that the token may not read.
    pub extent: Extent,
}

impl Meta {
    pub(crate) fn from_fields(fields: &HeaderMap) -> Result<Self, StoreError> {
        let known_leader = match one(fields, "x-consul-knownleader")? {
            "true" => true,
            "false" => false,
            other => return Err(wrong("X-Consul-KnownLeader", &format!("is {other:?}"))),
        };
        Ok(Self {
            index: number(fields, "x-consul-index")?,
            known_leader,
            last_contact: Duration::from_millis(number(fields, "x-consul-lastcontact")?),
            extent: extent(fields),
        })
    }
}

/// Consul answers reads itself, each time anew. An answer that a cache on the way kept is what was
/// true once.
pub(crate) fn is_first_hand(fields: &HeaderMap) -> Result<(), StoreError> {
    let says = |name: &str, is_kept: fn(&str) -> bool| {
        let mut values = fields.get_all(name).iter();
        values.any(|value| value.to_str().is_ok_and(is_kept))
    };
    let has_age = says("age", |age| age.trim() != "0");
    let is_hit = |word: &str| word.to_ascii_lowercase().contains("hit");
    if has_age || says("x-cache", is_hit) || says("cache-status", is_hit) {
        let what = "the answer was kept by a cache on the way to Consul: reach Consul without one";
        return Err(StoreError::new(StoreErrorKind::Undecodable, what));
    }
    Ok(())
}

fn extent(fields: &HeaderMap) -> Extent {
    let mut said = fields.get_all(FILTERED).iter();
    if said.any(|said| said.as_bytes().eq_ignore_ascii_case(b"true")) {
        Extent::Filtered
    } else {
        Extent::Whole
    }
}

fn one<'a>(fields: &'a HeaderMap, name: &str) -> Result<&'a str, StoreError> {
    let mut values = fields.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(wrong(name, "is missing: is this Consul?")),
        (Some(_), Some(_)) => Err(wrong(name, "is there twice")),
        (Some(value), None) => value.to_str().map_err(|_| wrong(name, "is not text")),
    }
}

fn number(fields: &HeaderMap, name: &str) -> Result<u64, StoreError> {
    let text = one(fields, name)?;
    // `parse` alone would take a sign.
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| wrong(name, &format!("is {text:?}, not a number")))
}

fn wrong(name: &str, how: &str) -> StoreError {
    let what = format!("the answer is not one of Consul's: its field {name} {how}");
    StoreError::new(StoreErrorKind::Undecodable, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    const GOOD: [(&str, &str); 3] = [
        ("x-consul-index", "18446744073709551615"),
        ("x-consul-knownleader", "true"),
        ("x-consul-lastcontact", "12"),
    ];

    #[test]
    fn all_three_are_read() {
        let meta = Meta::from_fields(&fields(&GOOD)).unwrap();
        assert_eq!((meta.index, meta.known_leader), (u64::MAX, true));
        assert_eq!(meta.last_contact, Duration::from_millis(12));
        assert_eq!(meta.extent, Extent::Whole);
        let mut filtered = fields(&GOOD);
        filtered.append(FILTERED, "true".parse().unwrap());
        let meta = Meta::from_fields(&filtered).unwrap();
        assert_eq!(meta.extent, Extent::Filtered);
    }

    #[test]
    fn whatever_is_missing_or_odd_is_no_answer() {
        for (name, bad) in [
            ("x-consul-index", Some("")),
            ("x-consul-index", Some("-1")),
            ("x-consul-index", Some("+1")),
            ("x-consul-index", Some("1.0")),
            ("x-consul-index", Some("18446744073709551616")),
            ("x-consul-index", None),
            ("x-consul-knownleader", Some("yes")),
            ("x-consul-knownleader", None),
            ("x-consul-lastcontact", Some("soon")),
            ("x-consul-lastcontact", None),
        ] {
            let mut changed = fields(&GOOD);
            changed.remove(name);
            if let Some(bad) = bad {
                changed.append(name, bad.parse().unwrap());
            }
            let error = Meta::from_fields(&changed).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Undecodable, "{name} {bad:?}");
            assert!(error.what.to_ascii_lowercase().contains(name), "{error}");
        }
        let mut twice = fields(&GOOD);
        twice.append("x-consul-index", "7".parse().unwrap());
        assert!(Meta::from_fields(&twice).is_err());
    }

    #[test]
    fn an_answer_from_a_cache_is_told() {
        let kept = |pairs: &[(&'static str, &str)]| is_first_hand(&fields(pairs)).is_err();
        assert!(!kept(&GOOD));
        assert!(!kept(&[("age", "0"), ("x-cache", "MISS from proxy")]));
        for pair in [
            ("age", "7"),
            ("age", "00"),
            ("x-cache", "HIT"),
            ("x-cache", "Hit from cloudfront"),
            ("x-cache", "TCP_MEM_HIT"),
            ("cache-status", "edge; hit; ttl=30"),
        ] {
            assert!(kept(&[pair]), "{pair:?}");
        }
    }
}
