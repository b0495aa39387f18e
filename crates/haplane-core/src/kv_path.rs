//! Keys as paths of a store, and back.
//!
//! HAProxy allows names that some Consul versions refuse as KV keys: the strictest accepts only
//! `[A-Za-z0-9,_./-]`, no `..`, and no key that ends like a web file; every version redirects `//` (facts
//! 8.4). The usual characters stay as they are, so that `consul kv put` is the break-glass tool. Everything
//! else is written as `,XX`, two upper-case hexadecimal digits a byte: a key cannot hold a comma, and Consul
//! allows one, so the encoding can be undone.

use std::fmt::Write as _;

use crate::key::{Key, KeyError};

const ESCAPE: char = ',';

/// Endings that web applications use; some Consul versions refuse keys that have them.
const WEB_SUFFIXES: [&str; 33] = [
    "asp", "aspx", "bat", "bmp", "cgi", "css", "csv", "dll", "eot", "exe", "gif", "gz", "htm",
    "html", "ico", "ini", "jpeg", "jpg", "js", "json", "jsp", "map", "md", "pdf", "php", "png",
    "py", "sh", "svg", "txt", "xml", "yaml", "yml",
];

/// Why a path does not stand for a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A comma that is not followed by two hexadecimal digits, or bytes that are not UTF-8.
    #[error("not an escape of the form ,XX")]
    Escape,
    /// What it decodes to is not a key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The path of a key, below the state prefix.
pub fn encode(key: &Key) -> String {
    let text = key.as_str();
    let web_dot = web_suffix_dot(text);
    let mut path = String::with_capacity(text.len());
    let mut previous = '/';
    for (at, c) in text.char_indices() {
        let plain = match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => true,
            // No `//`; no segment that starts with a dot (so no `.` and `..`), no `..` within one.
            '/' => previous != '/',
            '.' => !matches!(previous, '/' | '.') && Some(at) != web_dot,
            _ => false,
        };
        if plain {
            path.push(c);
        } else {
            escape(c, &mut path);
        }
        previous = c;
    }
    path
}

/// Every path at which a store may have a key: the one that [`encode`] makes, and the key's own text, which
/// a person may have written. A text with `//`, or with a part `.` or `..`, is not accepted by any store as
/// it is. Needless escapes, and those in lower-case digits, are understood in a list but not looked for:
/// nobody writes them.
pub fn paths(key: &Key) -> Vec<String> {
    let encoded = encode(key);
    let text = key.as_str();
    let may_be_raw =
        !text.contains("//") && text.split('/').all(|part| !matches!(part, "." | ".."));
    if encoded == text || !may_be_raw {
        vec![encoded]
    } else {
        vec![encoded, text.to_owned()]
    }
}

fn escape(c: char, path: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a String cannot fail.
        let _ = write!(path, "{ESCAPE}{byte:02X}");
    }
}

fn web_suffix_dot(text: &str) -> Option<usize> {
    let (stem, suffix) = text.rsplit_once('.')?;
    let is_web = WEB_SUFFIXES
        .iter()
        .any(|web| web.eq_ignore_ascii_case(suffix));
    is_web.then_some(stem.len())
}

/// The key that a path stands for. This reads more than [`encode`] writes, so that a key written by hand
/// without escapes is understood wherever the store accepts it.
pub fn decode(path: &str) -> Result<Key, PathError> {
    if !path.contains(ESCAPE) {
        return Ok(path.parse()?);
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if char::from(byte) != ESCAPE {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2).ok_or(PathError::Escape)?;
        bytes.push(hex_byte(digits).ok_or(PathError::Escape)?);
        rest = tail;
    }
    let text = String::from_utf8(bytes).map_err(|_| PathError::Escape)?;
    Ok(text.parse()?)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    // `from_str_radix` alone would take a sign.
    let text = std::str::from_utf8(digits).ok()?;
    let all_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    all_hex.then(|| u8::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_names_stay_as_they_are() {
        for text in [
            "canary",
            "web/gke-cny-web",
            "zone/us-east1-b",
            "a.b_C-9/x.y.example",
        ] {
            assert_eq!(encode(&text.parse().unwrap()), text);
        }
    }

    #[test]
    fn what_a_store_would_refuse_is_escaped() {
        for (text, path) in [
            ("web/a:1", "web/a,3A1"),
            ("a//b", "a/,2Fb"),
            ("a/../b", "a/,2E,2E/b"),
            ("a..b", "a.,2Eb"),
            ("a/.b", "a/,2Eb"),
            ("web/app.json", "web/app,2Ejson"),
            ("web/app.JS", "web/app,2EJS"),
            ("web/app.json.x", "web/app.json.x"),
            ("é", ",C3,A9"),
            ("a%2Fb", "a,252Fb"),
        ] {
            assert_eq!(encode(&text.parse().unwrap()), path, "{text:?}");
        }
    }

    #[test]
    fn a_key_may_be_where_a_person_wrote_it() {
        for (text, all) in [
            ("canary", &["canary"][..]),
            ("web/a:1", &["web/a,3A1", "web/a:1"]),
            ("web/app.json", &["web/app,2Ejson", "web/app.json"]),
            ("a//b", &["a/,2Fb"]),
            ("a/../b", &["a/,2E,2E/b"]),
        ] {
            let key: Key = text.parse().unwrap();
            assert_eq!(paths(&key), all);
            for path in all {
                assert_eq!(decode(path).as_ref(), Ok(&key));
            }
        }
    }

    #[test]
    fn broken_escapes_are_no_key() {
        for path in [
            "a,", "a,4", "a,4g", "a,+4", "a,C3", "a,2", ",2Ea", "a,20b", ",40free", "folder/",
        ] {
            assert!(decode(path).is_err(), "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(text in any::<String>()) {
            if let Ok(key) = text.parse::<Key>() {
                let path = encode(&key);
                prop_assert!(path.bytes().all(|b| b.is_ascii_alphanumeric() || b",_./-".contains(&b)), "{path}");
                prop_assert!(!path.contains("//") && !path.contains("..") && !path.starts_with('/'));
                prop_assert_eq!(decode(&path).unwrap(), key);
            }
        }

        #[test]
        fn names_of_haproxy_survive(text in "[a-zA-Z0-9.:_-]{1,20}/[a-zA-Z0-9.:_-]{1,20}") {
            if let Ok(key) = text.parse::<Key>() {
                prop_assert_eq!(decode(&encode(&key)).unwrap(), key);
            }
        }

        #[test]
        fn decode_never_panics(path in any::<String>()) {
            let _ = decode(&path);
        }
    }
}
