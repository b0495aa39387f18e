//! HAProxy's version numbers, as far as decisions need them.

use std::fmt;
use std::str::FromStr;

/// A release, e.g. 2.8.25. A development version sorts before the release that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HaproxyVersion {
    /// The branch's first number.
    pub major: u16,
    /// The branch's second number.
    pub minor: u16,
    /// Before `dev` and `patch`, so that the derived order puts development versions first.
    released: bool,
    dev: u16,
    /// The number within the branch.
    pub patch: u16,
}

/// Why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not begin like a HAProxy version, e.g. 2.8.25")]
pub struct VersionError(String);

impl HaproxyVersion {
    /// A release of the branch `major.minor`.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            released: true,
            dev: 0,
            patch,
        }
    }

    /// The branch alone, e.g. `(2, 8)`.
    pub const fn branch(self) -> (u16, u16) {
        (self.major, self.minor)
    }
}

impl FromStr for HaproxyVersion {
    type Err = VersionError;

    /// Reads `2.8.25`, `2.8.25-5cf5d0683`, `3.3-dev4`, `2.8`, `2`; what follows the numbers is left alone.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut rest = text.trim();
        let error = || VersionError(text.chars().take(40).collect());
        let major = take_number(&mut rest).ok_or_else(error)?;
        let minor = after(&mut rest, ".").unwrap_or(0);
        let dev = after(&mut rest, "-dev");
        let patch = after(&mut rest, ".").unwrap_or(0);
        Ok(Self {
            major,
            minor,
            released: dev.is_none(),
            dev: dev.unwrap_or(0),
            patch,
        })
    }
}

fn after(rest: &mut &str, prefix: &str) -> Option<u16> {
    let mut behind = rest.strip_prefix(prefix)?;
    let number = take_number(&mut behind)?;
    *rest = behind;
    Some(number)
}

fn take_number(rest: &mut &str) -> Option<u16> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, behind) = rest.split_at(end);
    let number = digits.parse().ok()?;
    *rest = behind;
    Some(number)
}

impl fmt::Display for HaproxyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if !self.released {
            write!(f, "-dev{}", self.dev)?;
        }
        if self.released || self.patch != 0 {
            write!(f, ".{}", self.patch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_haproxy_writes_them() {
        for (text, shown) in [
            ("2.8.25-5cf5d0683", "2.8.25"),
            ("2.8", "2.8.0"),
            ("2", "2.0.0"),
            ("3.3-dev4", "3.3-dev4"),
            ("2.6.12-1+deb12u3", "2.6.12"),
        ] {
            assert_eq!(
                text.parse::<HaproxyVersion>().unwrap().to_string(),
                shown,
                "{text}"
            );
        }
        for text in ["", "x", ".8", "99999.1"] {
            assert!(text.parse::<HaproxyVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn order() {
        let sorted = [
            "2.2.9", "2.8-dev3", "2.8-dev4", "2.8", "2.8.2", "2.8.25", "3.0.11",
        ];
        for pair in sorted.windows(2) {
            let [earlier, later]: [HaproxyVersion; 2] =
                [pair[0].parse().unwrap(), pair[1].parse().unwrap()];
            assert!(earlier < later, "{earlier} {later}");
        }
    }
}
