//! What a mistyped command line is answered: a tip that helps, or none.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// What other tools call it, and what it is called here.
const KNOWN_ELSEWHERE: [(&str, &str); 6] = [
    ("-y", "--yes"),
    ("-n", "--dry-run"),
    ("-f", "--force"),
    ("-w", "--watch"),
    ("-r", "--reason"),
    ("--until", "--for"),
];

/// What commands are called elsewhere, and what is called so here.
const COMMANDS_ELSEWHERE: [(&str, &str); 18] = [
    ("undrain", "ready"),
    ("enable", "ready"),
    ("up", "ready"),
    ("restore", "ready"),
    ("disable", "drain"),
    ("maint", "set"),
    ("weight", "set"),
    ("put", "set"),
    ("get", "show"),
    ("list", "show"),
    ("ls", "show"),
    ("delete", "clear"),
    ("del", "clear"),
    ("rm", "clear"),
    ("unset", "clear"),
    ("history", "log"),
    ("explain", "why"),
    ("check", "audit"),
];

/// Puts our tips in the place of the parser's. Those say how to pass a flag as a value: here that
/// would be a key by the name of `-y`, which nobody means. `words` are the words typed.
pub fn improve(mut error: Error, program: &Command, words: &[String]) -> Error {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            error.remove(ContextKind::Suggested);
            let command = typed(program, words);
            if let Some(flag) = flag_of_word(&error, command) {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(flag));
            } else if let Some(flag) = named_here(&error, command) {
                let flag = ContextValue::String(flag.to_owned());
                error.insert(ContextKind::SuggestedArg, flag);
            } else if is_out_of_place(&error, program, command) {
                error.remove(ContextKind::SuggestedArg);
            }
        }
        // What looks alike may be the opposite: undrain and drain.
        ErrorKind::InvalidSubcommand => {
            if let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
                && let Some((_, here)) = COMMANDS_ELSEWHERE.iter().find(|(there, _)| there == typed)
            {
                let here = ContextValue::Strings(vec![(*here).to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, here);
            }
        }
        // The help page has them by task; here they would be a heap.
        ErrorKind::MissingSubcommand => {
            error.remove(ContextKind::ValidSubcommand);
        }
        _ => {}
    }
    error
}

/// The command that was typed, as far down as it goes.
fn typed<'p>(program: &'p Command, words: &[String]) -> &'p Command {
    let down =
        |command: &'p Command, word: &String| command.find_subcommand(word).unwrap_or(command);
    words.iter().skip(1).fold(program, down)
}

/// The flag that was meant, if the command has it.
fn named_here(error: &Error, command: &Command) -> Option<&'static str> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let (_, meant) = KNOWN_ELSEWHERE.iter().find(|(there, _)| there == typed)?;
    flag(command, meant).is_some().then_some(*meant)
}

/// The flag of this command that was typed without its dashes: `haplane canary status`.
fn flag_of_word(error: &Error, command: &Command) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = format!("--{typed}");
    let is_meant = !typed.starts_with('-')
        && command
            .get_arguments()
            .any(|arg| arg.get_long() == Some(typed));
    is_meant.then_some(flag)
}

/// Whether the parser suggests a flag that this command's help does not show: all commands take the
/// agent's, because one file configures them all.
fn is_out_of_place(error: &Error, program: &Command, command: &Command) -> bool {
    let Some(ContextValue::String(suggested)) = error.get(ContextKind::SuggestedArg) else {
        return false;
    };
    // Both are short and begin alike; one is an end, the other goes over a guard.
    let is_typed = |flag: &str| matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(typed)) if typed == flag);
    if suggested == "--force" && is_typed("--for") {
        return true;
    }
    let is_hidden = flag(program, suggested).is_some_and(clap::Arg::is_hide_set);
    is_hidden && flag(command, suggested).is_none_or(clap::Arg::is_hide_set)
}

fn flag<'c>(command: &'c Command, name: &str) -> Option<&'c clap::Arg> {
    let is_it = |arg: &&clap::Arg| arg.get_long() == name.strip_prefix("--");
    command.get_arguments().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let program = crate::cli::command();
        let error = program.clone().try_get_matches_from(&words).unwrap_err();
        improve(error, &program, &words).to_string()
    }

    #[test]
    fn a_flag_of_other_tools_is_named_as_it_is_called_here() {
        for (line, tip) in [
            ("haplane drain canary -y", "'--yes'"),
            ("haplane set canary drain -n", "'--dry-run'"),
            ("haplane ready canary -f", "'--force'"),
            ("haplane drain canary --until 2h", "'--for'"),
            ("haplane sync confirm web -y", "'--yes'"),
            ("haplane agent --listn 127.0.0.1:1", "'--listen'"),
            ("haplane set canary drain --stor x", "'--store'"),
        ] {
            let told = told(line);
            assert!(told.contains(tip), "{line}: {told}");
            assert!(!told.contains("as a value"), "{line}: {told}");
        }
        for line in ["haplane show -y", "haplane set canary drain --limit"] {
            let told = told(line);
            assert!(!told.contains("tip:"), "{line}: {told}");
        }
    }

    #[test]
    fn a_command_of_other_tools_is_named_as_it_is_called_here() {
        for (line, tip) in [
            ("haplane undrain canary", "'ready'"),
            ("haplane get canary", "'show'"),
            ("haplane rm canary", "'clear'"),
            ("haplane drian canary", "'drain'"),
            ("haplane canary status", "'--status'"),
            ("haplane canary disable", "'--disable'"),
        ] {
            let told = told(line);
            assert!(told.contains(tip), "{line}: {told}");
        }
        assert!(!told("haplane undrain canary").contains("'drain'"));
        assert!(!told("haplane clear canary --for 2h").contains("--force'"));
    }

    #[test]
    fn no_command_is_not_answered_with_a_heap_of_them() {
        let told = told("haplane --json");
        assert!(!told.contains("heartbeat"), "{told}");
        assert!(told.contains("--help"), "{told}");
    }
}
