//! HAProxy's texts, read whole: samples from real processes, damage, and properties.

mod server_state_answers;
mod stat_answers;
