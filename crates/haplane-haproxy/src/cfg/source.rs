//! Files, lines and places: where everything in a configuration stands.

use std::ops::Range;

use super::limits;

/// One configuration file: a name for messages, and its bytes as they came.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceFile {
    name: String,
    bytes: Vec<u8>,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl SourceFile {
    /// A file by its name and content. The name is what HAProxy shows as `${.FILE}` and what findings point to.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let ends = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1);
        let starts = std::iter::once(0)
            .chain(ends)
            .filter(|start| *start < bytes.len());
        // One more than is ever read, so that a file that goes on is not taken for one that ends there.
        let starts = starts.take(limits::LINES + 1).collect();
        Self {
            name: name.into(),
            bytes,
            starts,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes as they came: printing a parsed file is printing these.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many lines there are, the last one counted whether or not it has a line end; of a million at most.
    pub fn line_count(&self) -> usize {
        self.starts.len()
    }

    /// Where line `number` (from 1) stands in the file, its line end left out.
    pub fn line_range(&self, number: u32) -> Range<usize> {
        let index = number.saturating_sub(1) as usize;
        let Some(start) = self.starts.get(index).copied() else {
            return self.bytes.len()..self.bytes.len();
        };
        let next = self
            .starts
            .get(index + 1)
            .copied()
            .unwrap_or(self.bytes.len());
        let end = if self.bytes.get(next.wrapping_sub(1)) == Some(&b'\n') {
            next - 1
        } else {
            next
        };
        start..end
    }

    /// The bytes of line `number` (from 1), its line end left out.
    pub fn line(&self, number: u32) -> &[u8] {
        self.bytes.get(self.line_range(number)).unwrap_or_default()
    }

    /// Whether the last line ends with a line feed; an empty file counts as ended.
    pub fn ends_with_line_feed(&self) -> bool {
        self.bytes.last().is_none_or(|byte| *byte == b'\n')
    }
}

impl std::fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SourceFile({}, {} bytes)", self.name, self.bytes.len())
    }
}

/// Which of the files, in the order in which HAProxy reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(super) u32);

impl FileId {
    /// The index into the list of files.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A stretch of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The line, from 1.
    pub line: u32,
    /// The first byte within the line.
    pub start: u32,
    /// The byte behind the last within the line.
    pub end: u32,
}

/// A place for people: a file, a line and a column, both from 1, the column in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// How many characters the stretch is long.
    pub width: u32,
    /// The whole line, bytes that are not UTF-8 replaced.
    pub text: String,
}

impl Location {
    /// Where `span` stands in `file`.
    pub(super) fn new(file: &SourceFile, span: Span) -> Self {
        let line = file.line(span.line);
        let characters = |range: Range<usize>| -> u32 {
            let bytes = line.get(range).unwrap_or_default();
            u32::try_from(String::from_utf8_lossy(bytes).chars().count()).unwrap_or(u32::MAX)
        };
        let start = (span.start as usize).min(line.len());
        let end = (span.end as usize).clamp(start, line.len());
        Self {
            file: file.name.clone(),
            line: span.line,
            column: characters(0..start).saturating_add(1),
            width: characters(start..end).max(1),
            text: String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned(),
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The files that HAProxy takes from a folder given with `-f`, in its order: those ending in `.cfg` that do not start
/// with a dot, by their bytes. Which of them are regular files is for the caller to know.
pub fn folder_order<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let taken = |name: &&str| {
        name.strip_suffix(".cfg")
            .is_some_and(|stem| !stem.is_empty() && !stem.starts_with('.'))
    };
    let mut names: Vec<&str> = names.into_iter().filter(taken).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_their_end() {
        for (text, want) in [
            ("", vec![]),
            ("\n", vec![""]),
            ("a", vec!["a"]),
            ("a\n", vec!["a"]),
            ("a\n\nb\r\nc", vec!["a", "", "b\r", "c"]),
        ] {
            let file = SourceFile::new("f", text);
            let lines: Vec<_> = (1..=u32::try_from(file.line_count()).unwrap())
                .map(|number| String::from_utf8_lossy(file.line(number)).into_owned())
                .collect();
            assert_eq!(lines, want, "{text:?}");
        }
        assert_eq!(SourceFile::new("f", "a\n").line(9), b"");
    }

    #[test]
    fn columns_count_characters() {
        let file = SourceFile::new("f", "é\u{1F600} server x\n");
        let span = Span {
            file: FileId(0),
            line: 1,
            start: 7,
            end: 13,
        };
        let location = Location::new(&file, span);
        assert_eq!(
            (location.to_string().as_str(), location.width),
            ("f:1:4", 6)
        );
    }

    #[test]
    fn a_folder_is_read_in_byte_order() {
        let names = [
            "b.cfg", ".x.cfg", "a.cfg", "B.cfg", "c.conf", ".cfg", "a.cfg~", "10.cfg", "9.cfg",
        ];
        assert_eq!(
            folder_order(names),
            ["10.cfg", "9.cfg", "B.cfg", "a.cfg", "b.cfg"]
        );
    }
}
