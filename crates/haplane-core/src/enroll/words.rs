//! The words of `agent-send` for a row.

use haplane_haproxy::cfg::Row;

use super::{Wanted, name_of};
use crate::ask::MAX_KEYS;
use crate::key::Key;

/// `@free` for a template: its slots get their own words when they are filled.
pub(super) fn line_for(row: Row<'_>, wanted: &Wanted) -> Result<String, String> {
    if row.server.template.is_some() {
        return Ok("@free\n".to_owned());
    }
    let name = name_of(row);
    let key: Key = name
        .parse()
        .map_err(|error| format!("its name cannot be a key: {error}"))?;
    let mut words = vec![key];
    for group in &wanted.groups {
        let asks = group.rows.iter().any(|glob| glob.matches(&name));
        if asks && !words.contains(&group.key) {
            words.push(group.key.clone());
        }
    }
    if words.len() > MAX_KEYS {
        return Err(format!(
            "it is in {} groups, the agent takes {} at most",
            words.len() - 1,
            MAX_KEYS - 1
        ));
    }
    let words: Vec<&str> = words.iter().map(Key::as_str).collect();
    Ok(format!("{}\n", words.join(" ")))
}

/// The text in double quotes, as HAProxy's lexer reads it back.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\\' | '"' | '$' => {
                quoted.push('\\');
                quoted.push(c);
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
