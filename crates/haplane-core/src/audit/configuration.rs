//! What HAProxy refuses, and what we could not read.

use haplane_haproxy::cfg::Severity;

use super::{Findings, Looked, Place, Rule};

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
                let fix = "set the variable, or name the version with --haproxy-version; else look at it yourself";
                findings.add_as(severity, Rule::ConfigUnknown, place, None, message, fix);
            }
        }
    }
}
