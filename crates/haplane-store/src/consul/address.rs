//! Where Consul listens, in the forms that `CONSUL_HTTP_ADDR` has.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An address of Consul's HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `http://host:port`, `https://host:port` or a bare `host:port`.
    Tcp {
        /// A name or an address; IPv6 without its brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether TLS is spoken.
        tls: bool,
    },
    /// `unix:///path`.
    Unix(PathBuf),
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not one of the schemes.
    #[error("{0:?} is none of http://, https:// and unix://")]
    Scheme(String),
    /// No host, or one with characters that no host has.
    #[error("{0:?} is not HOST:PORT")]
    Host(String),
    /// Not a number from 1 to 65535.
    #[error("{0:?} is not a port")]
    Port(String),
    /// More than scheme, host and port. A user name or a token does not belong here.
    #[error("an address of Consul is scheme, host and port, without {0:?}")]
    Extra(String),
    /// `unix://` needs an absolute path.
    #[error("{0:?} is not an absolute path of a socket: write unix:///run/consul.sock")]
    Path(String),
}

impl Address {
    /// Where Consul listens when nobody says otherwise.
    pub fn local() -> Self {
        Self::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 8500,
            tls: false,
        }
    }

    /// The same place, spoken to with TLS (`CONSUL_HTTP_SSL=true`).
    #[must_use]
    pub fn with_tls(self) -> Self {
        match self {
            Self::Tcp { host, port, .. } => Self::Tcp {
                host,
                port,
                tls: true,
            },
            unix @ Self::Unix(_) => unix,
        }
    }

    /// What the `Host` header says.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } => format!("{}:{port}", bracketed(host)),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once("://") {
            Some(("http", rest)) => parse_tcp(rest, false),
            Some(("https", rest)) => parse_tcp(rest, true),
            Some(("unix", path)) => parse_unix(path),
            Some((scheme, _)) => Err(AddressError::Scheme(format!("{scheme}://"))),
            None => parse_tcp(text, false),
        }
    }
}

fn parse_unix(path: &str) -> Result<Address, AddressError> {
    if Path::new(path).is_absolute() && !path.contains('\0') {
        Ok(Address::Unix(path.into()))
    } else {
        Err(AddressError::Path(path.to_owned()))
    }
}

fn parse_tcp(text: &str, tls: bool) -> Result<Address, AddressError> {
    let text = text.strip_suffix('/').unwrap_or(text);
    // What stands before an @ or behind a ? is likely a secret: only its presence is told.
    if let Some((user, _)) = text.rsplit_once('@') {
        return Err(AddressError::Extra(format!(
            "{} bytes before @",
            user.len()
        )));
    }
    if let Some((_, query)) = text.split_once('?') {
        return Err(AddressError::Extra(format!(
            "{} bytes behind ?",
            query.len()
        )));
    }
    if let Some((_, extra)) = text.split_once('/') {
        return Err(AddressError::Extra(format!("/{extra}")));
    }
    let (host, port) = split_port(text)?;
    let is_host = !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%'));
    if !is_host {
        return Err(AddressError::Host(text.to_owned()));
    }
    let port = match port {
        None if tls => 443,
        None => 80,
        Some(digits) => parse_port(digits)?,
    };
    Ok(Address::Tcp {
        host: host.to_owned(),
        port,
        tls,
    })
}

fn split_port(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    let wrong = || AddressError::Host(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(wrong)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(wrong()),
        };
    }
    match text.split_once(':') {
        // More than one colon without brackets could be read in two ways.
        Some((_, port)) if port.contains(':') => Err(wrong()),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn parse_port(digits: &str) -> Result<u16, AddressError> {
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    let port = is_number.then(|| digits.parse().ok()).flatten();
    port.filter(|&port: &u16| port > 0)
        .ok_or_else(|| AddressError::Port(digits.to_owned()))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, tls } => {
                let scheme = if *tls { "https" } else { "http" };
                write!(f, "{scheme}://{}:{port}", bracketed(host))
            }
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_consul_is_read_and_printed() {
        for (text, printed) in [
            ("127.0.0.1:8500", "http://127.0.0.1:8500"),
            ("consul.example", "http://consul.example:80"),
            ("http://consul.example:8500/", "http://consul.example:8500"),
            ("https://consul.example", "https://consul.example:443"),
            ("https://[::1]:8501", "https://[::1]:8501"),
            ("[::1]:8500", "http://[::1]:8500"),
            ("unix:///run/consul.sock", "unix:///run/consul.sock"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), printed, "{text:?}");
            assert_eq!(printed.parse(), Ok(address));
        }
    }

    #[test]
    fn what_is_no_address() {
        for text in [
            "",
            "http://",
            "ftp://a:1",
            "a:0",
            "a:70000",
            "a:+80",
            "a:",
            "::1:8500",
            "[::1",
            "[::1]8500",
            "http://a:1/consul",
            "a b:1",
            "unix://run/x",
            "unix://",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_secret_in_an_address_is_not_repeated() {
        for text in [
            "http://user:hunter2@consul:8500",
            "http://user:hun/hunter2@consul:8500",
            "http://consul:8500/?token=hunter2",
            "http://consul:8500?token=hunter2",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
