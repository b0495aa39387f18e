//! Whichever store the configuration names.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use haplane_core::guard::{Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::snapshot::Pair;

use crate::consul::address::AddressError;
use crate::consul::{Address, Client, ConsulSettings, ConsulStore, Prefix};
use crate::dir::{DirStore, Held};
use crate::error::{CommitError, StoreError};
use crate::store::{Committed, Named, Store, Transaction};

/// What `store = "…"` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// `consul`, or `consul:` and an address, which then wins over `CONSUL_HTTP_ADDR`.
    Consul(Option<Address>),
    /// `dir:` and an absolute path.
    Dir(PathBuf),
}

/// Why a text is not a location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Neither `consul` nor `dir:`.
    #[error(
        "{0:?} is no store; write consul, consul:http://HOST:PORT, consul:https://HOST:PORT, \
         consul:unix:///PATH or dir:/PATH"
    )]
    Kind(String),
    /// `consul://`, as if `consul` were a scheme.
    #[error("consul:// is no store; write consul:http:{0}")]
    Slashes(String),
    /// `consul:` and something that is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// `dir:` with something that is not an absolute path.
    #[error("{0:?} is not an absolute path of a folder: write dir:/var/lib/haplane/state")]
    Path(String),
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        match text.split_once(':') {
            None if text == "consul" => Ok(Self::Consul(None)),
            Some(("consul", slashes)) if slashes.starts_with("//") => {
                // Only what was understood is repeated, and that holds no secret.
                let address: Address = format!("http:{slashes}").parse()?;
                let told = address.to_string();
                Err(LocationError::Slashes(
                    told.trim_start_matches("http:").to_owned(),
                ))
            }
            Some(("consul", address)) => Ok(Self::Consul(Some(address.parse()?))),
            Some(("dir", path)) if path.starts_with('/') && !path.contains('\0') => {
                Ok(Self::Dir(path.into()))
            }
            Some(("dir", path)) => Err(LocationError::Path(path.to_owned())),
            _ => Err(LocationError::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consul(None) => f.write_str("consul"),
            Self::Consul(Some(address)) => write!(f, "consul:{address}"),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

/// All that is set about the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Which one, and where.
    pub location: Location,
    /// How to reach Consul; an address in `location` wins over the one in here.
    pub consul: ConsulSettings,
    /// The state prefix in Consul.
    pub state_prefix: Prefix,
    /// The log prefix in Consul.
    pub log_prefix: Prefix,
}

impl StoreSettings {
    /// The Consul that is meant, when it is one; also for services, whatever the store is.
    pub fn consul(&self) -> ConsulSettings {
        let mut consul = self.consul.clone();
        if let Location::Consul(Some(address)) = &self.location {
            consul.address = address.clone();
        }
        consul
    }
}

/// Consul or a directory.
pub enum AnyStore {
    /// Consul's KV store.
    Consul(Box<ConsulStore>),
    /// A folder.
    Dir(DirStore),
}

/// Which one and where, but not what opens it.
impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyStore({} {})", self.kind(), self.address())
    }
}

impl AnyStore {
    /// Opens the store that the settings name. Nothing is read or dialled yet.
    pub fn open(settings: &StoreSettings) -> Result<Self, StoreError> {
        match &settings.location {
            Location::Dir(path) => Ok(Self::Dir(DirStore::new(path.clone()))),
            Location::Consul(_) => {
                let (state, log) = (settings.state_prefix.clone(), settings.log_prefix.clone());
                let store = ConsulStore::new(settings.consul(), state, log)?;
                Ok(Self::Consul(Box::new(store)))
            }
        }
    }

    /// The client of the Consul that the store is in, where it is in one.
    pub fn consul(&self) -> Option<&Client> {
        match self {
            Self::Consul(store) => Some(store.client()),
            Self::Dir(_) => None,
        }
    }

    /// `consul` or `dir`, as `/v1/node` says it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Consul(_) => "consul",
            Self::Dir(_) => "dir",
        }
    }

    /// Where it is, for people: an address or a path.
    pub fn address(&self) -> String {
        match self {
            Self::Consul(store) => store.client().settings().address.to_string(),
            Self::Dir(store) => store.root().display().to_string(),
        }
    }

    /// Keys of a folder that keep their last value though it does not say so.
    pub fn held(&self) -> Option<Held> {
        match self {
            Self::Consul(_) => None,
            Self::Dir(store) => store.held(),
        }
    }

    /// Reads token and TLS files again (SIGHUP).
    pub fn reload(&self) {
        match self {
            Self::Consul(store) => store.reload(),
            Self::Dir(_) => {}
        }
    }
}

impl Store for AnyStore {
    async fn read(&self, mode: Mode, wait: Duration) -> Result<Reading, StoreError> {
        match self {
            Self::Consul(store) => store.read(mode, wait).await,
            Self::Dir(store) => store.read(mode, wait).await,
        }
    }

    async fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        match self {
            Self::Consul(store) => store.read_path(path).await,
            Self::Dir(store) => store.read_path(path).await,
        }
    }

    async fn read_names(&self, paths: &[String]) -> Result<Vec<Named>, StoreError> {
        match self {
            Self::Consul(store) => store.read_names(paths).await,
            Self::Dir(store) => store.read_names(paths).await,
        }
    }

    fn hides_what_it_denies(&self) -> bool {
        match self {
            Self::Consul(store) => store.hides_what_it_denies(),
            Self::Dir(store) => store.hides_what_it_denies(),
        }
    }

    fn rights(&self) -> u64 {
        match self {
            Self::Consul(store) => store.rights(),
            Self::Dir(store) => store.rights(),
        }
    }

    async fn commit(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        match self {
            Self::Consul(store) => store.commit(transaction).await,
            Self::Dir(store) => store.commit(transaction).await,
        }
    }

    async fn log(&self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        match self {
            Self::Consul(store) => store.log(limit).await,
            Self::Dir(store) => store.log(limit).await,
        }
    }

    async fn log_entry(&self, id: LogId) -> Result<Option<LogEntry>, StoreError> {
        match self {
            Self::Consul(store) => store.log_entry(id).await,
            Self::Dir(store) => store.log_entry(id).await,
        }
    }

    async fn log_entries(&self, ids: &[LogId]) -> Result<Vec<LogEntry>, StoreError> {
        match self {
            Self::Consul(store) => store.log_entries(ids).await,
            Self::Dir(store) => store.log_entries(ids).await,
        }
    }

    async fn trim_log(&self, keep: usize) -> Result<usize, StoreError> {
        match self {
            Self::Consul(store) => store.trim_log(keep).await,
            Self::Dir(store) => store.trim_log(keep).await,
        }
    }

    async fn forget_log_entry(&self, id: LogId) -> Result<(), StoreError> {
        match self {
            Self::Consul(store) => store.forget_log_entry(id).await,
            Self::Dir(store) => store.forget_log_entry(id).await,
        }
    }

    fn keys_per_transaction(&self) -> usize {
        match self {
            Self::Consul(store) => store.keys_per_transaction(),
            Self::Dir(store) => store.keys_per_transaction(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        for text in [
            "consul",
            "consul:http://127.0.0.1:8500",
            "consul:https://consul.example:8501",
            "consul:unix:///run/consul.sock",
            "dir:/var/lib/haplane/state",
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.to_string(), text);
        }
        for text in [
            "",
            "dir",
            "dir:",
            "dir:state",
            "consul:",
            "etcd:http://x",
            "/var",
        ] {
            assert!(text.parse::<Location>().is_err(), "{text:?}");
        }
        let told = |text: &str| text.parse::<Location>().unwrap_err().to_string();
        assert_eq!(
            told("consul://127.0.0.1:8500"),
            "consul:// is no store; write consul:http://127.0.0.1:8500"
        );
        assert!(!told("consul://me:hunter2@x:8500").contains("hunter2"));
    }
}
