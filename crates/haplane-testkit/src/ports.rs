//! Loopback ports that no other test has, also not in another test process.

use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::fs::{FlockOperation, flock};

/// The ports handed out. They end below Linux's ephemeral range (from 32768), so that a
/// port is never taken by an outgoing connection between the reservation and the bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A reserved port on `127.0.0.1`.
///
/// The reservation is a lock on a file in the temporary folder that all test processes
/// share. It lasts as long as this value, or the process: a peer may bind the port,
/// die, and bind it again.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port on which nobody listens, neither TCP nor UDP.
    pub fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Each process starts elsewhere, so that they seldom meet.
        let start = u16::try_from(std::process::id().wrapping_mul(61) % u32::from(COUNT)).unwrap();
        let folder = lock_folder();
        for _ in 0..COUNT {
            let offset = (u32::from(start) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed)))
                % u32::from(COUNT);
            let number = FIRST + u16::try_from(offset).unwrap();
            let lock =
                File::create(folder.join(number.to_string())).expect("a lock file for a port");
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && is_free(number) {
                return Self {
                    number,
                    _lock: lock,
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

fn lock_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!(
        "haplane-ports-{}",
        rustix::process::getuid().as_raw()
    ));
    std::fs::create_dir_all(&folder).expect("a folder for the locks of ports");
    folder
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
        && UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}
