//! The kit against the real peers, with a few facts that haplane is built on.

mod haproxy;
