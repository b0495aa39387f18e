//! Real peers for haplane's tests, and scripted ones for what a real peer will not do.
//!
//! Nothing here uses haplane's own readers of HAProxy's or Consul's texts: the kit must
//! be able to contradict the product. Everything listens on loopback only, every wait
//! has a deadline, and whatever a value started ends when that value is dropped.
//!
//! | to get | use |
//! |---|---|
//! | a real HAProxy | [`haproxy::Haproxy::start`] |
//! | a real Consul | [`consul::Consul::start`], [`consul::Cluster::start`] |
//! | a Consul that misbehaves | [`fake_consul::FakeConsul::start`] |
//! | servers behind HAProxy | [`origin::Origin::start`] |
//! | load, and who answered it | [`traffic::send`], [`traffic::Traffic::start`] |
//! | an agent that HAProxy asks | [`agent_peer::RecordingAgent::start`] |
//! | to ask an agent as HAProxy does | [`agent_peer::ask`] |
//! | certificates for HTTPS | [`authority::Authority`] |
//! | a loopback port that no other test has | [`ports::Port::reserve`] |
//! | to look at a page as a person does | [`browser::Browser::start`] |
//! | to read a profile, with names | [`pprof::Profile::decode`] |
//! | to wait for a condition | [`eventually::eventually`], [`eventually::throughout`] |
//! | any other program, ended with its test | [`process::Process`] |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test kit: what goes wrong in it is the failure of the test"
)]

pub mod agent_peer;
pub mod authority;
pub mod browser;
pub mod consul;
pub mod eventually;
pub mod fake_consul;
pub mod haproxy;
pub mod http;
mod listening;
pub mod origin;
pub mod peers;
pub mod ports;
pub mod pprof;
pub mod process;
pub mod records;
pub mod traffic;
