//! The rows that a write passes over, because another key decides them; and those that it takes from another key.

use std::fmt;

use haplane_core::outlook::Outlook;
use haplane_core::target::Known;
use haplane_core::{Desired, Key};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{Outcome, Writer};
use crate::write::Wanted;

/// Rows named one by one; more are a number.
const NAMED: usize = 10;

/// A row that another key than the written ones keeps where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The row.
    pub row: Key,
    /// The key that decides it.
    pub key: Key,
    /// What that key says.
    pub value: Desired,
}

impl Serialize for Kept {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { row, key, value } = self;
        let told: Json = json!({"row": row, "key": key, "value": value.to_string()});
        told.serialize(serializer)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, by {} = {}", self.row, self.key, self.value)
    }
}

/// Both kinds; a write has one of them at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) stay_in: Vec<Kept>,
    pub(super) stay_out: Vec<Kept>,
}

/// The rows that ask for the keys of a write, and do not follow it.
pub(super) fn kept(known: &Known, wanted: &[Wanted], after: &Outlook<'_>) -> Passed {
    let takes_out = wanted
        .iter()
        .filter_map(|one| one.value)
        .any(|value| !value.desired.in_rotation());
    let keys: Vec<Key> = wanted.iter().map(|one| one.key.clone()).collect();
    let against = |row: &Key| {
        let (key, value) = after.deciding(known.rows.get(row)?)?;
        (value.in_rotation() == takes_out).then(|| Kept {
            row: row.clone(),
            key: key.clone(),
            value,
        })
    };
    let kept: Vec<Kept> = known
        .rows_of(&keys)
        .into_iter()
        .filter_map(against)
        .collect();
    if takes_out {
        Passed {
            stay_in: kept,
            ..Passed::default()
        }
    } else {
        Passed {
            stay_out: kept,
            ..Passed::default()
        }
    }
}

/// The rows that somebody keeps out of rotation by another key than the written ones, and that come back by this write.
pub(super) fn brought_in(
    known: &Known,
    wanted: &[Wanted],
    before: &Outlook<'_>,
    after: &Outlook<'_>,
) -> Vec<Kept> {
    let is_written = |key: &Key| wanted.iter().any(|one| one.key == *key);
    let from_another = |(row, keys): (&Key, &Vec<Key>)| {
        let (key, value) = before.deciding(keys)?;
        let is_taken =
            !value.in_rotation() && !is_written(key) && after.desired(keys).in_rotation();
        is_taken.then(|| Kept {
            row: row.clone(),
            key: key.clone(),
            value,
        })
    };
    known.rows.iter().filter_map(from_another).collect()
}

impl Writer<'_> {
    /// Says, once a command, which rows do not follow, and which come back although they were taken out.
    pub(super) fn warn_of_kept(&self, outcome: &Outcome) {
        if self.warned.replace(true) {
            return;
        }
        let output = &self.session.output;
        let tell = |kept: &[Kept], what: &str| {
            for one in kept.iter().take(NAMED) {
                output.warn(&format!(
                    "{what}: {one} (`haplane why {}` tells more)",
                    one.row
                ));
            }
            let more = kept.len().saturating_sub(NAMED);
            if more > 0 {
                output.warn(&format!("{what}: {more} rows more"));
            }
        };
        tell(&outcome.kept_in, "stays in rotation");
        tell(&outcome.kept_out, "stays out of rotation");
        tell(
            &outcome.brought_in,
            "comes back into rotation, where it was kept out",
        );
    }
}

#[cfg(test)]
mod tests {
    use haplane_core::Snapshot;
    use haplane_core::snapshot::Pair;

    use super::*;

    fn told(stored: &[(&str, &str)], value: Option<&str>) -> (Vec<String>, Vec<String>) {
        let pair = |&(path, value): &(&str, &str)| Pair {
            path: path.to_owned(),
            value: value.as_bytes().to_vec(),
            version: 1,
            log_id: None,
        };
        let snapshot = Snapshot::new(1, stored.iter().map(pair));
        let key = |text: &str| -> Key { text.parse().unwrap() };
        let known = Known {
            rows: ["web/a zone/b", "web/cny canary zone/b"]
                .iter()
                .map(|line| {
                    let keys: Vec<Key> = line.split(' ').map(key).collect();
                    (keys[0].clone(), keys)
                })
                .collect(),
            ..Known::default()
        };
        let wanted = [Wanted {
            key: "zone/b".parse().unwrap(),
            value: value.map(|value| value.parse().unwrap()),
        }];
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        let after = Outlook::present(&snapshot, now)
            .with(wanted.iter().map(|one| (one.key.clone(), one.value)));
        let passed = kept(&known, &wanted, &after);
        let text = |kept: &[Kept]| kept.iter().map(Kept::to_string).collect();
        (text(&passed.stay_in), text(&passed.stay_out))
    }

    #[test]
    fn a_row_that_another_key_keeps_out_comes_back_only_with_a_word() {
        let key = |text: &str| -> Key { text.parse().unwrap() };
        let known = Known {
            rows: [(key("web/cny"), vec![key("web/cny"), key("canary")])].into(),
            ..Known::default()
        };
        let stored = [Pair {
            path: "canary".to_owned(),
            value: b"drain".to_vec(),
            version: 1,
            log_id: None,
        }];
        let snapshot = Snapshot::new(1, stored);
        let before = Outlook::present(&snapshot, "2026-11-29T12:00:00Z".parse().unwrap());
        let told = |name: &str, value: Option<&str>| -> Vec<String> {
            let wanted = [Wanted {
                key: key(name),
                value: value.map(|value| value.parse().unwrap()),
            }];
            let after = before
                .clone()
                .with(wanted.iter().map(|one| (one.key.clone(), one.value)));
            let brought = brought_in(&known, &wanted, &before, &after);
            brought.iter().map(Kept::to_string).collect()
        };
        assert_eq!(told("web/cny", Some("50%")), ["web/cny, by canary = drain"]);
        assert_eq!(told("web/cny", Some("maint")), [""; 0], "it stays out");
        assert_eq!(told("canary", None), [""; 0], "its own key is taken away");
    }

    #[test]
    fn a_key_in_front_keeps_its_rows_in_or_out() {
        let none: Vec<String> = Vec::new();
        let by_canary = vec!["web/cny, by canary = 100%".to_owned()];
        assert_eq!(
            told(&[("canary", "100%")], Some("drain")),
            (by_canary, none.clone())
        );
        let by_canary = vec!["web/cny, by canary = maint".to_owned()];
        assert_eq!(
            told(&[("canary", "maint"), ("zone/b", "drain")], None),
            (none.clone(), by_canary)
        );
        assert_eq!(
            told(&[("canary", "maint")], Some("drain")),
            (none.clone(), none)
        );
    }
}
