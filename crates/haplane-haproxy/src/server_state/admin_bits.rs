//! The administrative state of a server, bit by bit.

use std::fmt;
use std::ops::BitOr;

/// The `srv_admin_state` column. No bit tells who set it: an agent, the command line and the configuration share them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdminBits(u32);

impl AdminBits {
    /// Nothing set: the server is ready.
    pub const READY: Self = Self(0);
    /// Maintenance forced by the command line, an agent or `disabled` in the configuration.
    pub const FMAINT: Self = Self(1);
    /// Maintenance inherited from a tracked server.
    pub const IMAINT: Self = Self(2);
    /// The configuration says `disabled`; for information only, alone it stops no traffic.
    pub const CMAINT: Self = Self(4);
    /// Drain forced by the command line or an agent, or a configured weight of 0.
    pub const FDRAIN: Self = Self(8);
    /// Drain inherited from a tracked server.
    pub const IDRAIN: Self = Self(16);
    /// Maintenance because the name does not resolve.
    pub const RMAINT: Self = Self(32);
    /// The name was set through the command line. No state: it takes nothing out of rotation.
    pub const HMAINT: Self = Self(64);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::FMAINT, "FMAINT"),
        (Self::IMAINT, "IMAINT"),
        (Self::CMAINT, "CMAINT"),
        (Self::FDRAIN, "FDRAIN"),
        (Self::IDRAIN, "IDRAIN"),
        (Self::RMAINT, "RMAINT"),
        (Self::HMAINT, "HMAINT"),
    ];

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

    /// Whether any of `bits` is set.
    pub const fn intersects(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// These bits with `bits` cleared.
    #[must_use]
    pub const fn without(self, bits: Self) -> Self {
        Self(self.0 & !bits.0)
    }

    /// In maintenance, for whatever reason: no traffic, not even that of a persistent session.
    pub const fn is_maint(self) -> bool {
        self.intersects(Self(Self::FMAINT.0 | Self::IMAINT.0 | Self::RMAINT.0))
    }

    /// Draining, and not in maintenance: no new sessions, persistent ones go on.
    pub const fn is_drain(self) -> bool {
        !self.is_maint() && self.intersects(Self(Self::FDRAIN.0 | Self::IDRAIN.0))
    }

    /// Neither in maintenance nor draining.
    pub const fn is_ready(self) -> bool {
        !self.is_maint() && !self.is_drain()
    }
}

impl BitOr for AdminBits {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `0`, or the names of the bits: `CMAINT|FDRAIN`.
impl fmt::Display for AdminBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (bit, name) in Self::NAMES {
            if self.contains(bit) {
                write!(f, "{separator}{name}")?;
                separator = "|";
                rest = rest.without(bit);
            }
        }
        if rest != Self::READY || separator.is_empty() {
            write!(f, "{separator}{}", rest.0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for AdminBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminBits({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::AdminBits;

    #[test]
    fn what_the_measured_numbers_mean() {
        for (number, shown, maint, drain) in [
            (0, "0", false, false),
            (1, "FMAINT", true, false),
            (2, "IMAINT", true, false),
            (4, "CMAINT", false, false),
            (5, "FMAINT|CMAINT", true, false),
            (8, "FDRAIN", false, true),
            (9, "FMAINT|FDRAIN", true, false),
            (12, "CMAINT|FDRAIN", false, true),
            (16, "IDRAIN", false, true),
            (32, "RMAINT", true, false),
            (64, "HMAINT", false, false),
            (129, "FMAINT|128", true, false),
            (128, "128", false, false),
        ] {
            let bits = AdminBits::from_number(number);
            assert_eq!(bits.to_string(), shown);
            assert_eq!(
                (bits.is_maint(), bits.is_drain()),
                (maint, drain),
                "{number}"
            );
            assert_eq!(bits.is_ready(), !maint && !drain, "{number}");
            assert_eq!(bits.number(), number);
        }
    }
}
