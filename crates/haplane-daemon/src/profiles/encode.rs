//! The bytes of a profile: protocol buffers of pprof's `profile.proto`, the few messages of it that
//! samples of addresses need.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use super::mappings::Mapping;

/// One stack and how often it was seen.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Innermost first.
    pub(super) addresses: Vec<u64>,
    pub(super) count: i64,
}

/// A processor profile.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) samples: Vec<Sample>,
    pub(super) mappings: Vec<Mapping>,
    /// The function at an address, as far as it is known.
    pub(super) names: BTreeMap<u64, String>,
    pub(super) start: SystemTime,
    pub(super) lasting: Duration,
    /// Between two samples.
    pub(super) period: Duration,
}

/// The strings that are always there; the first has to be empty.
const STRINGS: [&str; 5] = ["", "samples", "count", "cpu", "nanoseconds"];
const SAMPLES: u64 = 1;
const COUNT: u64 = 2;
const CPU: u64 = 3;
const NANOSECONDS: u64 = 4;

impl Profile {
    /// The message `Profile`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let locations = self.locations();
        let period = nanoseconds(self.period);
        let mut profile = Message::default();
        profile.message(1, &value_type(SAMPLES, COUNT));
        profile.message(1, &value_type(CPU, NANOSECONDS));
        for sample in &self.samples {
            let ids = sample
                .addresses
                .iter()
                .filter_map(|address| locations.get(address).copied());
            let count = sample.count.unsigned_abs();
            let mut message = Message::default();
            message.packed(1, ids);
            message.packed(2, [count, count.saturating_mul(period)]);
            profile.message(2, &message);
        }
        for (mapping, id) in self.mappings.iter().zip(1..) {
            let mut message = Message::default();
            message.number(1, id);
            message.number(2, mapping.start);
            message.number(3, mapping.end);
            message.number(4, mapping.offset);
            message.number(5, STRINGS.len() as u64 + id - 1);
            if self.is_named(mapping) {
                // Functions, files, lines: tools look for themselves where one is missing, and
                // `go tool pprof` then finds the last part of a name only.
                for known in 7..=9 {
                    message.number(known, 1);
                }
            }
            profile.message(3, &message);
        }
        let functions: BTreeMap<&str, u64> = {
            let names: BTreeSet<&str> = self.names.values().map(String::as_str).collect();
            names.into_iter().zip(1..).collect()
        };
        let first_function = (STRINGS.len() + self.mappings.len()) as u64;
        for id in functions.values() {
            let mut message = Message::default();
            message.number(1, *id);
            message.number(2, first_function + id - 1);
            message.number(3, first_function + id - 1);
            profile.message(5, &message);
        }
        for (address, id) in &locations {
            let mut message = Message::default();
            message.number(1, *id);
            message.number(2, self.mapping_of(*address));
            message.number(3, *address);
            let name = self.names.get(address);
            if let Some(function) = name.and_then(|name| functions.get(name.as_str())) {
                let mut line = Message::default();
                line.number(1, *function);
                message.message(4, &line);
            }
            profile.message(4, &message);
        }
        let files = self.mappings.iter().map(|mapping| mapping.file.as_str());
        for text in STRINGS
            .into_iter()
            .chain(files)
            .chain(functions.into_keys())
        {
            profile.bytes(6, text.as_bytes());
        }
        let start = self.start.duration_since(SystemTime::UNIX_EPOCH);
        profile.number(9, start.map_or(0, nanoseconds));
        profile.number(10, nanoseconds(self.lasting));
        profile.message(11, &value_type(CPU, NANOSECONDS));
        profile.number(12, period);
        profile.0
    }

    /// Every address once, with its number from 1.
    fn locations(&self) -> BTreeMap<u64, u64> {
        let addresses = self.samples.iter().flat_map(|sample| &sample.addresses);
        let mut locations: BTreeMap<u64, u64> = addresses.map(|address| (*address, 0)).collect();
        for (id, location) in (1..).zip(locations.values_mut()) {
            *location = id;
        }
        locations
    }

    fn is_named(&self, mapping: &Mapping) -> bool {
        self.names
            .range(mapping.start..mapping.end)
            .next()
            .is_some()
    }

    /// The number of the mapping that holds an address; 0 is none.
    fn mapping_of(&self, address: u64) -> u64 {
        self.mappings
            .iter()
            .zip(1..)
            .find(|(mapping, _)| (mapping.start..mapping.end).contains(&address))
            .map_or(0, |(_, id)| id)
    }
}

fn value_type(kind: u64, unit: u64) -> Message {
    let mut message = Message::default();
    message.number(1, kind);
    message.number(2, unit);
    message
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A message of protocol buffers, field by field.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn varint(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        for number in numbers {
            packed.varint(number);
        }
        self.message(field, &packed);
    }
}
