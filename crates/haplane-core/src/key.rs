//! Keys: the names under which desired state is kept.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use haplane_haproxy::RowKey;

/// The longest key, in bytes.
pub const MAX_BYTES: usize = 256;

/// A row key such as `web/gke-cny-web`, or a group key such as `canary`.
///
/// 1 to 256 bytes of printable, non-blank UTF-8 without `,` `#` `"`, not starting with `.` `@` `/`,
/// not ending with `/`. The three characters are the ones that `agent-send` and HAProxy's own lexer
/// give another meaning; `.` and `@` in front are haplane's own words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing at all.
    #[error("a key cannot be empty")]
    Empty,
    /// Longer than [`MAX_BYTES`].
    #[error("a key has at most {MAX_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// Blank, unprintable, or one of `,` `#` `"`.
    #[error("a key cannot hold {0:?}")]
    Character(char),
    /// Starts with `.`, `@` or `/`.
    #[error("a key cannot start with {0:?}")]
    Start(char),
    /// Ends with `/`.
    #[error("a key cannot end with '/'")]
    End,
}

impl Key {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key that speaks for one row.
    pub fn of_row(row: &RowKey) -> Result<Self, KeyError> {
        row.to_string().parse()
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.len() > MAX_BYTES {
            return Err(KeyError::TooLong(text.len()));
        }
        let first = text.chars().next().ok_or(KeyError::Empty)?;
        if let Some(bad) = text.chars().find(|&c| !is_allowed(c)) {
            return Err(KeyError::Character(bad));
        }
        if matches!(first, '.' | '@' | '/') {
            return Err(KeyError::Start(first));
        }
        if text.ends_with('/') {
            return Err(KeyError::End);
        }
        Ok(Self(text.into()))
    }
}

fn is_allowed(c: char) -> bool {
    !is_unprintable(c) && !c.is_whitespace() && !matches!(c, ',' | '#' | '"')
}

/// Characters that move a terminal's cursor, print nothing or reorder what stands beside them. Two
/// keys that look the same must be the same, and no text from elsewhere may bring such a character
/// to a terminal.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
        '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{FEFF}'
        | '\u{200B}'..='\u{200F}'
        | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{FFF9}'..='\u{FFFB}'
        | '\u{E0000}'..='\u{E007F}')
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar() {
        for good in [
            "canary",
            "web/gke-cny-web",
            "zone/us-east1-b",
            "b:1/s.x",
            "a//b",
            "ключ",
            "a/.b",
            "-",
        ] {
            assert!(good.parse::<Key>().is_ok(), "{good:?}");
        }
        for (bad, why) in [
            ("", KeyError::Empty),
            (".haplane", KeyError::Start('.')),
            ("@free", KeyError::Start('@')),
            ("/a", KeyError::Start('/')),
            ("a/", KeyError::End),
            ("a b", KeyError::Character(' ')),
            ("a\u{a0}b", KeyError::Character('\u{a0}')),
            ("a,b", KeyError::Character(',')),
            ("a#b", KeyError::Character('#')),
            ("a\"b", KeyError::Character('"')),
            ("a\u{200b}b", KeyError::Character('\u{200b}')),
            ("a\0", KeyError::Character('\0')),
        ] {
            assert_eq!(bad.parse::<Key>(), Err(why), "{bad:?}");
        }
        assert!("x".repeat(256).parse::<Key>().is_ok());
        assert_eq!("x".repeat(257).parse::<Key>(), Err(KeyError::TooLong(257)));
    }
}
