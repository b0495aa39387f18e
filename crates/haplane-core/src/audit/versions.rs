//! Versions of HAProxy with known faults in what we rely on. Each entry has its public reference.

use haplane_haproxy::HaproxyVersion;

use super::{Findings, Looked, Place, Rule, state_files};

/// What of a configuration a fault concerns.
#[derive(Clone, Copy)]
enum Concerns {
    Agents,
    StateFiles,
    Everything,
}

struct Known {
    from: HaproxyVersion,
    /// The first version without it.
    until: HaproxyVersion,
    concerns: Concerns,
    what: &'static str,
    reference: &'static str,
}

const fn known(
    from: (u16, u16, u16),
    until: (u16, u16, u16),
    concerns: Concerns,
    what: &'static str,
    reference: &'static str,
) -> Known {
    Known {
        from: HaproxyVersion::new(from.0, from.1, from.2),
        until: HaproxyVersion::new(until.0, until.1, until.2),
        concerns,
        what,
        reference,
    }
}

const NO_MORE_FIXES: &str = "its branch gets no more fixes";
const BRANCHES: &str = "https://www.haproxy.org/";

const KNOWN: &[Known] = &[
    known(
        (1, 9, 0),
        (1, 9, 3),
        Concerns::Agents,
        "agent checks crash it",
        "https://github.com/haproxy/haproxy/issues/20",
    ),
    known(
        (2, 4, 0),
        (2, 4, 2),
        Concerns::Agents,
        "agent checks crash it",
        "https://github.com/haproxy/haproxy/issues/1302",
    ),
    known(
        (1, 7, 0),
        (2, 6, 0),
        Concerns::StateFiles,
        "`show servers state` has no agent and check ports, so a state file of it brings back less than one of 2.6",
        "https://github.com/haproxy/haproxy/issues/985",
    ),
    known(
        (0, 0, 0),
        (2, 2, 0),
        Concerns::Everything,
        NO_MORE_FIXES,
        BRANCHES,
    ),
    known(
        (2, 3, 0),
        (2, 4, 0),
        Concerns::Everything,
        NO_MORE_FIXES,
        BRANCHES,
    ),
    known(
        (2, 5, 0),
        (2, 6, 0),
        Concerns::Everything,
        NO_MORE_FIXES,
        BRANCHES,
    ),
    known(
        (2, 7, 0),
        (2, 8, 0),
        Concerns::Everything,
        NO_MORE_FIXES,
        BRANCHES,
    ),
];

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    let Some(version) = looked.subject.version else {
        return;
    };
    for known in KNOWN
        .iter()
        .filter(|known| known.from <= version && version < known.until)
    {
        let concerned = match known.concerns {
            Concerns::Agents => looked.has_enrolled_rows(),
            Concerns::StateFiles => state_files::loads_any(looked),
            Concerns::Everything => true,
        };
        if concerned {
            let message = format!("HAProxy {version}: {} ({})", known.what, known.reference);
            let fix = format!(
                "use {} or later, best a branch with long-term support",
                known.until
            );
            findings.add(Rule::VersionKnownBad, Place::Process, None, message, fix);
        }
    }
}
