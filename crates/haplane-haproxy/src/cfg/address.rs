//! Where a server is: the `<address>[:<port>]` of a server line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address as written. `*` and nothing at all are `0.0.0.0`: the address that the client asked for.
    Ip(IpAddr),
    /// A name: resolved at start-up, or by `resolvers`.
    Name(String),
    /// A unix socket's path.
    Unix(String),
    /// Something else that HAProxy can connect to (`abns@`, `sockpair@`, `fd@`, …), as written.
    Other(String),
}

impl Address {
    /// The IP address, when it is written as one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            _ => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(text) | Self::Unix(text) | Self::Other(text) => f.write_str(text),
        }
    }
}

/// The port part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// A port of its own.
    Fixed(u16),
    /// The port that the client asked for, plus this: `:+10`, `:-10`, or no port at all (0).
    Client(i32),
}

impl Port {
    /// The number that HAProxy keeps and shows for it. A negative offset shows as a number close to 2^32.
    #[expect(clippy::cast_sign_loss, reason = "this is what HAProxy does")]
    pub fn shown(self) -> u32 {
        match self {
            Self::Fixed(port) => port.into(),
            Self::Client(offset) => offset as u32,
        }
    }

    /// The port, when it is one of its own and not 0.
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Fixed(port) if port != 0 => Some(port),
            _ => None,
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(port) => port.fmt(f),
            Self::Client(0) => f.write_str("the client's"),
            Self::Client(offset) => write!(f, "{offset:+}"),
        }
    }
}

/// Why HAProxy refuses an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A range of ports, which only `bind` and `source` take.
    #[error("a server has one port, not the range {0}")]
    PortRange(String),
    /// Not a port.
    #[error("{0:?} is no port (0 to 65535, or +N and -N to shift the client's)")]
    Port(String),
}

/// Reads `<address>[:<port>]` as a server line has it.
///
/// # Errors
///
/// When HAProxy refuses the port. Names are not looked up, so a name that does not resolve is no error here.
pub(super) fn parse(text: &str) -> Result<(Address, Port), AddressError> {
    const TCP: [&str; 7] = [
        "ipv4@", "ipv6@", "tcp4@", "tcp6@", "tcp@", "mptcp@", "mptcp4@",
    ];
    if let Some(path) = text.strip_prefix("unix@") {
        return Ok((Address::Unix(path.to_owned()), Port::Fixed(0)));
    }
    if text.starts_with('/') {
        return Ok((Address::Unix(text.to_owned()), Port::Fixed(0)));
    }
    let family = TCP.iter().find(|prefix| text.starts_with(**prefix));
    let rest = family
        .and_then(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    if family.is_none()
        && text
            .split_once('@')
            .is_some_and(|(prefix, _)| prefix.bytes().all(is_family_letter))
    {
        return Ok((Address::Other(text.to_owned()), Port::Fixed(0)));
    }
    let (host, port) = split_port(rest);
    let port = port.map_or(Ok(Port::Client(0)), parse_port)?;
    let six = family.is_some_and(|prefix| prefix.contains('6'));
    let unbracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let address = match unbracketed {
        "" | "*" if six => Address::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        "" | "*" => Address::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        host => host
            .parse()
            .map_or_else(|_| Address::Name(host.to_owned()), Address::Ip),
    };
    Ok((address, port))
}

fn is_family_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

/// The last colon is the port's, unless it stands inside brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    }
}

fn parse_port(text: &str) -> Result<Port, AddressError> {
    let wrong = || AddressError::Port(text.to_owned());
    let digits = text.trim_start_matches(['+', '-']);
    if digits.contains('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        return Err(AddressError::PortRange(text.to_owned()));
    }
    if text.is_empty() {
        return Ok(Port::Fixed(0));
    }
    if digits.is_empty()
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
        || text.len() - digits.len() > 1
    {
        return Err(wrong());
    }
    let number: u16 = digits.parse().map_err(|_| wrong())?;
    Ok(match text.as_bytes().first() {
        Some(b'+') => Port::Client(number.into()),
        Some(b'-') => Port::Client(-i32::from(number)),
        _ => Port::Fixed(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What HAProxy 2.8.25 shows for each (`show servers state`: address, port); names are shown resolved there.
    #[test]
    fn addresses_as_haproxy_reads_them() {
        for (text, address, port) in [
            ("[::1]:80", "::1", 80),
            ("::1:80", "::1", 80),
            ("ipv4@127.0.0.1:8", "127.0.0.1", 8),
            ("/tmp/x", "/tmp/x", 0),
            ("unix@/tmp/x", "/tmp/x", 0),
            ("0.0.0.0:80", "0.0.0.0", 80),
            ("127.0.0.1:+10", "127.0.0.1", 10),
            ("127.0.0.1:-10", "127.0.0.1", 4_294_967_286),
            ("127.0.0.1", "127.0.0.1", 0),
            ("*:80", "0.0.0.0", 80),
            (":80", "0.0.0.0", 80),
            ("[::1]", "::1", 0),
            ("localhost:80", "localhost", 80),
            ("127.1:80", "127.1", 80),
            ("ipv4@localhost:80", "localhost", 80),
            ("127.0.0.1:", "127.0.0.1", 0),
            ("127.0.0.1:080", "127.0.0.1", 80),
            ("[::ffff:1.2.3.4]:80", "::ffff:1.2.3.4", 80),
            ("abns@foo", "abns@foo", 0),
        ] {
            let (got, got_port) = parse(text).unwrap();
            assert_eq!(
                (got.to_string().as_str(), got_port.shown()),
                (address, port),
                "{text}"
            );
        }
    }

    #[test]
    fn ports_that_haproxy_refuses() {
        for text in [
            "127.0.0.1:70000",
            "127.0.0.1:x",
            "127.0.0.1:80-90",
            "127.0.0.1:+",
            "127.0.0.1:+-1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
