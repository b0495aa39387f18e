//! The lenient reader: a server-state file as a starting HAProxy takes it.
//!
//! HAProxy 2.6 and later drop a whole file for one broken line, and refuse a whole row for one value out of range; either
//! way they start, with a warning in a log that nobody reads. This reader says what they do and why. Its rules were
//! measured on 2.6.12 and 2.8.25, which agree (facts 6.3), and are held to both by the end-to-end tests.

use std::collections::HashMap;

use super::{AdminBits, COLUMNS_LONG, COLUMNS_SHORT, CheckBits, OpState};
use crate::names::RowKey;

/// The longest line that HAProxy reads whole, its line end included.
const LONGEST_LINE: usize = 1999;

/// The largest number of a check result (`srv_check_status`) that 2.6 and 2.8 take.
const LARGEST_CHECK_STATUS: i64 = 20;

/// The comment by which a file written by `haplane seed` is told from others.
pub const SEED_MARK: &str = "# haplane seed";

/// What a starting HAProxy does with the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It takes the rows.
    Loaded,
    /// Nothing is in it, not even the version.
    Empty,
    /// It drops the file, all of it.
    Dropped {
        /// The line, from 1, that it stumbles over.
        line: usize,
        /// Why.
        reason: DropReason,
    },
}

/// Why HAProxy drops a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// The first line is not just the version `1`. A line end of another system already makes it something else.
    #[error("the first line is not the version number 1 alone")]
    Version,
    /// A line without a line feed: the last one of a file that was cut short.
    #[error("the line has no line end, as in a file that was cut short")]
    NoLineFeed,
    /// A line that HAProxy cannot hold, or one with a NUL byte in it.
    #[error("the line is longer than {LONGEST_LINE} bytes or holds a NUL byte")]
    Unreadable,
    /// A row that is cut short.
    #[error("the row has fewer than {COLUMNS_SHORT} columns")]
    Columns,
}

/// A server-state file, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    fate: Fate,
    rows: Vec<FileRow>,
    first_of: HashMap<(String, String), usize>,
    is_seed: bool,
}

/// One row of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// Which line it stands on, from 1.
    pub line: usize,
    /// `be_name`, as written.
    pub backend: String,
    /// `srv_name`, as written.
    pub server: String,
    /// The values, or the name of the first column for whose value HAProxy refuses the whole row.
    pub values: Result<FileValues, &'static str>,
}

/// The values of a row that HAProxy takes. Those of the later columns are kept as written: whether they are taken depends
/// on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileValues {
    /// `srv_addr`; none for `-`.
    pub address: Option<String>,
    /// `srv_op_state`.
    pub op_state: OpState,
    /// `srv_admin_state`, without the bits that are found out anew at start.
    pub admin: AdminBits,
    /// `srv_uweight`.
    pub uweight: u16,
    /// `srv_iweight`.
    pub iweight: u16,
    /// `srv_check_status`, HAProxy's number of the last check's result; 0 is "unknown", 1 is "never checked".
    pub check_status: i64,
    /// `srv_check_state`.
    pub check: CheckBits,
    /// `srv_agent_state`.
    pub agent: CheckBits,
    /// `srv_fqdn`.
    pub fqdn: Option<String>,
    /// Whether the name was set through the command line (a bit of `srv_admin_state`).
    pub fqdn_was_set: bool,
    /// `srv_port`. There is no way to leave the configuration's port alone: `-` is 0.
    pub port: u16,
    /// `srvrecord`.
    pub srv_record: Option<String>,
    /// `srv_check_port`, unless `0`.
    pub check_port: Option<String>,
    /// `srv_check_addr`, unless `-`.
    pub check_address: Option<String>,
    /// `srv_agent_addr`, unless `-`.
    pub agent_address: Option<String>,
    /// `srv_agent_port`, unless `0`.
    pub agent_port: Option<String>,
}

impl StateFile {
    /// Reads a file.
    pub fn read(bytes: &[u8]) -> Self {
        let mut file = Self {
            fate: Fate::Loaded,
            rows: Vec::new(),
            first_of: HashMap::new(),
            is_seed: false,
        };
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        match lines.next() {
            None => file.fate = Fate::Empty,
            Some((_, first)) if !is_version_one(first) => file.drop_at(1, DropReason::Version),
            Some(_) => {
                for (index, line) in lines {
                    if let Err(reason) = file.read_line(index + 1, line) {
                        file.drop_at(index + 1, reason);
                        break;
                    }
                }
            }
        }
        file
    }

    /// What HAProxy does with the file as a whole.
    pub fn fate(&self) -> &Fate {
        &self.fate
    }

    /// The rows that HAProxy takes in, in order; none when it drops the file.
    pub fn rows(&self) -> &[FileRow] {
        &self.rows
    }

    /// The row for a server: the first of that name, whether or not its values are taken.
    pub fn find(&self, key: &RowKey) -> Option<&FileRow> {
        let name = (
            key.backend.as_str().to_owned(),
            key.server.as_str().to_owned(),
        );
        self.first_of
            .get(&name)
            .and_then(|index| self.rows.get(*index))
    }

    /// Whether another row of the same name stands before this one, so that HAProxy leaves this one out.
    pub fn is_shadowed(&self, row: &FileRow) -> bool {
        let first = self
            .first_of
            .get(&(row.backend.clone(), row.server.clone()));
        first
            .and_then(|index| self.rows.get(*index))
            .is_some_and(|first| first.line != row.line)
    }

    /// Whether `haplane seed` wrote it.
    pub fn is_seed(&self) -> bool {
        self.is_seed
    }

    fn drop_at(&mut self, line: usize, reason: DropReason) {
        self.fate = Fate::Dropped { line, reason };
        self.rows.clear();
        self.first_of.clear();
    }

    fn read_line(&mut self, number: usize, line: &[u8]) -> Result<(), DropReason> {
        if line.len() > LONGEST_LINE || line.contains(&0) {
            return Err(DropReason::Unreadable);
        }
        let line = line.strip_suffix(b"\n").ok_or(DropReason::NoLineFeed)?;
        let text = String::from_utf8_lossy(line);
        let text = text.trim_start_matches([' ', '\t']);
        self.is_seed |= text.starts_with(SEED_MARK);
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let fields = Fields(
            text.split([' ', '\t'])
                .filter(|field| !field.is_empty())
                .take(COLUMNS_LONG)
                .collect(),
        );
        if fields.0.len() < COLUMNS_SHORT {
            return Err(DropReason::Columns);
        }
        let row = FileRow {
            line: number,
            backend: fields.at(1).to_owned(),
            server: fields.at(3).to_owned(),
            values: fields.values(),
        };
        let name = (row.backend.clone(), row.server.clone());
        self.first_of.entry(name).or_insert(self.rows.len());
        self.rows.push(row);
        Ok(())
    }
}

/// A number as `strtol` reads it, and nothing but a line feed behind it.
fn is_version_one(line: &[u8]) -> bool {
    let Some(text) = line
        .strip_suffix(b"\n")
        .and_then(|line| str::from_utf8(line).ok())
    else {
        return false;
    };
    let digits = text
        .trim_start()
        .trim_start_matches('+')
        .trim_start_matches('0');
    line.len() <= LONGEST_LINE && digits == "1"
}

/// The columns of one row, as written.
struct Fields<'a>(Vec<&'a str>);

impl Fields<'_> {
    fn at(&self, index: usize) -> &str {
        self.0.get(index).copied().unwrap_or_default()
    }

    /// The column's text, unless it says that there is nothing.
    fn unless(&self, index: usize, nothing: &str) -> Option<String> {
        let text = self.at(index);
        (!text.is_empty() && text != nothing).then(|| text.to_owned())
    }

    /// The leading number, as `strtol` reads it; what follows it does not matter to HAProxy.
    fn number(&self, index: usize) -> Option<i64> {
        let text = self.at(index);
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(unsigned.len());
        let number: i64 = unsigned.get(..end)?.parse().ok()?;
        Some(if text.starts_with('-') {
            -number
        } else {
            number
        })
    }

    fn in_range(
        &self,
        index: usize,
        column: &'static str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, &'static str> {
        self.number(index)
            .filter(|number| range.contains(number))
            .ok_or(column)
    }

    fn small(&self, index: usize, column: &'static str, largest: i64) -> Result<u16, &'static str> {
        self.in_range(index, column, 0..=largest)
            .and_then(|number| u16::try_from(number).map_err(|_| column))
    }

    fn bits(&self, index: usize, column: &'static str) -> Result<CheckBits, &'static str> {
        let number = self.in_range(index, column, 0..=31)?;
        u32::try_from(number)
            .map(CheckBits::from_number)
            .map_err(|_| column)
    }

    /// All checks that HAProxy makes before it applies anything of a row.
    fn values(&self) -> Result<FileValues, &'static str> {
        let op_state = self
            .number(5)
            .and_then(OpState::from_number)
            .ok_or("srv_op_state")?;
        let admin = self.in_range(6, "srv_admin_state", 0..=i64::from(u32::MAX))?;
        let admin = AdminBits::from_number(u32::try_from(admin).unwrap_or(u32::MAX));
        let found_anew =
            AdminBits::IDRAIN | AdminBits::IMAINT | AdminBits::RMAINT | AdminBits::HMAINT;
        let kept = admin.without(found_anew);
        let together = AdminBits::FMAINT | AdminBits::FDRAIN;
        if kept.number() & !(together | AdminBits::CMAINT).number() != 0 || kept.contains(together)
        {
            return Err("srv_admin_state");
        }
        let values = FileValues {
            address: self.unless(4, "-"),
            op_state,
            admin: kept,
            uweight: self.small(7, "srv_uweight", 256)?,
            iweight: self.small(8, "srv_iweight", 256)?,
            check_status: self.in_range(10, "srv_check_status", i64::MIN..=LARGEST_CHECK_STATUS)?,
            check: self.bits(13, "srv_check_state")?,
            agent: self.bits(14, "srv_agent_state")?,
            fqdn: self.unless(17, "-").filter(|name| !name.starts_with('-')),
            fqdn_was_set: admin.contains(AdminBits::HMAINT),
            port: self.port()?,
            srv_record: self
                .unless(19, "-")
                .filter(|record| record.starts_with('_')),
            check_port: self.unless(21, "0"),
            check_address: self.unless(22, "-"),
            agent_address: self.unless(23, "-"),
            agent_port: self.unless(24, "0"),
        };
        self.in_range(9, "srv_time_since_last_change", i64::MIN..=i64::MAX)?;
        self.in_range(11, "srv_check_result", 0..=4)?;
        self.in_range(12, "srv_check_health", i64::MIN..=i64::MAX)?;
        self.in_range(15, "bk_f_forced_id", 0..=1)?;
        self.in_range(16, "srv_f_forced_id", 0..=1)?;
        let name_character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if values
            .fqdn
            .as_ref()
            .is_some_and(|name| name.len() > 255 || !name.chars().all(name_character))
        {
            return Err("srv_fqdn");
        }
        Ok(values)
    }

    /// `srv_port`: leading digits, 0 when there are none.
    fn port(&self) -> Result<u16, &'static str> {
        let text = self.at(18);
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        match text.get(..end).unwrap_or_default() {
            "" => Ok(0),
            digits => digits.parse().map_err(|_| "srv_port"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of the experiments: drained, everything else as configured.
    const ROW: &str = "2 b 1 a - 2 8 10 10 0 0 0 0 6 22 0 0 - 9001 -\n";

    fn read(body: &str) -> StateFile {
        StateFile::read(format!("1\n# header\n{body}").as_bytes())
    }

    fn dropped(file: &[u8]) -> Option<(usize, DropReason)> {
        match StateFile::read(file).fate {
            Fate::Dropped { line, reason } => Some((line, reason)),
            Fate::Loaded | Fate::Empty => None,
        }
    }

    /// Each was given to HAProxy 2.6.12 and 2.8.25.
    #[test]
    fn files_that_haproxy_drops() {
        use DropReason::{Columns, NoLineFeed, Unreadable, Version};
        let with = |text: &str| format!("1\n{text}").into_bytes();
        let long = format!("{} {}\n", ROW.trim_end(), "x".repeat(2100));
        for (file, want) in [
            (with(ROW.trim_end()), Some((2, NoLineFeed))),
            (with(&ROW.replace(" -\n", "\n")), Some((2, Columns))),
            (with(&ROW.replace(" -\n", " \n")), Some((2, Columns))),
            (with(&long), Some((2, Unreadable))),
            (with(&format!("{ROW}a\0b\n")), Some((3, Unreadable))),
            (format!("1\r\n{ROW}").into_bytes(), Some((1, Version))),
            (format!("2\n{ROW}").into_bytes(), Some((1, Version))),
            (format!("1x\n{ROW}").into_bytes(), Some((1, Version))),
            (ROW.as_bytes().to_vec(), Some((1, Version))),
            (b"1".to_vec(), Some((1, Version))),
            (b"1\n".to_vec(), None),
            (format!(" 1\n{ROW}").into_bytes(), None),
            (format!("+1\n{ROW}").into_bytes(), None),
            (format!("01\n{ROW}").into_bytes(), None),
            (with(&ROW.replace(' ', "\t")), None),
            (with(&format!(" {ROW}\n\n# c\n")), None),
        ] {
            assert_eq!(dropped(&file), want, "{:?}", String::from_utf8_lossy(&file));
        }
        assert_eq!(StateFile::read(b"").fate, Fate::Empty);
    }

    /// Each was given to HAProxy 2.6.12 and 2.8.25.
    #[test]
    fn rows_that_haproxy_refuses() {
        let columns = |index: usize, value: &str| {
            let mut fields: Vec<&str> = ROW.split_whitespace().collect();
            fields[index] = value;
            let file = read(&format!("{}\n", fields.join(" ")));
            file.rows()[0]
                .values
                .clone()
                .map(|values| values.admin.number())
        };
        for (index, value, want) in [
            (5, "4", Err("srv_op_state")),
            (5, "2y", Ok(8)),
            (6, "8x", Ok(8)),
            (6, "9", Err("srv_admin_state")),
            (6, "13", Err("srv_admin_state")),
            (6, "128", Err("srv_admin_state")),
            (6, "12", Ok(12)),
            (6, "40", Ok(8)),
            (6, "2", Ok(0)),
            (6, "68", Ok(4)),
            (7, "-1", Err("srv_uweight")),
            (7, "257", Err("srv_uweight")),
            (8, "x", Err("srv_iweight")),
            (10, "20", Ok(8)),
            (10, "21", Err("srv_check_status")),
            (10, "-1", Ok(8)),
            (11, "5", Err("srv_check_result")),
            (13, "32", Err("srv_check_state")),
            (15, "2", Err("bk_f_forced_id")),
            (17, "a/b", Err("srv_fqdn")),
            (18, "70000", Err("srv_port")),
            (18, "80x", Ok(8)),
            (18, "-", Ok(8)),
        ] {
            assert_eq!(columns(index, value), want, "column {index} = {value}");
        }
    }

    #[test]
    fn the_first_row_of_a_name_counts_even_when_it_is_refused() {
        let refused_first = read(&format!("{}{ROW}", ROW.replace(" 8 10", " 9 10")));
        let key = "b/a".parse().unwrap();
        assert_eq!(
            refused_first.find(&key).unwrap().values,
            Err("srv_admin_state")
        );
        assert!(refused_first.is_shadowed(&refused_first.rows()[1]));
        assert!(!refused_first.is_shadowed(&refused_first.rows()[0]));
        assert!(read(ROW).find(&"b/x".parse().unwrap()).is_none());
        assert!(read(&format!("{SEED_MARK} 2026\n")).is_seed() && !read(ROW).is_seed());
    }
}
