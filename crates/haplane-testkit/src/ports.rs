//! Loopback ports that no other test has, also not in another test process.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports handed out. They end below Linux's ephemeral range (from 32768), so that a
/// port is never taken by an outgoing connection between the reservation and the bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A reserved port on `127.0.0.1`.
///
/// The reservation is a name in Linux's abstract socket namespace, which all processes share
/// and which leaves no file behind. It lasts as long as this value, or the process: a peer
/// may bind the port, die, and bind it again.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a port on which nobody listens, neither TCP nor UDP.
    pub fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Each process starts elsewhere, so that they seldom meet.
        let start = u16::try_from(std::process::id().wrapping_mul(61) % u32::from(COUNT)).unwrap();
        for _ in 0..COUNT {
            let offset = (u32::from(start) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed)))
                % u32::from(COUNT);
            let number = FIRST + u16::try_from(offset).unwrap();
            if let Some(reservation) = reservation(number).filter(|_| is_free(number)) {
                return Self {
                    number,
                    _reservation: reservation,
                };
            }
        }
        panic!("no free port from {FIRST} to {}", FIRST + COUNT);
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The port with its loopback address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    /// Listens on it.
    pub fn listen(&self) -> TcpListener {
        TcpListener::bind(self.address())
            .unwrap_or_else(|error| panic!("cannot listen on {self}: {error}"))
    }
}

/// Only the number, for use in a configuration text.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

fn reservation(number: u16) -> Option<UnixListener> {
    let name = UnixAddress::from_abstract_name(format!("haplane-port-{number}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
        && UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}
