//! The process's own limits.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of open files as far as the system allows: each connection is one, and with a
/// failed `accept` HAProxy would get no answer. Gives the limit now in force.
pub fn raise_open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}
