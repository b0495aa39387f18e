//! What people type, for each command: at the end of its help page and in its manual page.

use std::fmt::Write as _;

use clap::Command;

/// A command line, and what it is for.
pub type Example = (&'static str, &'static str);

/// The examples of the whole program.
pub const TOP: &[Example] = &[
    (
        "haplane canary --disable --wait",
        "canary leaves rotation, proven",
    ),
    (
        "haplane drain -z us-east1-b --dry-run",
        "what a zone is: rows and weight",
    ),
    ("haplane ready web/srv1", "one server comes back"),
    ("haplane why web/srv1", "who wants what of it, what it does"),
];

/// The examples of each command.
const BY_COMMAND: &[(&str, &[Example])] = &[
    (
        "agent",
        &[
            (
                "haplane agent --store consul:http://127.0.0.1:8500",
                "beside an HAProxy, as in haproxy.cfg: agent-addr 127.0.0.1 agent-port 9777",
            ),
            (
                "haplane agent --check-config",
                "before a restart: what is wrong in haplane.toml",
            ),
        ],
    ),
    (
        "heartbeat",
        &[
            (
                "haplane heartbeat --once",
                "does a write reach every HAProxy, and how soon",
            ),
            (
                "haplane heartbeat --every 1m",
                "the same for ever, for Prometheus",
            ),
        ],
    ),
    (
        "sync",
        &[
            ("haplane sync --plan", "what it would do, and why"),
            (
                "haplane sync --once --accept web",
                "do it now, also when the list of web has shrunk",
            ),
        ],
    ),
    (
        "confirm",
        &[(
            "haplane sync confirm web",
            "the list of web has shrunk, and that is meant",
        )],
    ),
    (
        "slots",
        &[
            ("haplane slots", "every pool"),
            ("haplane slots web --history", "what a slot has held before"),
        ],
    ),
    (
        "drain",
        &[
            (
                "haplane drain web/srv1 --reason 'new kernel' --wait",
                "one server: drain, up to a minute for its sessions, maint, proven",
            ),
            (
                "haplane drain -z us-east1-b --for 4h --min-ready 50%",
                "a zone, until it ends by itself, unless too little weight would be left",
            ),
        ],
    ),
    (
        "ready",
        &[
            (
                "haplane ready web/srv1 --wait",
                "back, and wait for the proof",
            ),
            ("haplane ready -z us-east1-b", "a whole zone"),
        ],
    ),
    (
        "ramp",
        &[(
            "haplane ramp web/srv1 10%,50%,100% --every 2m",
            "a cold server, step by step",
        )],
    ),
    (
        "canary",
        &[
            (
                "haplane canary --disable --reason 'error rate' --ticket INC-7 --wait",
                "out, proven",
            ),
            (
                "haplane canary --is-active",
                "status 0 or 7, for a pipeline's condition",
            ),
        ],
    ),
    (
        "set",
        &[
            ("haplane set web/srv1 25%", "a quarter of its weight"),
            (
                "haplane set 'web/*-us-east1-b*' maint --for 2h",
                "rows by a quoted glob",
            ),
        ],
    ),
    (
        "clear",
        &[(
            "haplane clear canary web/srv1",
            "both go back to what their other keys say",
        )],
    ),
    (
        "audit",
        &[
            (
                "haplane audit /etc/haproxy/haproxy.cfg",
                "what will bite, each with its fix",
            ),
            (
                "haplane audit --socket /run/haproxy/haproxy.sock --forecast",
                "against what runs now: what a reload would make of every row",
            ),
        ],
    ),
    (
        "enroll",
        &[
            (
                "haplane enroll haproxy.cfg --groups groups.toml",
                "what would change, as a diff",
            ),
            (
                "haplane enroll haproxy.cfg --write --haproxy /usr/sbin/haproxy",
                "change it, once `haproxy -c` has taken the result",
            ),
        ],
    ),
    (
        "seed",
        &[(
            "haplane seed -f /etc/haproxy/haproxy.cfg -o /run/haproxy/haplane.state",
            "before each reload: the file that server-state-file names",
        )],
    ),
    (
        "status",
        &[
            ("haplane status", "what is in trouble or out of rotation"),
            ("haplane status --all --json", "everything, for a program"),
        ],
    ),
    (
        "why",
        &[("haplane why web/srv1", "why does it take traffic, or none")],
    ),
    ("ui", &[("haplane ui", "then open http://127.0.0.1:9780/")]),
    (
        "wait",
        &[
            (
                "haplane wait --timeout 2m",
                "until every HAProxy does what the store says; else status 4, with names",
            ),
            ("haplane wait canary", "only that group's rows"),
        ],
    ),
    (
        "show",
        &[
            ("haplane show", "all that is written"),
            ("haplane show 'web/*' --json", "the keys of one backend"),
        ],
    ),
    (
        "log",
        &[
            ("haplane log canary", "the history of one key"),
            ("haplane log --since 2h", "what was changed lately"),
        ],
    ),
    (
        "init",
        &[(
            "haplane init --store consul:http://127.0.0.1:8500",
            "once for a store",
        )],
    ),
    (
        "forget",
        &[(
            "haplane forget lb-7",
            "a machine that was taken down for good",
        )],
    ),
    (
        "completions",
        &[(
            "haplane completions bash > /etc/bash_completion.d/haplane",
            "for everybody on this machine",
        )],
    ),
    (
        "man",
        &[(
            "haplane man /usr/local/share/man/man1",
            "then: man haplane-drain",
        )],
    ),
];

/// The examples of a command by its name.
pub fn of(command: &str) -> &'static [Example] {
    let found = BY_COMMAND.iter().find(|(name, _)| *name == command);
    found.map_or(&[], |(_, examples)| examples)
}

/// Puts them at the end of each command's help page: the words first, the line to copy below.
pub(super) fn add(command: Command) -> Command {
    command.mut_subcommands(|sub| {
        let mut text = String::from("Examples:");
        for (line, what) in of(sub.get_name()) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  # {what}\n  {line}");
        }
        add(sub).after_help(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With what stands before it, as wide as most terminals.
    const WIDEST: usize = 76;

    #[test]
    fn every_command_has_one_that_fits_a_line() {
        for sub in crate::cli::command().get_subcommands() {
            let examples = of(sub.get_name());
            assert!(!examples.is_empty(), "{}", sub.get_name());
            for text in examples.iter().flat_map(|(line, what)| [line, what]) {
                assert!(text.chars().count() <= WIDEST, "{text}");
            }
        }
    }
}
