//! Rows as a haproxy.cfg has them: for machines that reach no agent (`--rows`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use haplane_core::Key;
use haplane_core::ask::Ask;
use haplane_haproxy::cfg::Config;

use crate::failure::Failure;
use crate::haproxy_files;

/// The rows of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredRows {
    /// The enrolled rows, each with the keys of its `agent-send`.
    pub rows: BTreeMap<Key, Vec<Key>>,
    /// Rows without `agent-check`, or whose line no agent would answer: no write reaches them.
    pub out_of_reach: Vec<Key>,
}

/// Reads the rows of files, in the order given; a folder stands for its `*.cfg`.
pub fn rows_of_files(paths: &[PathBuf]) -> Result<ConfiguredRows, Failure> {
    if paths.is_empty() {
        return Ok(ConfiguredRows::default());
    }
    let found = rows_of(&haproxy_files::read_config(paths, None)?);
    if found.rows.is_empty() && found.out_of_reach.is_empty() {
        // Taken for a configuration without rows, it would let every slip of a key through.
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let names = names.join(", ");
        return Err(Failure::usage(format!(
            "--rows: no backend of {names} has a server: is it the haproxy.cfg that you mean?"
        )));
    }
    Ok(found)
}

fn rows_of(config: &Config) -> ConfiguredRows {
    let mut found = ConfiguredRows::default();
    for row in config.rows() {
        let Some(key) = row.key().and_then(|row| Key::of_row(&row).ok()) else {
            continue;
        };
        let agent = &row.server.settings.agent;
        let line = agent.send.as_ref().filter(|_| agent.enabled.value);
        match line.map(|line| Ask::parse(line.value.as_bytes())) {
            Some(Ok(Ask::Row(asked))) => {
                found.rows.insert(key, asked.keys);
            }
            _ => found.out_of_reach.push(key),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use haplane_haproxy::cfg::{Context, SourceFile};

    use super::*;

    #[test]
    fn enrolled_rows_have_keys_and_the_others_are_out_of_reach() {
        let text = "backend web\n\
             \x20 default-server agent-check agent-addr 127.0.0.1 agent-port 9777\n\
             \x20 server a 127.0.0.1:1 agent-send \"web/a canary\\n\"\n\
             \x20 server b 127.0.0.1:1 no-agent-check\n\
             \x20 server-template s 2 127.0.0.1:1 agent-send \"@free\\n\"\n";
        let file = SourceFile::new("haproxy.cfg", text);
        let found = rows_of(&Config::parse(vec![file], &Context::default()));
        let keys: Vec<Key> = ["web/a", "canary"]
            .iter()
            .map(|k| k.parse().unwrap())
            .collect();
        assert_eq!(found.rows, [(keys[0].clone(), keys)].into());
        let names: Vec<&str> = found.out_of_reach.iter().map(Key::as_str).collect();
        assert_eq!(names, ["web/b", "web/s1", "web/s2"]);
    }
}
