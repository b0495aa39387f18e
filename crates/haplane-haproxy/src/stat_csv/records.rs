//! Lines and fields of HAProxy's CSV: commas between fields, and one after the last; a field with a comma, a quotation
//! mark or a line end in it stands in quotation marks, those inside it doubled.

use std::borrow::Cow;

use super::StatError;

/// One line of the text, taken apart; a quoted line end may stretch it over several.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) line: usize,
    pub(super) fields: Vec<Cow<'a, str>>,
}

/// The records before the empty line that ends the answer, one at a time: a record has up to 208 fields, and an answer
/// up to tens of thousands of records.
pub(super) struct Records<'a> {
    reader: Reader<'a>,
    ended: bool,
}

impl<'a> Records<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let rest = text.trim_start_matches('\n');
        let line = 1 + text.len() - rest.len();
        Self {
            reader: Reader { rest, line },
            ended: false,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, StatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.reader.take('\n') {
            self.ended = true;
            return None;
        }
        let record = if self.reader.rest.is_empty() {
            Err(StatError::CutShort {
                line: self.reader.line,
            })
        } else {
            self.reader.record()
        };
        self.ended = record.is_err();
        Some(record)
    }
}

/// At most 80 characters of a text, for a message.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Takes `expected` away if it comes next.
    fn take(&mut self, expected: char) -> bool {
        let Some(rest) = self.rest.strip_prefix(expected) else {
            return false;
        };
        self.rest = rest;
        self.line += usize::from(expected == '\n');
        true
    }

    /// One record up to and with its line end. The comma that HAProxy writes after the last field ends no further field.
    fn record(&mut self) -> Result<Record<'a>, StatError> {
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(if self.rest.starts_with('"') {
                Cow::Owned(self.quoted()?)
            } else {
                Cow::Borrowed(self.plain()?)
            });
            if self.take(',') && !self.rest.starts_with('\n') {
                continue;
            }
            if self.take('\n') {
                return Ok(Record { line, fields });
            }
            return Err(self.broken_off());
        }
    }

    fn broken_off(&self) -> StatError {
        if self.rest.is_empty() {
            StatError::CutShort { line: self.line }
        } else {
            StatError::Quote { line: self.line }
        }
    }

    fn plain(&mut self) -> Result<&'a str, StatError> {
        let end = self
            .rest
            .find([',', '\n'])
            .ok_or(StatError::CutShort { line: self.line })?;
        let (field, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(field)
    }

    fn quoted(&mut self) -> Result<String, StatError> {
        let mut field = String::new();
        self.take('"');
        loop {
            let Some(end) = self.rest.find('"') else {
                return Err(StatError::CutShort { line: self.line });
            };
            let (inside, rest) = self.rest.split_at(end);
            field.push_str(inside);
            self.line += inside.matches('\n').count();
            self.rest = rest;
            self.take('"');
            if !self.take('"') {
                return Ok(field);
            }
            field.push('"');
        }
    }
}
