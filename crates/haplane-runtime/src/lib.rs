//! HAProxy's Runtime API over its unix sockets.
//!
//! [`Socket::ask`] reads, [`Socket::change`] changes. Both open one connection for one line of commands and close it:
//! HAProxy serves ten of them by default, and the eleventh hangs without a word (facts 7.4). An answer counts only when
//! HAProxy has closed the connection behind it; everything has a deadline and a size.

mod batch;
mod master;
mod socket;

pub use batch::{Change, Group};
pub use master::{Master, MasterError, ProcessKind, ProcessLine};
pub use socket::{Limits, Socket, SocketError};
