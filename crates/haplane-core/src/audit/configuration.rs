//! What HAProxy refuses, and what we could not read.

use haplane_haproxy::cfg::{Severity, server_keywords};

use super::{Findings, Looked, Place, Rule};
use crate::nearest::nearest;

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    for diagnostic in looked.config().diagnostics() {
        let place = Place::Config(diagnostic.span);
        let message = diagnostic.message.clone();
        match diagnostic.severity {
            Severity::Error => {
                findings.add(
                    Rule::ConfigRefused,
                    place,
                    None,
                    message,
                    "see `haproxy -c -f` on the same files",
                );
            }
            severity => {
                let fix = match &diagnostic.unknown_keyword {
                    Some(keyword) => keyword_fix(keyword),
                    None => "set the variable, or name the version with --haproxy-version; else look at it yourself".to_owned(),
                };
                findings.add_as(severity, Rule::ConfigUnknown, place, None, message, fix);
            }
        }
    }
}

fn keyword_fix(keyword: &str) -> String {
    let near = nearest(keyword, server_keywords());
    if near.is_empty() {
        return "take it out, unless it is a keyword of a newer HAProxy; `haproxy -c` knows"
            .to_owned();
    }
    format!("did you mean {}?", near.join(" or "))
}
