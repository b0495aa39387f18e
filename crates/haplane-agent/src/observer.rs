//! The observer: looks at HAProxy itself, and says of every row whether it does what it was answered.
//!
//! One task for each socket, so that one that hangs, is closed or talks garbage delays nothing but
//! its own next look. Level `user` is enough to look; only push needs `admin`.

pub mod asked;
pub mod board;
pub mod look;
pub mod memory;
pub mod old_workers;
pub mod process;
pub mod push;
pub mod recount;
pub mod slots;
pub mod survey;
pub mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use haplane_core::resolve::Policy;
use haplane_daemon::parts::Parts;
use haplane_daemon::settings::HaproxySettings;
use haplane_runtime::Socket;
use tokio::sync::watch as channel;

use crate::metrics::Metrics;
use crate::readable::Readable;
use crate::rows::Rows;
use crate::served::Served;
use board::Board;
use push::Pusher;
use watch::HaproxyWatch;

/// Everything that the observer shares with the rest of the agent.
#[derive(Debug)]
pub struct Observer {
    /// Where it tells.
    pub board: Arc<Board>,
    /// What was asked.
    pub rows: Arc<Mutex<Rows>>,
    /// What is answered from.
    pub served: channel::Receiver<Served>,
    /// Which keys are truly absent where the snapshot has none.
    pub readable: Arc<Readable>,
    /// The site's choices.
    pub policy: Policy,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The responder's port.
    pub port: u16,
}

impl Observer {
    /// Starts one task for each socket, and one for the master's.
    pub fn start(self, settings: &HaproxySettings, parts: &Parts) {
        self.board.note_answering();
        for (index, path) in settings.sockets.iter().enumerate() {
            let watch = self.haproxy(index, path, settings.push);
            parts.spawn("a HAProxy's observer", watch.run(parts.stop()));
        }
        if let Some(master) = settings.master_socket.clone() {
            let counting = recount::watch(master, self.board, parts.stop());
            parts.spawn("the old workers' observer", counting);
        }
    }

    fn haproxy(&self, index: usize, path: &PathBuf, push: bool) -> HaproxyWatch {
        HaproxyWatch {
            index,
            socket: Socket::new(path).with_limits(look::LIMITS),
            board: Arc::clone(&self.board),
            rows: Arc::clone(&self.rows),
            served: self.served.clone(),
            readable: Arc::clone(&self.readable),
            policy: self.policy,
            metrics: Arc::clone(&self.metrics),
            port: self.port,
            pusher: push.then(|| Pusher::new(self.port)),
        }
    }
}
