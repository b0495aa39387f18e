//! One line of a configuration, and whether HAProxy acts on it.

use super::lexer::Word;
use super::section_kind::SectionKind;
use super::source::{FileId, Span};

/// Whether HAProxy acts on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It does.
    Active,
    /// It does not: the line stands in a branch not taken.
    Inactive,
    /// It stands in a branch whose condition we cannot decide: kept, and reported.
    Undecided,
}

/// One line with at least one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub file: FileId,
    /// The line's number, from 1.
    pub number: u32,
    /// The words as HAProxy sees them, without a `no` or `default` before the keyword.
    pub words: Vec<Word>,
    /// Where the comment starts, in bytes.
    pub comment: Option<u32>,
    /// Whether HAProxy acts on it.
    pub activity: Activity,
    /// What stood before the keyword.
    pub modifier: Modifier,
    /// The section that begins here.
    pub begins: Option<SectionKind>,
}

/// The words `no` and `default` before a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    /// Neither.
    None,
    /// `no`: switched off.
    No,
    /// `default`: back to HAProxy's default.
    Default,
}

impl Line {
    /// The keyword, as HAProxy sees it.
    pub fn keyword(&self) -> &str {
        self.argument(0)
    }

    /// The text of word `index`; empty when there is none, as in HAProxy.
    pub fn argument(&self, index: usize) -> &str {
        self.words
            .get(index)
            .map(|word| &*word.text)
            .unwrap_or_default()
    }

    /// Where word `index` stands; the end of the words when there is none.
    pub fn span_of(&self, index: usize) -> Span {
        let last_end = self.words.last().map_or(0, |word| word.range.end);
        let range = self
            .words
            .get(index)
            .map_or(last_end..last_end, |word| word.range.clone());
        Span {
            file: self.file,
            line: self.number,
            start: range.start,
            end: range.end,
        }
    }

    /// From the first word to the last.
    pub fn span(&self) -> Span {
        let first = self.span_of(0);
        Span {
            end: self.words.last().map_or(first.end, |word| word.range.end),
            ..first
        }
    }
}
