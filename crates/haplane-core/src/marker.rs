//! The marker: the key that says "this prefix is initialised, and you may read it".
//!
//! In Consul a token without permission reads exactly what an empty prefix reads (facts 8.2). A read
//! without the marker is therefore not a list of keys.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The marker's path below the state prefix. No key starts with a dot, so it never clashes.
pub const PATH: &str = ".haplane";

/// What the marker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Tells one initialised store from another: a restored store has the old id, a newly
    /// initialised one has a new one.
    pub id: String,
}

#[derive(Serialize, Deserialize)]
struct Text {
    id: String,
    created_at: String,
}

impl Marker {
    /// A marker for a prefix that is initialised now.
    pub fn new(random: u64) -> Self {
        Self {
            id: format!("{random:016x}"),
        }
    }

    /// The text to write.
    pub fn text(&self, now: jiff::Timestamp) -> String {
        let text = Text {
            id: self.id.clone(),
            created_at: now.to_string(),
        };
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Reads a marker. Any text is one, so that it can be made by hand; the text is then its id.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let id = serde_json::from_slice::<Text>(bytes).map_or_else(
            |_| String::from_utf8_lossy(bytes).trim().to_owned(),
            |text| text.id,
        );
        Self { id }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_marks_and_ours_carries_an_id() {
        let marker = Marker::new(7);
        let text = marker.text("2030-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(Marker::from_bytes(text.as_bytes()), marker);
        assert_eq!(Marker::from_bytes(b"by hand\n").id, "by hand");
        assert_eq!(Marker::from_bytes(b"").id, "");
    }
}
