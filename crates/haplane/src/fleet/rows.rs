//! Rows as a haproxy.cfg has them: for machines that reach no agent (`--rows`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use haplane_core::Key;
use haplane_core::ask::Ask;
use haplane_haproxy::cfg::{Config, Context, Environment, SourceFile, folder_order};

use crate::exit::Failure;

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
    let mut files = Vec::new();
    for path in paths {
        for file in files_of(path)? {
            let bytes = fs::read(&file).map_err(|error| unreadable(&file, &error))?;
            files.push(SourceFile::new(file.display().to_string(), bytes));
        }
    }
    let context = Context {
        environment: Environment::from_pairs(env::vars()),
        version: None,
    };
    Ok(rows_of(&Config::parse(files, &context)))
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(|error| unreadable(path, &error))?;
    let names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let ordered = folder_order(names.iter().map(String::as_str));
    Ok(ordered.into_iter().map(|name| path.join(name)).collect())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("--rows: cannot read {}: {error}", path.display()))
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
