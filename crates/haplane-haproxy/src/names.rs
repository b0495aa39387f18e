//! The names that HAProxy gives to its backends and servers, and the row they make together.

use std::fmt;
use std::str::FromStr;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// HAProxy has no empty names.
    #[error("a name cannot be empty")]
    Empty,
    /// A character outside HAProxy's set.
    #[error(
        "the name {name:?} holds {character:?}; HAProxy allows letters, digits and . : _ - only"
    )]
    Character {
        /// The whole name.
        name: String,
        /// The first character that HAProxy refuses.
        character: char,
    },
    /// A row is `backend/server`.
    #[error("the row {0:?} is not of the form backend/server")]
    Row(String),
}

/// HAProxy's rule for proxy and server names (`invalid_char` in its tools.c; configuration manual
/// 2.3): letters, digits, `-`, `_`, `.` and `:`.
fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    match name.chars().find(|&c| !allowed(c)) {
        Some(character) => Err(NameError::Character {
            name: name.to_owned(),
            character,
        }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(String);

        impl $type {
            /// The name as HAProxy writes it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                check(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a `backend` or `listen` section.
    BackendName
}
name! {
    /// The name of a `server` line within its backend.
    ServerName
}

/// One `backend/server`: the unit that HAProxy reports and that an agent check speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// The backend that the server belongs to.
    pub backend: BackendName,
    /// The server's name in that backend.
    pub server: ServerName,
}

impl FromStr for RowKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (backend, server) = text
            .split_once('/')
            .ok_or_else(|| NameError::Row(text.to_owned()))?;
        Ok(Self {
            backend: backend.parse()?,
            server: server.parse()?,
        })
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.backend, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_backend_and_a_server() {
        let row: RowKey = "web/gke-cny-web:1.a_B".parse().unwrap();
        assert_eq!(row.backend.as_str(), "web");
        assert_eq!(row.to_string(), "web/gke-cny-web:1.a_B");
        for bad in ["web", "web/", "/a", "a/b/c", "a b/c", "é/c"] {
            assert!(bad.parse::<RowKey>().is_err(), "{bad:?}");
        }
    }
}
