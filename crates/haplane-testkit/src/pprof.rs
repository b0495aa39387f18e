//! Reads profiles in pprof's format (protocol buffers of its `profile.proto`), and gives their
//! addresses names as `go tool pprof` does: with the program that ran, by `addr2line`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A profile, as far as it is needed to say where samples fell.
#[derive(Debug, Default)]
pub struct Profile {
    /// Addresses, innermost first, and the values of each sample.
    pub samples: Vec<Sample>,
    mappings: BTreeMap<u64, Mapping>,
    /// Address and mapping of a location, by its number.
    locations: BTreeMap<u64, (u64, u64)>,
    strings: Vec<String>,
}

/// One stack.
#[derive(Debug)]
pub struct Sample {
    locations: Vec<u64>,
    /// One for each of the profile's sample types.
    pub values: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    offset: u64,
    file: u64,
}

impl Profile {
    /// Reads one. Panics, with what is wrong, when it is none.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut profile = Self::default();
        for (field, value) in fields(bytes) {
            match field {
                2 => {
                    let sample = fields(value.bytes());
                    profile.samples.push(Sample {
                        locations: repeated(&sample, 1),
                        values: repeated(&sample, 2),
                    });
                }
                3 => {
                    let mapping = fields(value.bytes());
                    let number = |field| number_of(&mapping, field);
                    let read = Mapping {
                        start: number(2),
                        offset: number(4),
                        file: number(5),
                    };
                    profile.mappings.insert(number(1), read);
                }
                4 => {
                    let location = fields(value.bytes());
                    let number = |field| number_of(&location, field);
                    profile.locations.insert(number(1), (number(3), number(2)));
                }
                6 => profile
                    .strings
                    .push(String::from_utf8(value.bytes().to_vec()).unwrap()),
                _ => {}
            }
        }
        assert_eq!(
            profile.strings.first().unwrap(),
            "",
            "the first text is empty"
        );
        profile
    }

    /// All names that it brings itself: of files, units and functions.
    pub fn names(&self) -> &[String] {
        &self.strings
    }

    /// The sum of one of the values over all samples.
    pub fn total(&self, value: usize) -> u64 {
        self.samples.iter().map(|sample| sample.values[value]).sum()
    }

    /// The names of all functions of this file that samples fell into, inlined ones included.
    pub fn functions_of(&self, file: &str) -> BTreeSet<String> {
        let segments = code_segments(file);
        let addresses = self
            .samples
            .iter()
            .flat_map(|sample| &sample.locations)
            .filter_map(|location| self.address_in(file, *location, &segments))
            .collect::<BTreeSet<_>>();
        assert!(
            !addresses.is_empty(),
            "no sample fell into {file}: {self:?}"
        );
        let addresses = addresses.iter().map(|address| format!("{address:#x}"));
        let said = Command::new("addr2line")
            .args(["--functions", "--inlines", "--demangle", "--exe", file])
            .args(addresses)
            .output()
            .unwrap_or_else(|error| panic!("addr2line, of binutils: {error}"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        said.lines().step_by(2).map(str::to_owned).collect()
    }

    /// Where a location is in the file as it was linked.
    fn address_in(&self, file: &str, location: u64, segments: &[Segment]) -> Option<u64> {
        let (address, mapping) = self
            .locations
            .get(&location)
            .expect("a location that exists");
        let mapping = self.mappings.get(mapping)?;
        if self.strings[usize::try_from(mapping.file).unwrap()] != file {
            return None;
        }
        if mapping.start == 0 {
            return Some(*address); // jemalloc_pprof has done the rest
        }
        let offset = address - mapping.start + mapping.offset;
        let segment = segments
            .iter()
            .find(|segment| (segment.offset..segment.offset + segment.size).contains(&offset))?;
        Some(offset - segment.offset + segment.address)
    }
}

/// Code of a program: where it is in the file, and the address that it was linked for.
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
}

fn code_segments(file: &str) -> Vec<Segment> {
    let said = Command::new("readelf")
        .args(["--segments", "--wide", file])
        .output()
        .unwrap_or_else(|error| panic!("readelf, of binutils: {error}"));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.lines()
        .filter(|line| line.trim_start().starts_with("LOAD") && line.contains(" R E "))
        .map(|line| {
            let mut numbers = line.split_whitespace().skip(1).map(|word| {
                u64::from_str_radix(word.trim_start_matches("0x"), 16)
                    .unwrap_or_else(|error| panic!("{line}: {error}"))
            });
            let (offset, address) = (numbers.next().unwrap(), numbers.next().unwrap());
            Segment {
                offset,
                address,
                size: numbers.nth(1).unwrap(),
            }
        })
        .collect()
}

/// A field's value: all that profiles have.
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Value {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) => panic!("{number} where bytes belong"),
        }
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag % 8 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(value.to_vec())
            }
            other => panic!("only numbers and bytes, not wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than 64 bits")
}

fn number_of(fields: &[(u64, Value)], wanted: u64) -> u64 {
    repeated(fields, wanted).first().copied().unwrap_or(0)
}

/// Numbers, one a field or packed into one.
fn repeated(fields: &[(u64, Value)], wanted: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for (_, value) in fields.iter().filter(|(field, _)| *field == wanted) {
        match value {
            Value::Number(number) => numbers.push(*number),
            Value::Bytes(packed) => {
                let mut packed = packed.as_slice();
                while !packed.is_empty() {
                    numbers.push(varint(&mut packed));
                }
            }
        }
    }
    numbers
}
