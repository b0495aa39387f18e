//! The state of a health check or of an agent check, bit by bit.

use std::fmt;

/// The `srv_check_state` and `srv_agent_state` columns.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CheckBits(u32);

impl CheckBits {
    /// A check is under way at this moment.
    pub const IN_PROGRESS: Self = Self(1);
    /// The server line asks for this check.
    pub const CONFIGURED: Self = Self(2);
    /// The check runs: `disable health` and `disable agent` clear this bit.
    pub const ENABLED: Self = Self(4);

    /// The bits as the number that HAProxy writes.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number that HAProxy writes.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether all of `bits` are set.
    pub const fn contains(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// A check is under way at this moment.
    pub const fn is_in_progress(self) -> bool {
        self.contains(Self::IN_PROGRESS)
    }

    /// The server line asks for this check.
    pub const fn is_configured(self) -> bool {
        self.contains(Self::CONFIGURED)
    }

    /// The check runs: configured, and nobody disabled it.
    pub const fn is_enabled(self) -> bool {
        self.contains(Self::ENABLED)
    }

    /// Configured, and switched off through the command line (or by a state file that remembers it).
    pub const fn is_switched_off(self) -> bool {
        self.is_configured() && !self.is_enabled()
    }
}

impl fmt::Debug for CheckBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckBits({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::CheckBits;

    #[test]
    fn enrolled_asking_and_switched_off() {
        let enrolled = CheckBits::from_number(22);
        assert!(enrolled.is_configured() && enrolled.is_enabled() && !enrolled.is_in_progress());
        assert!(CheckBits::from_number(23).is_in_progress());
        assert!(CheckBits::from_number(18).is_switched_off());
        assert!(!CheckBits::from_number(0).is_switched_off());
    }
}
