//! Membership: which instance sits in which slot, and what to do next about it.
//!
//! [`plan`] compares what one HAProxy process reports with the instances that discovery lists and with what is
//! remembered of earlier steps, and says which steps to take now. It is called again after every round, so it never
//! needs to foresee: a step that failed, was lost, or took effect without an answer is seen in the next observation.
//!
//! A slot's life: free → filling → active → draining → idle → free. Three rules make it safe:
//!
//! - **Slots are freed before they are filled**, in every plan, and what does not fit is listed and waits: it never
//!   keeps the rest from being served.
//! - **A slot is known by its address.** An address is only ever set on a slot that is out of rotation, has no
//!   sessions, and whose agent check cannot open it: it was held down by it, and seen quiet twice in a row after that.
//! - **A slot is filled in two steps with a look between them**: prepare (agent off, maintenance, address), and when
//!   the process is seen to have that address and nothing is under way, open (agent on and up, state, words).

pub mod flap;
pub mod forecast;
pub mod hold;
mod memory;
mod model;
mod place;
mod plan;
mod reason;
#[cfg(test)]
mod sample;
mod step;
mod words;
pub mod world;

pub use memory::{Memory, Outcome, SlotMemory, Stage, Told, Transition};
pub use model::{
    Agent, Answers, ByHand, CheckPort, DownBy, Endpoint, EndpointError, Health, Instance,
    InstanceId, InstanceIdError, Mode, Moment, Observed, ObservedSlot, Opening, Policy, ProcessId,
    Removal, Wanted,
};
pub use place::{Rejected, Shared, without_duplicates};
pub use plan::{Homeless, Plan, Planned, doubtful, plan};
pub use reason::Reason;
pub use step::{Kind, Step};
pub use words::Words;
