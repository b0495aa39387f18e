//! The names of the program's own functions, from the table of symbols in its file (elf(5)). That is a
//! few megabytes for a moment; debug information, which also knows lines and inlined functions, would
//! be a hundred, and is for tools outside. A stripped program has no table, and gets no names.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// No table of ours is larger; a damaged file must not take the memory.
const MAX_TABLE: u64 = 64 << 20;
const HEADER: usize = 64;
const LOADED: u32 = 1;
const SYMBOLS: u32 = 2;
const FUNCTION: u8 = 2;

/// Where in memory, as it was linked, which function is.
#[derive(Debug)]
pub(super) struct Symbols {
    functions: Vec<Function>,
    names: Vec<u8>,
    loaded: Vec<Loaded>,
}

#[derive(Debug)]
struct Function {
    start: u64,
    size: u64,
    name: usize,
}

/// A piece of the file, and the address that it was linked for.
#[derive(Debug)]
struct Loaded {
    offset: u64,
    size: u64,
    address: u64,
}

impl Symbols {
    /// Of the program that runs; `None` where there are none.
    pub(super) fn of_this_process() -> Option<Self> {
        Self::read(&File::open("/proc/self/exe").ok()?)
    }

    fn read(file: &File) -> Option<Self> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).ok()?;
        // 64 bits, the lowest byte first.
        header.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let segments = entries(
            file,
            u64_at(&header, 32)?,
            u16_at(&header, 54)?,
            u16_at(&header, 56)?,
        )?;
        let sections = entries(
            file,
            u64_at(&header, 40)?,
            u16_at(&header, 58)?,
            u16_at(&header, 60)?,
        )?;
        let table = sections
            .iter()
            .find(|section| u32_at(section, 4) == Some(SYMBOLS))?;
        let names = sections.get(u32_at(table, 40)? as usize)?;
        let mut functions: Vec<Function> = contents(file, table)?
            .chunks_exact(24)
            .filter_map(Function::read)
            .collect();
        functions.sort_unstable_by_key(|function| function.start);
        Some(Self {
            functions,
            names: contents(file, names)?,
            loaded: segments
                .iter()
                .filter_map(|one| Loaded::read(one))
                .collect(),
        })
    }

    /// The function at this place of the file.
    pub(super) fn name_at(&self, offset: u64) -> Option<String> {
        let piece = self
            .loaded
            .iter()
            .find(|piece| (piece.offset..piece.offset + piece.size).contains(&offset))?;
        let address = offset - piece.offset + piece.address;
        let after = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        (address - function.start < function.size).then_some(())?;
        let name = self
            .names
            .get(function.name..)?
            .split(|byte| *byte == 0)
            .next()?;
        let name = std::str::from_utf8(name).ok()?;
        Some(format!("{:#}", rustc_demangle::demangle(name)))
    }
}

impl Function {
    fn read(symbol: &[u8]) -> Option<Self> {
        (symbol.get(4)? & 0xf == FUNCTION).then_some(Self {
            name: u32_at(symbol, 0)? as usize,
            start: u64_at(symbol, 8)?,
            size: u64_at(symbol, 16)?,
        })
    }
}

impl Loaded {
    fn read(segment: &[u8]) -> Option<Self> {
        (u32_at(segment, 0)? == LOADED).then_some(Self {
            offset: u64_at(segment, 8)?,
            address: u64_at(segment, 16)?,
            size: u64_at(segment, 32)?,
        })
    }
}

/// A table of headers, cut into its entries.
fn entries(file: &File, at: u64, size: u16, count: u16) -> Option<Vec<Vec<u8>>> {
    let size = usize::from(size);
    (size > 0).then_some(())?;
    let mut table = vec![0; size * usize::from(count)];
    file.read_exact_at(&mut table, at).ok()?;
    Some(table.chunks_exact(size).map(<[u8]>::to_vec).collect())
}

/// What a section holds.
fn contents(file: &File, section: &[u8]) -> Option<Vec<u8>> {
    let size = u64_at(section, 32).filter(|size| *size <= MAX_TABLE)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, u64_at(section, 24)?).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
