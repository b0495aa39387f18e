//! The peer: the least that answers a line. One thread, one connection after the other, no store, no
//! limits, no account of anything. A silent client stops it for good; it is a floor, not a rival.

use std::io::{Read, Write};
use std::net::TcpListener;

/// Answers on this address until it is killed.
pub(crate) fn answer(address: &str) {
    let listener = TcpListener::bind(address).expect("to listen");
    let mut line = [0; 4096];
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut read = 0;
        while !line.get(..read).unwrap_or_default().contains(&b'\n') {
            match stream.read(line.get_mut(read..).unwrap_or_default()) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        // A client that has gone has its answer or asks again.
        drop(stream.write_all(b"ready 100%\n"));
    }
}
