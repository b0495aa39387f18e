//! What a slot sends with its agent check: the instance's key, its groups and its weight, or that it is free.

use std::fmt;
use std::sync::Arc;

use haplane_haproxy::Percent;

use super::model::{Instance, Policy};
use crate::key::{Key, KeyError};

/// What a slot sends while it holds no instance; answered `maint` without a look at the store.
pub(crate) const FREE: &str = "@free";

/// More keys than this the responder refuses in one line.
const MAX_KEYS: usize = 16;

/// The words of `agent-send` for one instance, without the line feed, which the Runtime API cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Words(Arc<str>);

impl Words {
    /// The words for `instance` in a slot whose configured weight is `configured_weight`.
    ///
    /// # Errors
    ///
    /// When backend and id together are too long for a key.
    pub fn of(
        instance: &Instance,
        policy: &Policy,
        configured_weight: u16,
    ) -> Result<Self, KeyError> {
        let row: Key = format!("{}/{}", policy.backend, instance.id).parse()?;
        let mut keys = vec![row];
        for group in instance.groups.iter().chain(&policy.groups) {
            if !keys.contains(group) && keys.len() < MAX_KEYS {
                keys.push(group.clone());
            }
        }
        let mut words: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        if let Some(share) = share_of_weight(instance, configured_weight) {
            words.push(format!("@{share}"));
        }
        Ok(Self(words.join(" ").into()))
    }

    /// The words as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The share of the configured weight that an instance asks for; never so little that HAProxy, which truncates
/// `share * configured / 100`, would make it nothing (facts 2.2 g).
pub(super) fn share_of_weight(instance: &Instance, configured_weight: u16) -> Option<Percent> {
    let share = instance.weight?.get().max(1);
    let least = 100_u16.div_ceil(configured_weight.max(1));
    Percent::new(share.max(least)).filter(|share| *share != Percent::FULL)
}

/// The share of the configured weight that a weight in force is: the least that HAProxy makes this weight of.
pub(super) fn share_in_force(weight: u16, configured_weight: u16) -> Option<Percent> {
    let share = (u32::from(weight) * 100).div_ceil(u32::from(configured_weight.max(1)));
    u16::try_from(share).ok().and_then(Percent::new)
}

/// The weight in force that a share of a configured weight becomes.
pub(super) fn weight_in_force(share: Percent, configured_weight: u16) -> u16 {
    let product = u32::from(share.get()) * u32::from(configured_weight) / 100;
    u16::try_from(product.min(256)).unwrap_or(256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_can_be_read_back() {
        for configured in [1, 2, 7, 100, 256] {
            for share in (1..=256).filter_map(Percent::new) {
                let weight = weight_in_force(share, configured);
                let again = share_in_force(weight, configured);
                assert_eq!(
                    again.map(|share| weight_in_force(share, configured)),
                    (weight <= 256)
                        .then_some(weight)
                        .filter(|_| again.is_some()),
                    "{share} of {configured}"
                );
            }
        }
    }
    use crate::slots::sample;

    #[test]
    fn the_row_first_then_groups_then_the_weight() {
        let mut policy = sample::policy();
        policy.groups = vec!["canary".parse().unwrap(), "zone/b".parse().unwrap()];
        let mut instance = sample::instance(1);
        assert_eq!(
            Words::of(&instance, &policy, 100).unwrap().as_str(),
            "web/i1 canary zone/b"
        );
        instance.groups = vec!["zone/b".parse().unwrap(), "batch".parse().unwrap()];
        instance.weight = Percent::new(50);
        assert_eq!(
            Words::of(&instance, &policy, 100).unwrap().as_str(),
            "web/i1 zone/b batch canary @50%"
        );
        assert_eq!(
            Words::of(&instance, &policy, 1).unwrap().as_str(),
            "web/i1 zone/b batch canary"
        );
        instance.weight = Percent::new(1);
        assert_eq!(
            Words::of(&instance, &policy, 10).unwrap().as_str(),
            "web/i1 zone/b batch canary @10%"
        );
    }
}
