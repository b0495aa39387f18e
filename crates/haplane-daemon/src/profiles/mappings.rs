//! Which file lies where in this process: what turns an address into a name outside of it.

use std::fs;

/// A piece of a file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    pub(super) file: String,
}

/// All pieces with code in them.
pub(super) fn of_this_process() -> Vec<Mapping> {
    parse(&fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

/// Reads the text of `/proc/PID/maps` (proc(5)): range, rights, offset, device, inode, file.
fn parse(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(executable).collect()
}

fn executable(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if !words.next()?.contains('x') {
        return None;
    }
    let offset = words.next()?;
    let file = words.nth(2)?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        file: file.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_and_data_is_not() {
        let maps = "\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 42 /usr/bin/haplane
55d0c0001000-55d0c0009000 r-xp 00001000 08:01 42 /usr/bin/haplane
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0  [stack]
7f0000000000-7f0000001000 r-xp 00000000 00:00 0
";
        let code = Mapping {
            start: 0x55d0_c000_1000,
            end: 0x55d0_c000_9000,
            offset: 0x1000,
            file: "/usr/bin/haplane".to_owned(),
        };
        assert_eq!(parse(maps), [code]);
    }
}
