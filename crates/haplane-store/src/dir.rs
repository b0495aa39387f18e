//! The store in a directory of small files.
//!
//! One file for each key, its text the value: `echo drain > state/canary` is the break-glass tool, and
//! a mounted Kubernetes ConfigMap or a synchronised folder can be read as it is. Beside the keys:
//!
//! | name | what it is |
//! |---|---|
//! | `.haplane` | the marker |
//! | `.index` | a number that every write of haplane raises |
//! | `.log/ID` | one log entry, with the stamps of the files that it wrote |
//! | `.txn` | the journal of a write that is being carried out; to rename it into place is to commit |
//! | `.lock` | locked by whoever writes; readers need no lock |
//! | `.tmp-…` | files on their way to their place |
//!
//! Every name that starts with `.` or `#` or ends with `~` is not a key: editors leave such files. A
//! key that is new or changed counts at once. One that vanished by hand is given 100 ms, because shells
//! and editors write in two steps; a file that is emptied, many keys at once, and a folder in the place
//! of another one are given 10 s without a change.
//!
//! A handle remembers what it read last, to know what is news: whoever follows a folder has a handle
//! of their own.

mod commit;
mod files;
mod journal;
mod lock;
mod log;
mod look;
mod notice;
mod settle;
mod stamp;
mod store;

pub use store::{DirStore, Held};
