//! What HAProxy asks: the words of `agent-send`, understood whole or refused.

use haplane_haproxy::Percent;

use crate::key::Key;

/// The longest line, without its line end.
pub const MAX_BYTES: usize = 4096;
/// The most keys in one line.
pub const MAX_KEYS: usize = 16;

/// One line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A slot that holds no instance (`@free …`): it must stay out of rotation.
    Free,
    /// A row: its own key first, then its groups, in order of precedence.
    Row(Row),
}

/// A row that asks for its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The keys to look up, the first one with a value decides. Never empty.
    pub keys: Vec<Key>,
    /// `@up`: the row starts with agent health 0 and needs the word `up` once to come up.
    pub up: bool,
    /// `@N%`: the instance's own weight, which scales whatever is answered.
    pub scale: Option<Percent>,
}

/// Why a line is refused. The connection is then closed without a byte, which changes nothing in
/// HAProxy (facts 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// Nothing but blanks.
    #[error("the line is empty")]
    Empty,
    /// Bytes that are not text.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// More than [`MAX_BYTES`].
    #[error("the line is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// More than [`MAX_KEYS`] keys.
    #[error("the line has more than {MAX_KEYS} keys")]
    TooManyWords,
    /// A word that cannot be a key.
    #[error("a word of the line cannot be a key")]
    BadKey,
    /// A word that starts with `@` and is none that we know, or contradicts another.
    #[error("a word of the line starts with @ and is none of @free, @up, @N%")]
    BadWord,
    /// `@free` behind another word.
    #[error("@free is not the first word of the line")]
    FreeNotFirst,
    /// Only `@` words: there is no row to speak for.
    #[error("the line has no key")]
    NoKey,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::NotUtf8,
        Self::TooLong,
        Self::TooManyWords,
        Self::BadKey,
        Self::BadWord,
        Self::FreeNotFirst,
        Self::NoKey,
    ];

    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NotUtf8 => "not_utf8",
            Self::TooLong => "too_long",
            Self::TooManyWords => "too_many_words",
            Self::BadKey => "bad_key",
            Self::BadWord => "bad_word",
            Self::FreeNotFirst => "free_not_first",
            Self::NoKey => "no_key",
        }
    }
}

const FREE: &str = "@free";

impl Ask {
    /// Reads one line, with or without its line end.
    pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_BYTES {
            return Err(Refusal::TooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| Refusal::NotUtf8)?;
        let mut words = text
            .split([' ', '\t'])
            .filter(|word| !word.is_empty())
            .peekable();
        let free = match words.peek() {
            None => return Err(Refusal::Empty),
            Some(&first) => first == FREE,
        };
        if free {
            words.next();
        }
        let row = Row::from_words(words)?;
        match row {
            _ if free => Ok(Self::Free),
            row if row.keys.is_empty() => Err(Refusal::NoKey),
            row => Ok(Self::Row(row)),
        }
    }
}

impl Row {
    fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, Refusal> {
        let mut row = Self {
            keys: Vec::new(),
            up: false,
            scale: None,
        };
        for word in words {
            match word.strip_prefix('@') {
                Some(special) => row.take_special(special)?,
                None if row.keys.len() == MAX_KEYS => return Err(Refusal::TooManyWords),
                None => row.keys.push(word.parse().map_err(|_| Refusal::BadKey)?),
            }
        }
        Ok(row)
    }

    fn take_special(&mut self, word: &str) -> Result<(), Refusal> {
        match word {
            "up" => self.up = true,
            "free" => return Err(Refusal::FreeNotFirst),
            weight => {
                let scale: Percent = weight.parse().map_err(|_| Refusal::BadWord)?;
                // Two weights contradict each other, and a weight of 0 is a drain in disguise.
                if scale.get() == 0 || self.scale.is_some() {
                    return Err(Refusal::BadWord);
                }
                self.scale = Some(scale);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(keys: &[&str], up: bool, scale: Option<u16>) -> Ask {
        let keys = keys.iter().map(|key| key.parse().unwrap()).collect();
        Ask::Row(Row {
            keys,
            up,
            scale: scale.and_then(Percent::new),
        })
    }

    #[test]
    fn lines_that_are_understood() {
        for (line, want) in [
            (
                "web/gke-cny-web canary\n",
                row(&["web/gke-cny-web", "canary"], false, None),
            ),
            ("web/a\r\n", row(&["web/a"], false, None)),
            ("web/a", row(&["web/a"], false, None)),
            (
                "  web/a \t canary  \n",
                row(&["web/a", "canary"], false, None),
            ),
            ("web/a @up canary\n", row(&["web/a", "canary"], true, None)),
            ("@50% web/a @up\n", row(&["web/a"], true, Some(50))),
            ("@free\n", Ask::Free),
            ("@free web/a @7%\n", Ask::Free),
        ] {
            assert_eq!(Ask::parse(line.as_bytes()), Ok(want), "{line:?}");
        }
    }

    #[test]
    fn lines_that_are_refused() {
        let keys_17 = (0..17)
            .map(|n| format!("k{n}"))
            .collect::<Vec<_>>()
            .join(" ");
        let too_long = "k".repeat(MAX_BYTES + 1);
        let cases: &[(&[u8], Refusal)] = &[
            (b"", Refusal::Empty),
            (b"\n", Refusal::Empty),
            (b"  \t\r\n", Refusal::Empty),
            (b"web/\xff\n", Refusal::NotUtf8),
            (too_long.as_bytes(), Refusal::TooLong),
            (keys_17.as_bytes(), Refusal::TooManyWords),
            (b"web/a ,", Refusal::BadKey),
            (b"web/a/ canary", Refusal::BadKey),
            (b"web/a\rcanary\n", Refusal::BadKey),
            (b"\x00\x01\n", Refusal::BadKey),
            (b"web/a @down", Refusal::BadWord),
            (b"web/a @", Refusal::BadWord),
            (b"web/a @0%", Refusal::BadWord),
            (b"web/a @257%", Refusal::BadWord),
            (b"web/a @10% @20%", Refusal::BadWord),
            (b"web/a @free", Refusal::FreeNotFirst),
            (b"@free @free", Refusal::FreeNotFirst),
            (b"@up @50%", Refusal::NoKey),
        ];
        for (line, why) in cases {
            assert_eq!(
                Ask::parse(line),
                Err(*why),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }

    proptest! {
        #[test]
        fn never_panics(line in any::<Vec<u8>>()) {
            let _ = Ask::parse(&line);
        }
    }
}
