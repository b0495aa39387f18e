//! One line of haproxy.cfg, taken apart as HAProxy takes it apart.
//!
//! The rules were learnt from HAProxy 2.8 itself (`haproxy -dC` prints the words it sees) and are held to it by the
//! parity tests: quotes and escapes, `#`, variables inside double quotes only, `${NAME-default}`, `${NAME[*]}`, at most 64
//! words. There is no continuation of lines: a backslash at the end of a line is a backslash.

use std::ops::Range;

use super::environment::{Environment, Pseudo};

/// As many words as HAProxy takes from one line.
pub const MAX_WORDS: usize = 64;

/// The most bytes that variables may add to one line.
const MAX_FROM_VARIABLES: usize = 1 << 20;

/// One word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// What HAProxy sees: quotes and escapes resolved, variables replaced. Bytes that are not UTF-8 show as `U+FFFD`.
    pub text: Box<str>,
    /// Where it stands in its line, in bytes, quotes included.
    pub range: Range<u32>,
    /// Whether the value of a variable is part of it: the text is then only as certain as the environment.
    pub from_variable: bool,
}

/// A line taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lexed {
    /// The words, comments left out.
    pub(super) words: Vec<Word>,
    /// Where the comment starts, at its `#`, in bytes.
    pub(super) comment: Option<u32>,
    /// Variables that were asked for, have no default and are not set.
    pub(super) unset: Vec<Box<str>>,
    /// Why HAProxy refuses the line, if it does; the words before the fault are kept.
    pub(super) fault: Option<Fault>,
}

/// Why HAProxy refuses a line, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is wrong.
    pub(super) kind: FaultKind,
    /// The byte in the line that HAProxy points at.
    pub(super) at: u32,
}

/// What can be wrong in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FaultKind {
    /// A quotation mark without its partner.
    #[error("this quotation mark has no partner on the line")]
    UnmatchedQuote,
    /// `${NAME` without `}`.
    #[error("this `${{` has no matching `}}`")]
    UnmatchedBrace,
    /// `$` before something that cannot be a variable name.
    #[error(
        "a variable name starts with a letter or `_`; write `\\$` for a dollar sign inside double quotes"
    )]
    VariableName,
    /// `\x` without two hexadecimal digits.
    #[error("`\\x` needs two hexadecimal digits")]
    Hexadecimal,
    /// `${NAME[` without `*]`.
    #[error("`[` in a variable is only understood as `[*]`")]
    WordExpansion,
    /// Variables made of variables, again and again: HAProxy sets no bound to their memory, we do.
    #[error("not read: the variables on this line come to more than {MAX_FROM_VARIABLES} bytes")]
    TooMuchFromVariables,
    /// More words than HAProxy takes.
    #[error("HAProxy takes at most {MAX_WORDS} words from one line")]
    TooManyWords,
}

/// Takes `line`, without its line end, apart.
pub(super) fn lex(line: &[u8], environment: &Environment, pseudo: &Pseudo<'_>) -> Lexed {
    let mut lexer = Lexer {
        line,
        at: 0,
        environment,
        pseudo,
        single: None,
        double: None,
        word: WordBuilder::default(),
        from_variables: 0,
        lexed: Lexed::default(),
    };
    lexer.skip_blanks();
    lexer.word.start = lexer.at;
    if let Err(fault) = lexer.run() {
        lexer.lexed.fault = Some(fault);
    }
    lexer.finish()
}

/// What C's `isspace` takes for a blank.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[derive(Default)]
struct WordBuilder {
    text: Vec<u8>,
    start: usize,
    from_variable: bool,
}

struct Lexer<'a> {
    line: &'a [u8],
    at: usize,
    environment: &'a Environment,
    pseudo: &'a Pseudo<'a>,
    /// Where the open single quote stands.
    single: Option<usize>,
    /// Where the open double quote stands.
    double: Option<usize>,
    word: WordBuilder,
    from_variables: usize,
    lexed: Lexed,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn peek_at(&self, offset: usize) -> Option<u8> {
        self.line.get(self.at + offset).copied()
    }

    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.at += 1;
        }
    }

    fn skip_blanks(&mut self) {
        self.skip_while(is_blank);
    }

    fn quoted(&self) -> bool {
        self.single.is_some() || self.double.is_some()
    }

    fn run(&mut self) -> Result<(), Fault> {
        while let Some(byte) = self.peek() {
            match byte {
                // A carriage return ends the line wherever it stands, as in files from other systems.
                b'\n' | b'\r' | 0 => break,
                b'#' if !self.quoted() => {
                    self.lexed.comment = Some(offset(self.at));
                    break;
                }
                b'"' if self.single.is_none() => {
                    self.double = self.double.is_none().then_some(self.at);
                    self.at += 1;
                }
                b'\'' if self.double.is_none() => {
                    self.single = self.single.is_none().then_some(self.at);
                    self.at += 1;
                }
                b'\\' if self.single.is_none() => self.escape()?,
                _ if is_blank(byte) && !self.quoted() => {
                    let end = self.at;
                    self.skip_blanks();
                    self.end_word(end)?;
                }
                b'$' if self.double.is_some() => self.variable()?,
                _ => {
                    self.word.text.push(byte);
                    self.at += 1;
                }
            }
        }
        match self.single.or(self.double) {
            Some(at) => Err(fault(FaultKind::UnmatchedQuote, at)),
            None => Ok(()),
        }
    }

    /// A backslash: some combinations stand for one character, all others for themselves.
    fn escape(&mut self) -> Result<(), Fault> {
        let next = self.peek_at(1);
        let (byte, length) = match next {
            Some(byte @ (b' ' | b'\\' | b'#' | b'\'' | b'"')) => (byte, 2),
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'$') if self.double.is_some() => (b'$', 2),
            Some(b'x') => {
                let digits = self
                    .peek_at(2)
                    .and_then(hex)
                    .zip(self.peek_at(3).and_then(hex));
                let (high, low) = digits.ok_or_else(|| fault(FaultKind::Hexadecimal, self.at))?;
                (high << 4 | low, 4)
            }
            _ => (b'\\', 1),
        };
        self.word.text.push(byte);
        self.at += length;
        Ok(())
    }

    /// `$NAME`, `${NAME}`, `${NAME-default}`, `${NAME[*]}`, inside double quotes.
    fn variable(&mut self) -> Result<(), Fault> {
        self.at += 1;
        let brace = (self.peek() == Some(b'{')).then_some(self.at);
        self.at += usize::from(brace.is_some());
        let name_start = self.at;
        let name = self.variable_name()?;
        let is_pseudo = name.starts_with('.');
        let mut value = if is_pseudo {
            self.pseudo
                .get(&name)
                .ok_or_else(|| fault(FaultKind::VariableName, name_start))?
        } else {
            self.environment.get(&name).map(str::to_owned)
        }
        .map(String::into_bytes);
        let mut expand = false;
        if let Some(brace) = brace {
            expand = self.word_expansion()?;
            let default = self.variable_default();
            value = value.or_else(|| default.map(<[u8]>::to_owned));
            if self.peek() != Some(b'}') {
                return Err(fault(FaultKind::UnmatchedBrace, brace));
            }
            self.at += 1;
        }
        self.word.from_variable = true;
        self.from_variables += value.as_ref().map_or(0, Vec::len);
        if self.from_variables > MAX_FROM_VARIABLES {
            return Err(fault(FaultKind::TooMuchFromVariables, name_start));
        }
        match value {
            Some(value) if expand => self.expand(&value)?,
            Some(value) => self.word.text.extend_from_slice(&value),
            None if is_pseudo => {}
            None => {
                self.lexed.unset.push(name.into());
                self.swallow_quote();
            }
        }
        Ok(())
    }

    /// A name that can be a variable's, or one of HAProxy's own that start with a dot.
    fn variable_name(&mut self) -> Result<String, Fault> {
        let start = self.at;
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.');
        if !self.peek().is_some_and(is_first) {
            return Err(fault(FaultKind::VariableName, start));
        }
        self.at += 1;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let name = self.line.get(start..self.at).unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// `[*]`, if it stands here: the value becomes several words.
    fn word_expansion(&mut self) -> Result<bool, Fault> {
        if self.peek() != Some(b'[') {
            return Ok(false);
        }
        if self.peek_at(1) != Some(b'*') || self.peek_at(2) != Some(b']') {
            return Err(fault(FaultKind::WordExpansion, self.at));
        }
        self.at += 3;
        Ok(true)
    }

    /// `-default`, if it stands here: all up to the closing brace.
    fn variable_default(&mut self) -> Option<&[u8]> {
        if self.peek() != Some(b'-') {
            return None;
        }
        let start = self.at + 1;
        self.skip_while(|byte| byte != b'}');
        self.line.get(start..self.at)
    }

    /// HAProxy drops the closing quote after an unset variable, and the blanks behind it, so that `"${UNSET}"` is no
    /// empty word; it also glues the next word on.
    fn swallow_quote(&mut self) {
        if self.peek() == Some(b'"') {
            self.at += 1;
            self.skip_blanks();
            self.double = None;
        }
    }

    /// Every run of blanks in the value starts a new word.
    fn expand(&mut self, value: &[u8]) -> Result<(), Fault> {
        let mut bytes = value.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            if is_blank(byte) {
                while bytes.next_if(|byte| is_blank(*byte)).is_some() {}
                self.end_word(self.at)?;
                self.word.from_variable = true;
            } else {
                self.word.text.push(byte);
            }
        }
        Ok(())
    }

    fn end_word(&mut self, end: usize) -> Result<(), Fault> {
        let word = std::mem::replace(
            &mut self.word,
            WordBuilder {
                start: self.at,
                ..WordBuilder::default()
            },
        );
        self.lexed.words.push(finished(&word, end));
        // HAProxy makes room for the next word before it knows whether there is one: a blank after the last counts.
        if self.lexed.words.len() == MAX_WORDS {
            return Err(fault(FaultKind::TooManyWords, end));
        }
        Ok(())
    }

    /// The last word; an empty one behind trailing blanks is none.
    fn finish(mut self) -> Lexed {
        let word = std::mem::take(&mut self.word);
        if !word.text.is_empty() {
            self.lexed.words.push(finished(&word, self.at));
        }
        self.lexed
    }
}

fn finished(word: &WordBuilder, end: usize) -> Word {
    // HAProxy's words are C strings: a NUL written as `\x00` ends them.
    let length = word
        .text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(word.text.len());
    let text = word.text.get(..length).unwrap_or_default();
    Word {
        text: String::from_utf8_lossy(text).into(),
        range: offset(word.start)..offset(end),
        from_variable: word.from_variable,
    }
}

fn fault(kind: FaultKind, at: usize) -> Fault {
    Fault {
        kind,
        at: offset(at),
    }
}

/// Lines are far shorter than 4 GiB: the parser refuses larger files.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests;
