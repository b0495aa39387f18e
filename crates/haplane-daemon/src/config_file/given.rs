//! One value as it was given, in the file or outside, and its readings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

/// A value before it is understood.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// From the file.
    Toml(&'a DeValue<'a>),
    /// From a flag or a variable.
    Text(&'a str),
}

impl Given<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Toml(value) => value.type_str(),
            Self::Text(_) => "text",
        }
    }

    /// The value as TOML.
    pub(super) fn as_toml(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Toml(DeValue::String(text)) => quoted(text),
            Self::Toml(DeValue::Integer(integer)) => integer.as_str().to_owned(),
            Self::Toml(DeValue::Float(float)) => float.as_str().to_owned(),
            Self::Toml(DeValue::Boolean(boolean)) => boolean.to_string(),
            Self::Toml(DeValue::Datetime(time)) => time.to_string(),
            Self::Toml(DeValue::Array(items)) => {
                let items: Vec<String> = items
                    .iter()
                    .map(|item| Given::Toml(item.get_ref()).as_toml())
                    .collect();
                format!("[{}]", items.join(", "))
            }
            Self::Toml(DeValue::Table(_)) => "{…}".to_owned(),
        }
    }
}

/// A text.
pub fn text(given: &Given<'_>) -> Result<String, String> {
    match given {
        Given::Toml(value) => value.as_str().map(str::to_owned),
        Given::Text(text) => Some((*text).to_owned()),
    }
    .ok_or_else(|| {
        format!(
            "expected a text in quotes, found {}",
            with_article(given.kind())
        )
    })
}

/// A text that is not empty.
pub fn nonempty(given: &Given<'_>) -> Result<String, String> {
    let text = text(given)?;
    if text.trim().is_empty() {
        Err("this cannot be empty".to_owned())
    } else {
        Ok(text)
    }
}

/// A path.
pub fn path(given: &Given<'_>) -> Result<PathBuf, String> {
    nonempty(given).map(PathBuf::from)
}

/// `true` or `false`.
pub fn boolean(given: &Given<'_>) -> Result<bool, String> {
    match given {
        Given::Toml(value) => value.as_bool(),
        Given::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(true),
            "false" | "no" | "0" => Some(false),
            _ => None,
        },
    }
    .ok_or_else(|| {
        format!(
            "expected true or false, found {}",
            with_article(given.kind())
        )
    })
}

/// A duration with its unit.
pub fn duration(given: &Given<'_>) -> Result<Duration, String> {
    let text = text(given).map_err(|_| {
        "expected a duration in quotes, such as \"500ms\", \"2s\", \"10m\" or \"2h\"".to_owned()
    })?;
    haplane_core::duration::parse(&text).map_err(|error| error.to_string())
}

/// A whole number, one or more.
pub fn count(given: &Given<'_>) -> Result<usize, String> {
    let number = match given {
        Given::Toml(value) => value
            .as_integer()
            .and_then(|integer| usize::from_str_radix(integer.as_str(), integer.radix()).ok()),
        Given::Text(text) => text.parse().ok(),
    };
    number
        .filter(|&n| n > 0)
        .ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// `ADDRESS:PORT`, a number and not a name, because it is bound.
pub fn socket_address(given: &Given<'_>) -> Result<SocketAddr, String> {
    let text = text(given)?;
    text.parse().map_err(|_| {
        format!("{text:?} is not an address and port such as 127.0.0.1:9777 or [::1]:9777")
    })
}

/// One text or a list of texts; outside the file they are separated by commas.
pub fn texts(given: &Given<'_>) -> Result<Vec<String>, String> {
    match given {
        Given::Toml(DeValue::Array(items)) => items
            .iter()
            .map(|item| nonempty(&Given::Toml(item.get_ref())))
            .collect(),
        Given::Toml(_) => nonempty(given).map(|text| vec![text]),
        Given::Text(text) => text
            .split(',')
            .map(|part| nonempty(&Given::Text(part.trim())))
            .collect(),
    }
}

/// One of a closed set of words.
pub fn one_of<T: Copy>(given: &Given<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let text = text(given)?;
    words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|&(_, value)| value)
        .ok_or_else(|| {
            let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            format!("{text:?} is none of {}", known.join(", "))
        })
}

fn with_article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// A TOML basic string; JSON's escapes are among TOML's.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
