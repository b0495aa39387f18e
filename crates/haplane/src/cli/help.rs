//! Help that a newcomer can work from: commands by task, exit statuses, on one screen.

use std::fmt::Write as _;

use clap::Command;
use haplane_daemon::settings::KeyDoc;

use super::examples;
use crate::exit::Exit;

/// The commands by task, in the order of a day's work.
const TASKS: [(&str, &[&str]); 5] = [
    (
        "Change what takes traffic",
        &["drain", "ready", "ramp", "canary", "set", "clear"],
    ),
    (
        "Look",
        &["status", "why", "ui", "wait", "show", "log", "slots"],
    ),
    (
        "Check and prepare haproxy.cfg",
        &["audit", "enroll", "seed"],
    ),
    ("Run beside HAProxy", &["agent", "sync", "heartbeat"]),
    ("Set up", &["init", "forget", "completions", "man"]),
];

/// Gives the command its help page.
pub(super) fn arrange(command: Command) -> Command {
    let commands = commands_by_task(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}\n{{options}}{{after-help}}"
    );
    command
        .help_template(template)
        .after_help(format!("{}Exit: {}", top_examples(), exit_words()))
}

/// Beside each other, where a screen is wide enough for both.
fn top_examples() -> String {
    let line = |(line, what): &examples::Example| format!("  {line:<38} {what}\n");
    let lines: String = examples::TOP.iter().map(line).collect();
    format!("Examples:\n{lines}")
}

fn commands_by_task(command: &Command) -> String {
    let mut text = String::new();
    for (task, names) in TASKS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{task}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
    }
    text
}

/// The exit statuses, on one line.
fn exit_words() -> String {
    let one = |exit: &Exit| format!("{} {}", exit.status(), exit.word());
    let all: Vec<String> = Exit::ALL.iter().map(one).collect();
    all.join(", ")
}

/// What a flag of the configuration is for.
pub(super) fn of_key(doc: &KeyDoc) -> String {
    let (about, variable) = (about_key(doc.flag), doc.variable);
    format!("{about} [env: {variable}]")
}

/// Over flags whose variables go without saying.
pub(super) const IN_BRIEF: &str = "Configuration, by flag, file or variable (HAPLANE_HTTP_LISTEN)";

/// The same under [`IN_BRIEF`]: a variable is named when it cannot be told from the flag.
pub(super) fn of_key_in_brief(doc: &KeyDoc) -> String {
    let told = doc.flag.to_uppercase().replace('-', "_");
    if doc.variable == format!("HAPLANE_{told}") {
        about_key(doc.flag).to_owned()
    } else {
        of_key(doc)
    }
}

fn about_key(flag: &str) -> &'static str {
    match flag {
        "store" => "consul:http(s)://…, consul:unix:///PATH or dir:/PATH",
        "prefix" => "Root of the keys in the store [default: haplane]",
        "node" => "This node's name [default: the host name]",
        "listen" => "Where HAProxy asks [default: 127.0.0.1:9777]",
        "allow-remote" => "Allow --listen on an address that other machines reach",
        "no-require-marker" => "Accept a prefix without marker",
        "sync-timeout" => "How long to try for the first snapshot [default: 30s]",
        "weights" => "ready means full weight, or leaves the weight alone",
        "absent" => "What a row without any key is; keep: as it was",
        "no-register" => "Do not register in Consul",
        "leave" => "Leave the fleet when it stops: for pods, which end for good",
        "max-connections" => "Most connections of HAProxy at once [default: 4096]",
        "last-good" => "Keep the last good snapshot in this file, to start from it",
        "last-good-max-age" => "How old it may be [default: 24h]",
        "http-listen" => "Where people, probes and Prometheus ask [default: 127.0.0.1:9778]",
        "http-allow-remote" => "Allow --http-listen on an address that other machines reach",
        "pprof" => "Serve profiles also when not bound to loopback",
        "haproxy-socket" => "HAProxy's Runtime API socket, or several with commas",
        "haproxy-master-socket" => "The master CLI's socket, to count what old workers hold",
        "push" => "Set changed rows through the socket at once",
        "forgotten-after" => "A drain older than this stands out [default: 24h]",
        _ => "As in the configuration file",
    }
}

pub(super) fn value_name(doc: &KeyDoc) -> &'static str {
    match doc.flag {
        "store" => "STORE",
        "listen" | "http-listen" => "ADDRESS:PORT",
        "prefix" => "PREFIX",
        "node" => "NAME",
        "haproxy-socket" | "haproxy-master-socket" => "PATH",
        "last-good" => "FILE",
        "sync-timeout" | "last-good-max-age" | "forgotten-after" => "TIME",
        "max-connections" => "N",
        "weights" => "restate|leave",
        "absent" => "ready|keep",
        _ => "VALUE",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use haplane_daemon::settings::KEYS;

    use super::*;

    #[test]
    fn every_command_belongs_to_a_task() {
        let command = crate::cli::command();
        let known: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(Command::get_name)
            .collect();
        let shown: Vec<&str> = TASKS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        assert_eq!(shown.iter().copied().collect::<BTreeSet<_>>(), known);
        assert_eq!(shown.len(), known.len(), "each once");
    }

    #[test]
    fn every_flag_of_the_configuration_says_what_it_is_for() {
        for doc in &KEYS {
            assert_ne!(about_key(doc.flag), about_key(""), "--{}", doc.flag);
        }
    }

    #[test]
    fn a_flag_of_the_agent_takes_a_line() {
        let mut command = crate::cli::command();
        let agent = command.find_subcommand_mut("agent").unwrap();
        let help = agent.render_help().to_string();
        assert!(help.lines().count() <= 46, "{help}");
    }

    #[test]
    fn the_help_fits_a_screen() {
        let help = crate::cli::command().render_help().to_string();
        assert!(help.lines().count() <= 48, "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
    }

    #[test]
    fn nothing_of_the_help_is_broken_on_an_ordinary_terminal() {
        let help = crate::cli::command().term_width(80).render_help();
        let help = help.to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for (line, what) in examples::TOP {
            let whole = |shown: &str| shown.contains(line) && shown.ends_with(what);
            assert!(help.lines().any(whole), "{help}");
        }
    }
}
