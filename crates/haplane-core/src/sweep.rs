//! Whether a change takes out more than anybody can mean with a pattern: the guard against `drain '*/*'`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::desired::Desired;

/// One row, with what is desired of it now and after a change.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'r> {
    /// Its backend.
    pub backend: &'r str,
    /// Now.
    pub before: Desired,
    /// After the change.
    pub after: Desired,
}

/// What a change takes out, when that is too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Rows that leave rotation.
    pub out: usize,
    /// Rows that are in rotation now.
    pub of: usize,
    /// The backends that are left with nothing.
    pub emptied: Vec<String>,
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out, of, emptied } = self;
        let names = emptied.join(", ");
        write!(
            f,
            "this takes {out} of {of} rows out of rotation and leaves nothing in {names}"
        )
    }
}

/// The sweep that a change amounts to, if it does: it leaves nothing at all in rotation, or it empties several backends
/// that hold more than half of all rows. One backend is often emptied on purpose, and so are several small ones, such
/// as those of the canaries, or those of one zone among three.
pub fn sweep<'r>(turns: impl IntoIterator<Item = Turn<'r>>) -> Option<Sweep> {
    let (mut of, mut out) = (0, 0);
    let mut stays: BTreeMap<&str, bool> = BTreeMap::new();
    let mut left: BTreeSet<&str> = BTreeSet::new();
    for turn in turns {
        let is_in = turn.after.in_rotation();
        *stays.entry(turn.backend).or_default() |= is_in;
        if turn.before.in_rotation() {
            of += 1;
            if !is_in {
                out += 1;
                left.insert(turn.backend);
            }
        }
    }
    let is_empty = |backend: &&&str| stays.get(**backend) == Some(&false);
    let emptied: Vec<String> = left
        .iter()
        .filter(is_empty)
        .map(|backend| (*backend).to_owned())
        .collect();
    let is_everything = out > 0 && stays.values().all(|stays| !stays);
    let is_most = emptied.len() > 1 && out * 2 > of;
    (is_everything || is_most).then_some(Sweep { out, of, emptied })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `web: ready>drain ready>ready` is a backend with two rows.
    fn told(backends: &[&str]) -> Option<String> {
        let turns = backends.iter().flat_map(|line| {
            let (backend, rows) = line.split_once(": ").unwrap();
            rows.split(' ').map(move |row| {
                let (before, after) = row.split_once('>').unwrap();
                Turn {
                    backend,
                    before: before.parse().unwrap(),
                    after: after.parse().unwrap(),
                }
            })
        });
        sweep(turns).map(|sweep| sweep.to_string())
    }

    #[test]
    fn everything_and_most_of_several_backends_are_too_much() {
        assert_eq!(
            told(&["web: ready>maint 50%>0%", "api: ready>drain"]).unwrap(),
            "this takes 3 of 3 rows out of rotation and leaves nothing in api, web"
        );
        // A whole region, of which only the canary is not part.
        let region = [
            "web: ready>drain ready>drain",
            "api: ready>drain",
            "cny: ready>ready",
        ];
        assert!(told(&region).unwrap().contains("3 of 4 rows"));
        // The rest, when the other half is out already.
        assert!(told(&["web: ready>drain drain>drain", "api: maint>maint"]).is_some());
    }

    #[test]
    fn a_backend_the_canaries_and_a_zone_are_not() {
        for backends in [
            &[
                "web: ready>drain ready>drain ready>drain",
                "api: ready>ready",
            ][..],
            &[
                "web: ready>ready ready>ready ready>ready",
                "cny_web: ready>drain",
                "cny_api: ready>drain",
            ],
            &[
                "web_b: ready>drain",
                "api_b: ready>drain",
                "web_c: ready>ready",
                "api_c: ready>ready",
            ],
            &[
                "web: ready>drain ready>ready ready>ready",
                "api: ready>drain ready>ready",
            ],
            &["web: drain>maint", "api: drain>maint"],
            &["web: drain>ready", "api: maint>drain"],
            &[],
        ] {
            assert_eq!(told(backends), None, "{backends:?}");
        }
    }
}
