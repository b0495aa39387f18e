//! groups.toml: who asks for which groups, and where the agent is.

use std::io;
use std::path::Path;

use haplane_core::Key;
use haplane_core::enroll::{Group, Wanted};
use haplane_core::glob::Glob;
use serde::Deserialize;

use crate::failure::Failure;
use crate::haproxy_files::read_at_most;

/// More than any real file of groups.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    group: Vec<GroupTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    agent_addr: Option<String>,
    agent_port: Option<u16>,
    agent_inter: Option<String>,
    slowstart: Option<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    key: String,
    rows: Vec<String>,
}

/// Reads the file; without one, rows ask for themselves alone, on the usual port.
pub(super) fn read(path: Option<&Path>) -> Result<Wanted, Failure> {
    let Some(path) = path else {
        return Ok(Wanted::default());
    };
    let name = path.display();
    let text = read_at_most(path, MOST_BYTES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
        .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    understand(&text).map_err(|message| Failure::usage(format!("{name}: {message}")))
}

/// All that is wrong, at once.
fn understand(text: &str) -> Result<Wanted, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut wrong = Vec::new();
    let mut globs = |texts: &[String]| -> Vec<Glob> {
        let parse = |text: &String| match text.parse() {
            Ok(glob) => Some(glob),
            Err(error) => {
                wrong.push(format!("{text:?}: {error}"));
                None
            }
        };
        texts.iter().filter_map(parse).collect()
    };
    let exclude = globs(&file.defaults.exclude);
    let rows: Vec<Vec<Glob>> = file.group.iter().map(|group| globs(&group.rows)).collect();
    let mut groups = Vec::new();
    for (table, rows) in file.group.iter().zip(rows) {
        match table.key.parse::<Key>() {
            Ok(key) => groups.push(Group { key, rows }),
            Err(error) => wrong.push(format!("group key {:?}: {error}", table.key)),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    let usual = Wanted::default();
    Ok(Wanted {
        agent_address: file.defaults.agent_addr.unwrap_or(usual.agent_address),
        agent_port: file.defaults.agent_port.unwrap_or(usual.agent_port),
        agent_inter: file.defaults.agent_inter.unwrap_or(usual.agent_inter),
        slowstart: file.defaults.slowstart,
        exclude,
        groups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example() {
        let text = "[defaults]\nagent_addr = \"127.0.0.1\"\nagent_port = 9777\nagent_inter = \"2s\"\nslowstart = \"60s\"\n\
                    exclude = [\"asset_proxy/*\"]\n[[group]]\nkey = \"canary\"\nrows = [\"canary_*/*\", \"*/*-cny-*\"]\n";
        let wanted = understand(text).unwrap();
        assert_eq!(
            (wanted.agent_port, wanted.slowstart.as_deref()),
            (9777, Some("60s"))
        );
        assert!(wanted.groups[0].rows[1].matches("web/gke-cny-web"));
        assert!(wanted.exclude[0].matches("asset_proxy/a"));
        assert_eq!(understand("").unwrap().agent_address, "127.0.0.1");
    }

    #[test]
    fn all_that_is_wrong_at_once() {
        let error =
            understand("[defaults]\nexclude = [\"\"]\n[[group]]\nkey = \"a b\"\nrows = [\"\"]\n")
                .unwrap_err();
        assert_eq!(error.lines().count(), 3, "{error}");
        let unknown = understand("[defaults]\nagent_prot = 1\n").unwrap_err();
        assert!(
            unknown.contains("agent_prot") && unknown.contains("line 2"),
            "{unknown}"
        );
    }
}
