//! Lines and fields of HAProxy's CSV: commas between fields, and one after the last; a field with a comma, a quotation
//! mark or a line end in it stands in quotation marks, those inside it doubled.

use super::StatError;

/// One line of the text, taken apart; a quoted line end may stretch it over several.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

/// All records before the empty line that ends the answer.
pub(super) fn read(text: &str) -> Result<Vec<Record>, StatError> {
    let mut reader = Reader {
        rest: text,
        line: 1,
    };
    let mut records = Vec::new();
    loop {
        if reader.rest.is_empty() {
            return Err(match records.first() {
                Some(Record { fields, .. })
                    if !fields.first().is_some_and(|name| name.starts_with("# ")) =>
                {
                    StatError::Header {
                        found: shorten(&fields.join(",")),
                    }
                }
                _ => StatError::CutShort { line: reader.line },
            });
        }
        if reader.take('\n') {
            if records.is_empty() {
                continue;
            }
            return Ok(records);
        }
        records.push(reader.record()?);
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

impl Reader<'_> {
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
    fn record(&mut self) -> Result<Record, StatError> {
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(if self.rest.starts_with('"') {
                self.quoted()?
            } else {
                self.plain()?
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

    fn plain(&mut self) -> Result<String, StatError> {
        let end = self
            .rest
            .find([',', '\n'])
            .ok_or(StatError::CutShort { line: self.line })?;
        let (field, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(field.to_owned())
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
