//! What is set about Consul, and what Consul's own environment variables say.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::consul::address::Address;
use crate::consul::tls::TlsSettings;
use crate::consul::token::{Secret, TokenSettings};
use crate::error::{StoreError, StoreErrorKind};

/// How to reach a Consul and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulSettings {
    /// Where it listens.
    pub address: Address,
    /// As whom we ask.
    pub token: TokenSettings,
    /// How TLS is spoken, where the address says so.
    pub tls: TlsSettings,
    /// Another datacenter than that of the Consul agent asked.
    pub datacenter: Option<String>,
    /// A namespace of Consul Enterprise.
    pub namespace: Option<String>,
    /// How fresh ordinary reads have to be. Doubtful ones are always consistent.
    pub consistency: Consistency,
}

impl Default for ConsulSettings {
    fn default() -> Self {
        Self {
            address: Address::local(),
            token: TokenSettings::None,
            tls: TlsSettings::default(),
            datacenter: None,
            namespace: None,
            consistency: Consistency::Default,
        }
    }
}

/// Consul's three consistency modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The leader's view, without asking the others whether it still leads.
    #[default]
    Default,
    /// Any server's view.
    Stale,
    /// The leader's view, after it made sure that it leads.
    Consistent,
}

impl FromStr for Consistency {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text {
            "default" => Ok(Self::Default),
            "stale" => Ok(Self::Stale),
            "consistent" => Ok(Self::Consistent),
            _ => Err(wrong(format!(
                "consistency {text:?} is none of default, stale and consistent"
            ))),
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Stale => "stale",
            Self::Consistent => "consistent",
        })
    }
}

impl ConsulSettings {
    /// What Consul's own variables say; `variable` looks one up. What is set in haplane's own
    /// configuration goes on top of it.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| variable(name).map(PathBuf::from);
        let address = match variable("CONSUL_HTTP_ADDR") {
            None => Address::local(),
            Some(text) => text
                .parse()
                .map_err(|source| wrong("CONSUL_HTTP_ADDR is no address").because(source))?,
        };
        let address = match switch(variable, "CONSUL_HTTP_SSL")? {
            Some(true) => address.with_tls(),
            Some(false) | None => address,
        };
        if switch(variable, "CONSUL_HTTP_SSL_VERIFY")? == Some(false) {
            return Err(wrong(
                "CONSUL_HTTP_SSL_VERIFY=false is refused: an agent that believes anybody obeys \
                 anybody; name the authority with CONSUL_CACERT or ca_file instead",
            ));
        }
        // As in Consul's own client, the file wins.
        let token = match (
            path("CONSUL_HTTP_TOKEN_FILE"),
            variable("CONSUL_HTTP_TOKEN"),
        ) {
            (Some(file), _) => TokenSettings::File(file),
            (None, Some(token)) => TokenSettings::Literal(Secret::new(&token)),
            (None, None) => TokenSettings::None,
        };
        Ok(Self {
            address,
            token,
            tls: TlsSettings {
                ca_file: path("CONSUL_CACERT"),
                cert_file: path("CONSUL_CLIENT_CERT"),
                key_file: path("CONSUL_CLIENT_KEY"),
                server_name: variable("CONSUL_TLS_SERVER_NAME"),
            },
            namespace: variable("CONSUL_NAMESPACE"),
            ..Self::default()
        })
    }
}

fn switch(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
) -> Result<Option<bool>, StoreError> {
    // What Go's strconv.ParseBool takes.
    match variable(name).as_deref() {
        None => Ok(None),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
        Some(other) => Err(wrong(format!("{name} is {other:?}, not true or false"))),
    }
}

/// A folder of Consul's KV store. On the wire it always ends in a slash: Consul's prefixes are string
/// prefixes, and `haplane/state` would reach into `haplane/state2/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    /// The text, with its slash at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The KV key of a path below it.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// The path of a KV key below it; `None` for the prefix itself and for its neighbours.
    pub(crate) fn strip<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.0).filter(|path| !path.is_empty())
    }

    /// Whether one of the two lies within the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0) || other.0.starts_with(&self.0)
    }
}

impl FromStr for Prefix {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let inner = text.trim_matches('/');
        let is_plain = !inner.is_empty()
            && inner
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."));
        if !is_plain || inner.chars().any(char::is_control) {
            return Err(wrong(format!(
                "{text:?} is not a prefix of Consul's KV store, such as haplane/state"
            )));
        }
        Ok(Self(format!("{inner}/")))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn wrong(what: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Config, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<ConsulSettings, StoreError> {
        ConsulSettings::from_environment(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variables_mean_what_they_mean_for_consul() {
        assert_eq!(from(&[]).unwrap(), ConsulSettings::default());
        let settings = from(&[
            ("CONSUL_HTTP_ADDR", "http://consul.example:8501"),
            ("CONSUL_HTTP_SSL", "true"),
            ("CONSUL_HTTP_TOKEN", "hunter2"),
            ("CONSUL_CACERT", "/ca.pem"),
            ("CONSUL_CLIENT_CERT", "/cert.pem"),
            ("CONSUL_CLIENT_KEY", "/key.pem"),
            ("CONSUL_NAMESPACE", "team"),
            ("CONSUL_HTTP_TOKEN_FILE", ""),
        ])
        .unwrap();
        assert_eq!(settings.address.to_string(), "https://consul.example:8501");
        assert_eq!(
            settings.token,
            TokenSettings::Literal(Secret::new("hunter2"))
        );
        assert_eq!(settings.tls.ca_file, Some("/ca.pem".into()));
        assert_eq!(settings.namespace.as_deref(), Some("team"));
        assert!(!format!("{settings:?}").contains("hunter2"));
        let both = from(&[
            ("CONSUL_HTTP_TOKEN", "x"),
            ("CONSUL_HTTP_TOKEN_FILE", "/token"),
        ]);
        assert_eq!(both.unwrap().token, TokenSettings::File("/token".into()));
    }

    #[test]
    fn odd_variables_are_refused_by_name() {
        for (name, value) in [
            ("CONSUL_HTTP_ADDR", "ftp://x"),
            ("CONSUL_HTTP_SSL", "maybe"),
            ("CONSUL_HTTP_SSL_VERIFY", "false"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert!(error.what.contains(name), "{error}");
        }
    }

    #[test]
    fn a_prefix_ends_in_a_slash_and_knows_its_own() {
        let state: Prefix = "/haplane/state".parse().unwrap();
        assert_eq!(state.as_str(), "haplane/state/");
        assert_eq!(state.strip("haplane/state/a/b"), Some("a/b"));
        assert_eq!(state.strip("haplane/state/"), None);
        assert_eq!(state.strip("haplane/state2/a"), None);
        assert!(state.overlaps(&"haplane".parse().unwrap()));
        assert!(!state.overlaps(&"haplane/state2".parse().unwrap()));
        for bad in ["", "/", "a//b", "a/../b", "a\nb"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad:?}");
        }
    }
}
