//! What a command is pointed at: keys, globs over known rows, zones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::desired::Desired;
use crate::glob::Glob;
use crate::key::{Key, KeyError};
use crate::nearest::nearest_or_alike;

/// One TARGET of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A row key or a group key by its name.
    Key(Key),
    /// Every known row that fits.
    Glob(Glob),
    /// Every known row whose server name has the zone as a dash-separated part (`-z ZONE`).
    Zone(String),
}

impl FromStr for Target {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text.parse() {
            Ok(glob) if Glob::is_glob(text) => Ok(Self::Glob(glob)),
            _ => text.parse().map(Self::Key),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Glob(glob) => glob.fmt(f),
            Self::Zone(zone) => write!(f, "zone {zone}"),
        }
    }
}

/// The names that are known: the rows that ask, each with all keys of its line (its own first), and
/// the keys that the store has.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// By row key.
    pub rows: BTreeMap<Key, Vec<Key>>,
    /// Keys with any value, valid or not.
    pub stored: BTreeSet<Key>,
    /// Whether any agent or haproxy.cfg could say which rows there are.
    pub rows_are_known: bool,
}

/// The backend of the heartbeat's own row. It is out of rotation half of the time, so no glob or zone includes it.
pub const HEARTBEAT: &str = "haplane-heartbeat";

/// At most this many names of which half was typed.
const HALF_NAMED: usize = 3;

/// What a glob or a zone is looked up among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// The rows that ask: what can be drained.
    Rows,
    /// These, and the keys that the store has: what can be shown and cleared.
    RowsAndKeys,
}

/// Why targets stand for nothing that can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A glob or a zone that fits nothing.
    #[error("{target} fits no known {among}{}", glob_hint(.target, .near))]
    FitsNothing {
        /// What was typed.
        target: String,
        /// What it was looked up among.
        among: &'static str,
        /// Names that are near.
        near: Vec<String>,
    },
    /// A glob or a zone, while nobody can say which rows there are.
    #[error("{0} cannot be resolved: no agent answers, so no row is known")]
    NobodyToAsk(String),
    /// The name of a backend, where one of its rows, or all of them, must be named.
    #[error("{0} is a backend, not a key; its rows are '{0}/*'")]
    Backend(String),
    /// A word that is a value, or the command itself.
    #[error(
        "{0} is a value, not a key, and no row asks for it: leave it out, or write it last, behind \
         `haplane set KEY`"
    )]
    ValueWord(String),
    /// Keys that no row asks for and that the store does not have.
    #[error("no row asks for {}, and the store does not have it{}", .keys.join(", "), hint(.near))]
    Unknown {
        /// The keys.
        keys: Vec<String>,
        /// Names that are near.
        near: Vec<String>,
    },
}

/// The usual slip: a star that was meant to match across the slash.
fn glob_hint(target: &str, near: &[String]) -> String {
    if Glob::is_glob(target) && !target.contains('/') && !target.contains("**") {
        return format!("; * stays within backend or server: '{target}/*'");
    }
    hint(near)
}

fn hint(near: &[String]) -> String {
    match near {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

impl Known {
    /// The keys that the targets stand for, in the order given, each once.
    pub fn expand(&self, targets: &[Target], among: Among) -> Result<Vec<Key>, TargetError> {
        let mut keys = Vec::new();
        let mut seen = BTreeSet::new();
        for target in targets {
            let found: Vec<&Key> = match target {
                Target::Key(key) => vec![key],
                Target::Glob(glob) => self.names_where(target, among, |row| glob.matches(row))?,
                Target::Zone(zone) => {
                    self.names_where(target, among, |row| is_in_zone(row, zone))?
                }
            };
            keys.extend(found.into_iter().filter(|key| seen.insert(*key)).cloned());
        }
        Ok(keys)
    }

    fn names_where(
        &self,
        target: &Target,
        among: Among,
        fits: impl Fn(&str) -> bool,
    ) -> Result<Vec<&Key>, TargetError> {
        let (names, among): (BTreeSet<&Key>, _) = match among {
            Among::Rows if !self.rows_are_known => {
                return Err(TargetError::NobodyToAsk(target.to_string()));
            }
            Among::Rows => (self.rows.keys().collect(), "row"),
            Among::RowsAndKeys => (self.rows.keys().chain(&self.stored).collect(), "row or key"),
        };
        let typed = target.to_string();
        let is_meant =
            |name: &&Key| backend_of(name) != Some(HEARTBEAT) || typed.starts_with(HEARTBEAT);
        let found: Vec<&Key> = names
            .into_iter()
            .filter(|name| fits(name.as_str()))
            .filter(is_meant)
            .collect();
        if found.is_empty() {
            let near = self.near(&typed);
            return Err(TargetError::FitsNothing {
                target: typed,
                among,
                near,
            });
        }
        Ok(found)
    }

    /// Refuses keys that no row asks for and the store does not have: mostly typing mistakes, which would make a
    /// drain that drains nothing. Until some row has asked, any key may be right.
    pub fn refuse_unknown(&self, keys: &[Key]) -> Result<(), TargetError> {
        if !self.rows_are_known || self.rows.is_empty() {
            return Ok(());
        }
        let asked: BTreeSet<&Key> = self.rows.values().flatten().collect();
        let unknown: Vec<String> = keys
            .iter()
            .filter(|key| !asked.contains(key) && !self.stored.contains(*key))
            .map(Key::to_string)
            .collect();
        let is_backend = |name: &str| self.rows.keys().any(|row| backend_of(row) == Some(name));
        match unknown.first() {
            None => Ok(()),
            Some(first) if is_backend(first) => Err(TargetError::Backend(first.clone())),
            Some(first) if first.parse::<Desired>().is_ok() => {
                Err(TargetError::ValueWord(first.clone()))
            }
            Some(first) => {
                let near = self.near(first);
                Err(TargetError::Unknown {
                    keys: unknown,
                    near,
                })
            }
        }
    }

    /// The rows that ask for any of these keys.
    pub fn rows_of(&self, keys: &[Key]) -> Vec<&Key> {
        let keys: BTreeSet<&Key> = keys.iter().collect();
        self.rows
            .iter()
            .filter(|(_, asked)| asked.iter().any(|key| keys.contains(key)))
            .map(|(row, _)| row)
            .collect()
    }

    fn near(&self, typed: &str) -> Vec<String> {
        let asked = self.rows.values().flatten();
        let names: BTreeSet<&str> = asked.chain(&self.stored).map(Key::as_str).collect();
        let near = nearest_or_alike(typed, names.iter().copied());
        if !near.is_empty() {
            return near.into_iter().map(str::to_owned).collect();
        }
        // Half a name: `us-east1-b` for the group `zone/us-east1-b`, or for what -z takes.
        let ends_so = |name: &&str| {
            let end = name.rsplit_once('/');
            end.is_some_and(|(_, end)| end == typed)
        };
        let mut near: Vec<String> = names
            .into_iter()
            .filter(ends_so)
            .take(HALF_NAMED)
            .map(str::to_owned)
            .collect();
        // One letter is a part of many names, and a zone of none.
        let is_zone = typed.len() > 2;
        if is_zone && self.rows.keys().any(|row| is_in_zone(row.as_str(), typed)) {
            near.push(format!("-z {typed}"));
        }
        near
    }
}

/// The backend of a row; a group whose name has no slash has none.
pub fn backend_of(row: &Key) -> Option<&str> {
    row.as_str().split_once('/').map(|(backend, _)| backend)
}

/// The zones that a shorter name stands for: `us-east1` is the start of `us-east1-b` and `us-east1-c`. Empty
/// unless every row's name goes on behind it with one or two characters.
pub fn zones_within<'k>(zone: &str, rows: impl IntoIterator<Item = &'k Key>) -> BTreeSet<String> {
    let longer = |row: &Key| {
        let (_, server) = row.as_str().split_once('/')?;
        let name = format!("-{server}-");
        let (_, behind) = name.split_once(&format!("-{zone}-"))?;
        let part = behind.split('-').next()?;
        matches!(part.len(), 1 | 2).then(|| format!("{zone}-{part}"))
    };
    let zones: Option<BTreeSet<String>> = rows.into_iter().map(longer).collect();
    zones.unwrap_or_default()
}

/// Whether a row's server name has the zone between dashes or at its ends: `gke-us-east1-b-web` is
/// in `us-east1-b`, and not in `us-east1`'s neighbour `us-east1-bc`.
pub fn is_in_zone(row: &str, zone: &str) -> bool {
    let Some((_, server)) = row.split_once('/') else {
        return false;
    };
    !zone.is_empty() && format!("-{server}-").contains(&format!("-{zone}-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    fn known() -> Known {
        let row = |line: &str| {
            let keys: Vec<Key> = line.split(' ').map(key).collect();
            (keys[0].clone(), keys)
        };
        Known {
            rows: [
                "web/gke-us-east1-b-web",
                "web/gke-us-east1-c-web",
                "api/us-east1-b",
                "canary_web/gke-cny-web canary",
            ]
            .into_iter()
            .map(row)
            .collect(),
            stored: [key("zone/old")].into(),
            rows_are_known: true,
        }
    }

    fn expand(texts: &[&str]) -> Result<Vec<String>, TargetError> {
        let targets: Vec<Target> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let keys = known().expand(&targets, Among::Rows)?;
        Ok(keys.iter().map(Key::to_string).collect())
    }

    #[test]
    fn globs_and_zones_are_rows_and_keys_are_themselves() {
        assert_eq!(
            expand(&["canary", "web/*", "web/gke-us-east1-b-web"]).unwrap(),
            ["canary", "web/gke-us-east1-b-web", "web/gke-us-east1-c-web"]
        );
        let zone = known()
            .expand(&[Target::Zone("us-east1-b".into())], Among::Rows)
            .unwrap();
        assert_eq!(zone, [key("api/us-east1-b"), key("web/gke-us-east1-b-web")]);
        let part = known()
            .expand(&[Target::Zone("east1".into())], Among::Rows)
            .unwrap();
        assert_eq!(part.len(), 3, "a part between dashes counts");
        assert!(matches!(
            known().expand(&[Target::Zone("us-east1-bc".into())], Among::Rows),
            Err(TargetError::FitsNothing { .. })
        ));
        assert!(!is_in_zone("us-east1-b", "us-east1-b"), "a group is no row");
    }

    #[test]
    fn a_region_is_told_by_its_zones() {
        let zones = |zone, rows: &[&str]| {
            let rows: Vec<Key> = rows.iter().map(|row| key(row)).collect();
            let zones = zones_within(zone, &rows);
            zones.into_iter().collect::<Vec<_>>().join(" ")
        };
        let rows = ["web/a-us-east1-b", "web/us-east1-c-x", "api/us-east1-b"];
        assert_eq!(zones("us-east1", &rows), "us-east1-b us-east1-c");
        assert_eq!(zones("us-east1-b", &["web/gke-us-east1-b-web"]), "");
        assert_eq!(zones("us-east1-b", &["web/a-us-east1-b"]), "");
    }

    #[test]
    fn the_heartbeat_is_meant_only_by_its_name() {
        let row = key("haplane-heartbeat/self");
        let mut known = known();
        known.rows.insert(row.clone(), vec![row.clone()]);
        let of = |text: &str| known.expand(&[text.parse().unwrap()], Among::Rows).unwrap();
        assert_eq!(of("**").len(), 4);
        let alone = vec![row];
        assert_eq!(of("haplane-heartbeat/*"), alone);
        assert_eq!(of("haplane-heartbeat/self"), alone);
    }

    #[test]
    fn slips_are_refused_with_the_nearest_names() {
        let near = |text: &str| {
            known()
                .refuse_unknown(&[key(text)])
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            near("canry"),
            "no row asks for canry, and the store does not have it; did you mean canary?"
        );
        assert!(near("web/gke-us-east1-d-web").contains("web/gke-us-east1-"));
        assert!(near("canary_web/gke").contains("did you mean canary_web/gke-cny-web?"));
        assert!(near("web").contains("web is a backend, not a key; its rows are 'web/*'"));
        assert!(near("drain").contains("drain is a value, not a key"));
        assert!(near("b").ends_with("does not have it"), "no part of a name");
        let half = near("us-east1-b");
        assert!(
            half.ends_with("did you mean api/us-east1-b or -z us-east1-b?"),
            "{half}"
        );
        let star = expand(&["*"]).unwrap_err().to_string();
        assert!(
            star.ends_with("* stays within backend or server: '*/*'"),
            "{star}"
        );
        assert!(
            known()
                .refuse_unknown(&[key("zone/old"), key("canary")])
                .is_ok()
        );
        let nobody_asked_yet = Known {
            rows_are_known: true,
            ..Known::default()
        };
        assert!(nobody_asked_yet.refuse_unknown(&[key("canry")]).is_ok());
        let nobody = Known::default();
        assert!(
            nobody.refuse_unknown(&[key("canry")]).is_ok(),
            "break glass"
        );
        assert_eq!(
            nobody.expand(&["web/*".parse().unwrap()], Among::Rows),
            Err(TargetError::NobodyToAsk("web/*".into()))
        );
    }

    #[test]
    fn what_is_stored_can_be_named_while_nobody_answers() {
        let nobody = Known {
            stored: [key("web/a"), key("zone/b")].into(),
            ..Known::default()
        };
        let keys = nobody.expand(&["zone/*".parse().unwrap()], Among::RowsAndKeys);
        assert_eq!(keys, Ok(vec![key("zone/b")]));
    }

    #[test]
    fn the_rows_of_a_group() {
        let known = known();
        let rows = known.rows_of(&[key("canary")]);
        assert_eq!(rows, [&key("canary_web/gke-cny-web")]);
    }
}
