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

/// Puts our tips in the place of the parser's. Those say how to pass a flag as a value: here that
/// would be a key by the name of `-y`, which nobody means. `words` are the words typed.
pub fn improve(mut error: Error, program: &Command, words: &[String]) -> Error {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            error.remove(ContextKind::Suggested);
            if let Some(flag) = named_here(&error, program, words) {
                let flag = ContextValue::String(flag.to_owned());
                error.insert(ContextKind::SuggestedArg, flag);
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

/// The flag that was meant, if the command typed has it.
fn named_here(error: &Error, program: &Command, words: &[String]) -> Option<&'static str> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let (_, meant) = KNOWN_ELSEWHERE.iter().find(|(there, _)| there == typed)?;
    let command = words
        .iter()
        .find_map(|word| program.find_subcommand(word))?;
    let has = |arg: &clap::Arg| arg.get_long() == meant.strip_prefix("--");
    command.get_arguments().any(has).then_some(*meant)
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
        ] {
            let told = told(line);
            assert!(told.contains(tip), "{line}: {told}");
            assert!(!told.contains("as a value"), "{line}: {told}");
        }
        let told = told("haplane show -y");
        assert!(!told.contains("tip:"), "{told}");
    }

    #[test]
    fn no_command_is_not_answered_with_a_heap_of_them() {
        let told = told("haplane --json");
        assert!(!told.contains("heartbeat"), "{told}");
        assert!(told.contains("--help"), "{told}");
    }
}
