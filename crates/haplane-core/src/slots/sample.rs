//! Instances, slots and rules for the tests of this module.

use std::time::Duration;

use super::model::{ByHand, CheckPort, Instance, Mode, Policy};

/// Instance number `n`, at 10.x.y.z:8000.
pub(super) fn instance(n: u32) -> Instance {
    let [_, b, c, d] = n.to_be_bytes();
    Instance {
        id: format!("i{n}").parse().unwrap(),
        endpoint: format!("10.{b}.{c}.{d}:8000").parse().unwrap(),
        zone: None,
        weight: None,
        groups: Vec::new(),
    }
}

/// The rules of a pool of slots in backend `web`.
pub(super) fn policy() -> Policy {
    Policy {
        backend: "web".parse().unwrap(),
        mode: Mode::Slots,
        groups: Vec::new(),
        drain_grace: Duration::from_secs(30),
        by_hand: ByHand::Repair,
        check_port: CheckPort::AsConfigured,
    }
}
