//! What HAProxy says about every row: the text of `show servers state` and of server-state files.
//!
//! One text, two readers, because the two must not agree on what to do with damage:
//!
//! * [`read_answer`] reads what a running process answered. It is strict: an answer that is cut short, or a row that we do
//!   not understand, is an error with its line number, never a shorter list.
//! * [`StateFile`] reads a file as a starting HAProxy does, which drops or skips what it dislikes and starts all the same.
//!
//! And one writer, [`write_seed`].
//!
//! HAProxy 2.2 writes 20 columns, 2.6 and later 25; the columns are named in the header, whose order has never changed.

use std::net::IpAddr;

use crate::names::RowKey;

mod admin_bits;
mod answer;
mod check_bits;
mod file;
mod seed;

pub use admin_bits::AdminBits;
pub use answer::{StateError, read_answer};
pub use check_bits::CheckBits;
pub use file::{DropReason, Fate, FileRow, FileValues, SEED_MARK, StateFile};
pub use seed::{SeedRow, write as write_seed};

/// The header line, as HAProxy 2.6 and later write it.
pub const HEADER: &str = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr \
srv_agent_port";

/// How many columns HAProxy 2.2 writes, and the least that any version accepts.
pub const COLUMNS_SHORT: usize = 20;
/// How many columns HAProxy 2.6 and later write.
pub const COLUMNS_LONG: usize = 25;

/// What HAProxy's own checks made of a server: the `srv_op_state` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpState {
    /// 0: down.
    Stopped,
    /// 1: coming up, under `slowstart` or waiting for `rise`.
    Starting,
    /// 2: up.
    Running,
    /// 3: up, and about to be taken down (`http-check disable-on-404`).
    Stopping,
}

impl OpState {
    /// The state that the column's number stands for.
    pub fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Stopped),
            1 => Some(Self::Starting),
            2 => Some(Self::Running),
            3 => Some(Self::Stopping),
            _ => None,
        }
    }

    /// The number that HAProxy writes for this state.
    pub fn number(self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::Starting => 1,
            Self::Running => 2,
            Self::Stopping => 3,
        }
    }
}

/// One row of `show servers state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// Which line of the text it stands on, from 1.
    pub line: usize,
    /// `be_id`: HAProxy's number of the backend, in the order of the configuration unless forced by `id`.
    pub backend_id: u32,
    /// `srv_id`: HAProxy's number of the server within its backend.
    pub server_id: u32,
    /// The backend and server names.
    pub row: RowKey,
    /// `srv_addr`; none while a name is not resolved, and for a unix socket.
    pub address: Option<IpAddr>,
    /// `srv_op_state`.
    pub op_state: OpState,
    /// `srv_admin_state`.
    pub admin: AdminBits,
    /// `srv_uweight`: the weight in force, 0 to 256.
    pub uweight: u16,
    /// `srv_iweight`: the weight that the configuration gave, 0 to 256.
    pub iweight: u16,
    /// `srv_time_since_last_change`, in seconds: how long the operational state has lasted.
    pub seconds_since_change: i64,
    /// `srv_check_status`, HAProxy's own number of the last check's result.
    pub check_status: i64,
    /// `srv_check_result`, HAProxy's own number.
    pub check_result: i64,
    /// `srv_check_health`: 0 to rise + fall - 1.
    pub check_health: i64,
    /// `srv_check_state`.
    pub check: CheckBits,
    /// `srv_agent_state`.
    pub agent: CheckBits,
    /// `srv_fqdn`: the name the address is resolved from.
    pub fqdn: Option<String>,
    /// `srv_port`. A port below the client's (`:-10` in the configuration) shows as a number close to 2^32.
    pub port: u32,
    /// `srv_check_port`; none when not set, and before HAProxy 2.6.
    pub check_port: Option<u16>,
    /// `srv_check_addr`; none when not set (the server's own address is checked), and before HAProxy 2.6.
    pub check_address: Option<IpAddr>,
    /// `srv_agent_addr`; none when not set (the server's own address is asked), and before HAProxy 2.6.
    pub agent_address: Option<IpAddr>,
    /// `srv_agent_port`; none when not set, and before HAProxy 2.6. The port of the health check stands in for it where
    /// no `agent-port` is given, so a row has one without having an agent: see `agent`.
    pub agent_port: Option<u16>,
}
