//! The conditions of `.if` and `.elif`: decided where they can be, and openly undecided where they cannot.
//!
//! A condition about the build (`feature`, `enabled`, the TLS library) depends on a binary that we do not have, one
//! about the version on a version that we may not have been told. Both branches of such a condition are kept.

use super::environment::Environment;
use crate::version::HaproxyVersion;

/// Roughly how deep HAProxy lets expressions nest; our bound is the same, for the same reason: the stack.
const DEEPEST: usize = 100;

/// What a condition comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It depends on something that we do not know.
    Undecided,
}

impl Truth {
    fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Undecided => Self::Undecided,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, Self::True) => Self::True,
            _ => Self::Undecided,
        }
    }

    fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }
}

/// What is known when a condition is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The variables at this line.
    pub(super) environment: &'a Environment,
    /// The HAProxy that will read the file, when it is known.
    pub(super) version: Option<HaproxyVersion>,
}

/// Why HAProxy refuses a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HAProxy cannot read the condition from here on: {rest:?}")]
pub(super) struct ConditionError {
    /// The first text that makes no sense.
    pub(super) rest: String,
}

/// Decides a condition, given as the words of its line joined by single blanks. An empty one does not hold.
///
/// # Errors
///
/// When every HAProxy refuses it. A predicate that we do not know is undecided: a newer HAProxy may have it.
pub(super) fn decide(condition: &str, known: Known<'_>) -> Result<Truth, ConditionError> {
    let mut reader = Reader {
        rest: condition.trim_start_matches([' ', '\t']),
        known,
        depth: 0,
    };
    if reader.rest.is_empty() {
        return Ok(Truth::False);
    }
    let truth = reader.any_of()?;
    reader.skip_blanks();
    if reader.rest.is_empty() {
        Ok(truth)
    } else {
        Err(reader.error())
    }
}

struct Reader<'a> {
    rest: &'a str,
    known: Known<'a>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, expected: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(expected) else {
            return false;
        };
        self.rest = rest;
        true
    }

    fn error(&self) -> ConditionError {
        ConditionError {
            rest: self.rest.chars().take(80).collect(),
        }
    }

    /// `a || b || …`; HAProxy reads all of it, even what can no longer matter.
    fn any_of(&mut self) -> Result<Truth, ConditionError> {
        let mut truth = self.all_of()?;
        loop {
            self.skip_blanks();
            if !self.take("||") {
                return Ok(truth);
            }
            truth = truth.or(self.all_of()?);
        }
    }

    /// `a && b && …`.
    fn all_of(&mut self) -> Result<Truth, ConditionError> {
        let mut truth = self.term()?;
        loop {
            self.skip_blanks();
            if !self.take("&&") {
                return Ok(truth);
            }
            truth = truth.and(self.term()?);
        }
    }

    fn term(&mut self) -> Result<Truth, ConditionError> {
        self.skip_blanks();
        let mut negated = false;
        while self.take("!") {
            negated = !negated;
            self.skip_blanks();
        }
        let truth = if let Some(number) = self.number() {
            Truth::of(number)
        } else if self.take("(") {
            self.parenthesis()?
        } else {
            self.predicate()?
        };
        Ok(if negated { truth.not() } else { truth })
    }

    /// A number as C's `strtol` reads it (base 0): true unless it is zero.
    fn number(&mut self) -> Option<bool> {
        let unsigned = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
        let (digits, radix) = match unsigned
            .strip_prefix("0x")
            .or_else(|| unsigned.strip_prefix("0X"))
        {
            Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => (hex, 16),
            _ => (unsigned, if unsigned.starts_with('0') { 8 } else { 10 }),
        };
        let length = digits
            .find(|c: char| !c.is_digit(radix))
            .unwrap_or(digits.len());
        let (digits, rest) = digits.split_at(length);
        if digits.is_empty() {
            return None;
        }
        self.rest = rest;
        Some(digits.bytes().any(|digit| digit != b'0'))
    }

    fn parenthesis(&mut self) -> Result<Truth, ConditionError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error());
        }
        let truth = self.any_of()?;
        self.depth -= 1;
        self.skip_blanks();
        if self.take(")") {
            Ok(truth)
        } else {
            Err(self.error())
        }
    }

    fn predicate(&mut self) -> Result<Truth, ConditionError> {
        let length = self
            .rest
            .find([' ', '(', '\t', '&', '|', ')'])
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        if name.is_empty() {
            return Err(self.error());
        }
        let before = self.rest;
        self.rest = rest;
        let arguments = self.arguments()?;
        let [first, second] =
            [arguments.first(), arguments.get(1)].map(|text| text.copied().unwrap_or_default());
        let wanted = match name {
            "defined" | "version_atleast" | "version_before" => 0..=1,
            "streq" | "strneq" | "strstr" => 2..=2,
            _ => return Ok(Truth::Undecided),
        };
        if !wanted.contains(&arguments.len()) {
            self.rest = before;
            return Err(self.error());
        }
        // HAProxy unquotes the arguments a second time; where that could matter we do not guess.
        if arguments
            .iter()
            .any(|argument| argument.contains(['"', '\'', '\\']))
        {
            return Ok(Truth::Undecided);
        }
        Ok(match name {
            "defined" => Truth::of(self.known.environment.get(first).is_some()),
            "streq" => Truth::of(first == second),
            "strneq" => Truth::of(first != second),
            "strstr" => Truth::of(first.contains(second)),
            "version_atleast" => self.version_is_at_least(first),
            _ => self.version_is_at_least(first).not(),
        })
    }

    fn version_is_at_least(&self, text: &str) -> Truth {
        match (self.known.version, text.parse::<HaproxyVersion>()) {
            (Some(version), Ok(wanted)) => Truth::of(version >= wanted),
            _ => Truth::Undecided,
        }
    }

    /// `(a,b)`, blanks and all; no parenthesis is no argument.
    fn arguments(&mut self) -> Result<Vec<&'a str>, ConditionError> {
        if !self.take("(") {
            return Ok(Vec::new());
        }
        let end = self.rest.find(')').ok_or_else(|| self.error())?;
        let (inside, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.take(")");
        Ok(if inside.is_empty() {
            Vec::new()
        } else {
            inside.split(',').collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(condition: &str) -> Option<Truth> {
        let environment = Environment::from_pairs([("A", "va")]);
        let version = Some(HaproxyVersion::new(2, 8, 25));
        decide(
            condition,
            Known {
                environment: &environment,
                version,
            },
        )
        .ok()
    }

    /// Every line of this table but those about the build was put to HAProxy 2.8.25.
    #[test]
    fn conditions_as_haproxy_decides_them() {
        use Truth::{False, True, Undecided};
        for (condition, want) in [
            ("1", Some(True)),
            ("0", Some(False)),
            ("-1", Some(True)),
            ("0x10", Some(True)),
            ("010", Some(True)),
            ("", Some(False)),
            ("!1", Some(False)),
            ("! ! 1", Some(True)),
            ("(1)", Some(True)),
            ("( 0 || 1 ) && !0", Some(True)),
            ("1 && 0 || 1", Some(True)),
            ("1||0", Some(True)),
            ("1&&0", Some(False)),
            ("defined(A)", Some(True)),
            ("defined(NOPE)", Some(False)),
            ("defined( A )", Some(False)),
            ("defined()", Some(False)),
            ("defined", Some(False)),
            ("streq(va,va)", Some(True)),
            ("streq(va, va)", Some(False)),
            ("streq(va,va )", Some(False)),
            ("streq(a b,a b)", Some(True)),
            ("streq(,)", Some(True)),
            ("strneq(a,b)", Some(True)),
            ("strstr(abc,b)", Some(True)),
            ("version_atleast(2)", Some(True)),
            ("version_atleast(2.8)", Some(True)),
            ("version_atleast(2.8.25)", Some(True)),
            ("version_atleast(2.8.26)", Some(False)),
            ("version_atleast(2.8-dev3)", Some(True)),
            ("version_before(2.9)", Some(True)),
            ("feature(OPENSSL)", Some(Undecided)),
            ("enabled(POLL)", Some(Undecided)),
            ("feature(OPENSSL) && 0", Some(False)),
            ("feature(OPENSSL) || 1", Some(True)),
            ("!feature(OPENSSL)", Some(Undecided)),
            ("streq(a)", None),
            ("streq(a,b,c)", None),
            ("streq", None),
            ("1 2", None),
            ("1 &&", None),
            ("|| 1", None),
            ("(1", None),
        ] {
            assert_eq!(truth(condition), want, "{condition}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |levels: usize| format!("{}1{}", "(".repeat(levels), ")".repeat(levels));
        assert_eq!(truth(&deep(50)), Some(Truth::True));
        assert_eq!(truth(&deep(100_000)), None);
    }

    #[test]
    fn an_unknown_version_decides_nothing() {
        let known = Known {
            environment: &Environment::default(),
            version: None,
        };
        assert_eq!(decide("version_atleast(2.8)", known), Ok(Truth::Undecided));
    }
}
