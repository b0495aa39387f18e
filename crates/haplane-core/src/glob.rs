//! Globs over names: `web/*us-east1-b*`.

use std::fmt;
use std::str::FromStr;

/// A pattern over keys and rows. `*` is any text within one segment, `**` also across `/`, `?` one
/// character within a segment; everything else is itself.
///
/// A star stays within its segment, so that `web*` does not quietly match every row of every
/// backend whose name starts with `web`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Within,
    Across,
}

/// A pattern of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a glob cannot be empty")]
pub struct EmptyGlob;

impl Glob {
    /// Whether a text is a glob and not a name.
    pub(crate) fn is_glob(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// Whether the whole name fits. The time is bounded by pattern times name.
    pub fn matches(&self, name: &str) -> bool {
        // `reached[i]`: the first i tokens fit what was read so far.
        let mut reached = vec![false; self.tokens.len() + 1];
        set(&mut reached, 0);
        self.skip_stars(&mut reached);
        for c in name.chars() {
            let mut next = vec![false; reached.len()];
            for (i, token) in self.tokens.iter().enumerate() {
                if !reached.get(i).copied().unwrap_or(false) {
                    continue;
                }
                match token {
                    Token::Char(own) if *own == c => set(&mut next, i + 1),
                    Token::One if c != '/' => set(&mut next, i + 1),
                    Token::Within if c != '/' => set(&mut next, i),
                    Token::Across => set(&mut next, i),
                    _ => {}
                }
            }
            self.skip_stars(&mut next);
            reached = next;
        }
        reached.last().copied().unwrap_or(false)
    }

    /// A star may stand for nothing.
    fn skip_stars(&self, reached: &mut [bool]) {
        for (i, token) in self.tokens.iter().enumerate() {
            let star = matches!(token, Token::Within | Token::Across);
            if star && reached.get(i).copied().unwrap_or(false) {
                set(reached, i + 1);
            }
        }
    }
}

fn set(states: &mut [bool], at: usize) {
    if let Some(state) = states.get_mut(at) {
        *state = true;
    }
}

impl FromStr for Glob {
    type Err = EmptyGlob;

    fn from_str(text: &str) -> Result<Self, EmptyGlob> {
        if text.is_empty() {
            return Err(EmptyGlob);
        }
        let mut tokens = Vec::with_capacity(text.len());
        for c in text.chars() {
            let token = match (c, tokens.last()) {
                ('*', Some(Token::Within | Token::Across)) => {
                    tokens.pop();
                    Token::Across
                }
                ('*', _) => Token::Within,
                ('?', _) => Token::One,
                (other, _) => Token::Char(other),
            };
            tokens.push(token);
        }
        Ok(Self {
            text: text.to_owned(),
            tokens,
        })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stay_within_a_segment() {
        for (pattern, name, fits) in [
            ("web/*us-east1-b*", "web/gke-us-east1-b-web", true),
            ("web/*us-east1-b*", "api/gke-us-east1-b-web", false),
            ("canary_*/*", "canary_web/a", true),
            ("*/*-cny-*", "web/gke-cny-web", true),
            ("*/*-cny-*", "web/gke-main-web", false),
            ("web*", "web/a", false),
            ("web**", "web/a", true),
            ("**", "zone/us/b", true),
            ("*", "zone/us", false),
            ("*", "canary", true),
            ("web/?", "web/a", true),
            ("web/?", "web/", false),
            ("web/?", "web/ab", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("ключ*", "ключи", true),
        ] {
            let glob: Glob = pattern.parse().unwrap();
            assert_eq!(glob.matches(name), fits, "{pattern} {name}");
        }
        assert!(Glob::is_glob("web/*") && !Glob::is_glob("web/a"));
        assert_eq!("".parse::<Glob>(), Err(EmptyGlob));
    }

    proptest! {
        #[test]
        fn a_name_fits_itself_and_everything_fits_two_stars(name in "[a-z/.-]{1,40}") {
            prop_assert!(name.parse::<Glob>().unwrap().matches(&name));
            prop_assert!("**".parse::<Glob>().unwrap().matches(&name));
        }

        #[test]
        fn many_stars_take_no_time(name in "a{0,200}") {
            let glob: Glob = "*a".repeat(60).parse().unwrap();
            let _ = glob.matches(&name);
        }
    }
}
