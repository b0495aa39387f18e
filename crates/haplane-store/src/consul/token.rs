//! The token: a secret that never prints, from the settings or from a file that may be rewritten.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;

use crate::error::{StoreError, StoreErrorKind};

/// The longest token file that is read; Consul's own tokens have 36 bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// A text that prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps a text secret.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself, for the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where the token comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenSettings {
    /// No token: Consul's anonymous one.
    #[default]
    None,
    /// Said in the settings.
    Literal(Secret),
    /// The content of a file, blanks and line ends around it removed; read again at each new
    /// connection, at each refusal and when the operator says so.
    File(PathBuf),
}

/// The token as it is now.
#[derive(Debug)]
pub(crate) struct Token {
    settings: TokenSettings,
    current: Mutex<Option<Secret>>,
    changes: AtomicU64,
}

/// Whether reading the token again brought another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reread {
    Same,
    Changed,
}

impl Token {
    pub(crate) fn new(settings: TokenSettings) -> Self {
        let current = match &settings {
            TokenSettings::Literal(secret) => Some(secret.clone()),
            TokenSettings::None | TokenSettings::File(_) => None,
        };
        Self {
            settings,
            current: Mutex::new(current),
            changes: AtomicU64::new(0),
        }
    }

    /// Reads the file again, if there is one. A file that cannot be read now leaves the last token
    /// in use; it is an error only when there never was one.
    pub(crate) fn reread(&self) -> Result<Reread, StoreError> {
        let TokenSettings::File(path) = &self.settings else {
            return Ok(Reread::Same);
        };
        let read = read_file(path);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(secret) if current.as_ref() == Some(&secret) => Ok(Reread::Same),
            Ok(secret) => {
                *current = Some(secret);
                self.changes.fetch_add(1, SeqCst);
                Ok(Reread::Changed)
            }
            Err(error) if current.is_some() => {
                tracing::debug!(%error, "the last token stays in use");
                Ok(Reread::Same)
            }
            Err(error) => Err(error),
        }
    }

    /// How often it became another one.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// The value of `X-Consul-Token`.
    pub(crate) fn header(&self) -> Result<Option<HeaderValue>, StoreError> {
        let Some(secret) = self.get() else {
            return Ok(None);
        };
        let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| {
            let what =
                "the Consul token holds bytes that cannot be sent; a token is one line of text";
            StoreError::new(StoreErrorKind::Config, what)
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// A text of the peer's, without the token should it have sent it back.
    pub(crate) fn redact(&self, text: &str) -> String {
        match self.get() {
            Some(secret) if !secret.expose().is_empty() => text.replace(secret.expose(), "***"),
            _ => text.to_owned(),
        }
    }

    fn get(&self) -> Option<Secret> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn read_file(path: &Path) -> Result<Secret, StoreError> {
    let error = |what: &str| {
        let what = format!("the token file {} {what}", path.display());
        StoreError::new(StoreErrorKind::Config, what)
    };
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|source| error("cannot be read").because(source))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(error("is larger than a token can be"));
    }
    match text.trim() {
        "" => Err(error("is empty")),
        token => Ok(Secret::new(token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let settings = TokenSettings::Literal(Secret::new("hunter2"));
        let token = Token::new(settings.clone());
        let header = token.header().unwrap().unwrap();
        for text in [
            format!("{settings:?}"),
            format!("{token:?}"),
            format!("{header:?}"),
            Secret::new("hunter2").to_string(),
            token.redact("token hunter2 not found"),
        ] {
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert_eq!(header.as_bytes(), b"hunter2");
    }

    #[test]
    fn a_file_is_read_again_and_a_lost_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = Token::new(TokenSettings::File(path.clone()));
        let error = token.reread().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Config);
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(token.reread().unwrap(), Reread::Changed);
        assert_eq!(token.reread().unwrap(), Reread::Same);
        for broken in ["", " \n", &"x".repeat(5000)] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(token.reread().unwrap(), Reread::Same);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token.reread().unwrap(), Reread::Same);
        assert_eq!(token.header().unwrap().unwrap().as_bytes(), b"one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token.reread().unwrap(), Reread::Changed);
        assert_eq!(token.header().unwrap().unwrap().as_bytes(), b"two");
        assert_eq!(token.changes(), 2);
    }
}
