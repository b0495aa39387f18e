//! The commands against real peers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod agent_guard;
mod agent_life;
mod agent_outages;
mod agent_pages;
mod agent_prior_states;
mod agent_process;
mod agent_resolution;
mod agent_secrets;
mod agent_ways_in;
mod audit;
mod capacity;
#[path = "../it/command.rs"]
mod command;
mod consul_acl;
mod consul_writes;
mod cut_off;
mod drains;
mod enroll;
mod fleet;
mod folder;
mod guards;
mod haproxy_rows;
mod observed;
mod observer_proof;
mod observer_push;
mod observer_site;
mod observer_sockets;
mod observer_verdicts;
mod proof;
mod relay;
mod seed;
mod seed_checks;
mod slots_observed;
mod sync_commands;
mod sync_with_agent;
