//! The weight that an agent asks for: a percentage of the configured weight.

use std::fmt;
use std::str::FromStr;

/// `N%` of a server's configured weight, 0 to 256.
///
/// HAProxy truncates `percent * configured / 100` and caps the result at 256 (facts 2.2 g), so more
/// than `256%` never means more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Percent(u16);

/// Why a text is not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PercentError {
    /// Not digits followed by `%`, or a leading zero.
    #[error("a weight is written N% with a whole number from 0 to 256")]
    Form,
    /// More than 256.
    #[error("a weight is at most 256%")]
    Range,
}

impl Percent {
    /// The configured weight itself.
    pub const FULL: Self = Self(100);
    /// The largest percentage that means anything.
    pub const MAX: Self = Self(256);

    /// A percentage, if it is in range.
    pub const fn new(percent: u16) -> Option<Self> {
        if percent <= Self::MAX.0 {
            Some(Self(percent))
        } else {
            None
        }
    }

    /// The number before the `%` sign.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// This percentage of another one, rounded up, so that a small share never becomes none.
    #[must_use]
    pub fn scaled_by(self, other: Self) -> Self {
        let product = u32::from(self.0) * u32::from(other.0);
        let scaled = product.div_ceil(100).min(u32::from(Self::MAX.0));
        Self(u16::try_from(scaled).unwrap_or(Self::MAX.0))
    }
}

impl FromStr for Percent {
    type Err = PercentError;

    /// `N%`: ASCII digits without a leading zero, nothing else. HAProxy itself reads `33.5%` and
    /// `50%x` with a warning and no effect (facts 1), so neither is a weight here.
    fn from_str(text: &str) -> Result<Self, PercentError> {
        let digits = text.strip_suffix('%').ok_or(PercentError::Form)?;
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        if !plain || leading_zero {
            return Err(PercentError::Form);
        }
        let number: u16 = digits.parse().map_err(|_| PercentError::Range)?;
        Self::new(number).ok_or(PercentError::Range)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whole_percentages_only() {
        for (text, want) in [
            ("0%", Ok(0)),
            ("50%", Ok(50)),
            ("256%", Ok(256)),
            ("257%", Err(PercentError::Range)),
            ("99999999%", Err(PercentError::Range)),
            ("050%", Err(PercentError::Form)),
            ("33.5%", Err(PercentError::Form)),
            ("-5%", Err(PercentError::Form)),
            ("+5%", Err(PercentError::Form)),
            ("50", Err(PercentError::Form)),
            ("%", Err(PercentError::Form)),
            ("", Err(PercentError::Form)),
        ] {
            assert_eq!(text.parse::<Percent>().map(Percent::get), want, "{text:?}");
        }
    }

    #[test]
    fn scaling_rounds_up_and_is_capped() {
        let percent = |n| Percent::new(n).unwrap();
        assert_eq!(percent(50).scaled_by(percent(25)), percent(13));
        assert_eq!(percent(1).scaled_by(percent(1)), percent(1));
        assert_eq!(percent(0).scaled_by(percent(200)), percent(0));
        assert_eq!(percent(256).scaled_by(percent(256)), Percent::MAX);
    }
}
