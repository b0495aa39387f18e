//! Taking the replies to one batch apart, and telling a success from everything else.

use thiserror::Error;

use super::{Action, Command};

/// HAProxy did not do what a command asked; its own words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("HAProxy answered `{command}` with: {reply}")]
pub struct Refusal {
    /// The command as it was sent.
    pub command: String,
    /// The reply, without its severity mark.
    pub reply: String,
}

/// The replies do not match the commands: nothing is known of what was done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// HAProxy closed before it had answered every command.
    #[error("HAProxy answered {got} of {expected} commands and closed")]
    Short {
        /// Whole replies.
        got: usize,
        /// Commands sent.
        expected: usize,
    },
    /// There is more text than commands.
    #[error("HAProxy answered more than it was asked; after {expected} replies came: {found}")]
    Extra {
        /// Commands sent.
        expected: usize,
        /// The beginning of the rest.
        found: String,
    },
    /// The severity marks cannot be switched on, so no reply of this HAProxy can be told from another.
    #[error("HAProxy does not take `set severity-output number`; it answered: {found}")]
    Severity {
        /// What it said.
        found: String,
    },
}

/// How the commands of a batch were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marks {
    /// Behind [`super::SEVERITY`]: every message carries its severity.
    Severity,
    /// Through the master, where every command is a session of its own and none carries a mark.
    None,
}

/// Reads everything that HAProxy answered to a batch, up to the end of the connection: one verdict for each command, in
/// order.
///
/// `del server` needs a batch of its own kind: 2.6 ends its reply without the empty line, so that a silent success
/// behind it cannot be told from that line.
///
/// # Errors
///
/// When the replies cannot be matched with the commands one to one. Then nothing may be concluded: read back.
pub fn read_replies(
    commands: &[Command],
    marks: Marks,
    text: &str,
) -> Result<Vec<Result<(), Refusal>>, BatchError> {
    let mut replies = Replies { rest: text };
    if marks == Marks::Severity {
        match replies.next() {
            Some("") => {}
            Some(found) => {
                return Err(BatchError::Severity {
                    found: shorten(found),
                });
            }
            None => {
                return Err(BatchError::Short {
                    got: 0,
                    expected: commands.len(),
                });
            }
        }
    }
    let mut verdicts = Vec::with_capacity(commands.len());
    for command in commands {
        let reply = if command.action == Action::Delete {
            replies.next_line()
        } else {
            replies.next()
        };
        let reply = reply.ok_or(BatchError::Short {
            got: verdicts.len(),
            expected: commands.len(),
        })?;
        verdicts.push(judge(command, reply));
    }
    match replies.rest.trim_matches('\n') {
        "" => Ok(verdicts),
        found => Err(BatchError::Extra {
            expected: commands.len(),
            found: shorten(found),
        }),
    }
}

/// The replies one after the other: an empty line for a silent success, else a message up to its empty line.
struct Replies<'a> {
    rest: &'a str,
}

impl<'a> Replies<'a> {
    fn next(&mut self) -> Option<&'a str> {
        if let Some(rest) = self.rest.strip_prefix('\n') {
            self.rest = rest;
            return Some("");
        }
        let (message, rest) = self.rest.split_once("\n\n")?;
        self.rest = rest;
        Some(message)
    }

    /// The one line that `del server` answers, and the empty line after it, which 2.6 leaves out.
    fn next_line(&mut self) -> Option<&'a str> {
        let (line, rest) = self.rest.split_once('\n')?;
        self.rest = rest.strip_prefix('\n').unwrap_or(rest);
        Some(line)
    }
}

/// Whether `reply` is the success of `command`.
fn judge(command: &Command, reply: &str) -> Result<(), Refusal> {
    let (severity, message) = without_severity(reply);
    let done = match &command.action {
        Action::Address(_, port) => address_is_set(message, *port),
        Action::Add(..) => message == "New server registered.",
        Action::Delete => message == "Server deleted.",
        _ => message.is_empty(),
    };
    // 0 to 3 are syslog's emergency to error.
    if done && severity.is_none_or(|severity| severity > 3) {
        return Ok(());
    }
    Err(Refusal {
        command: command.to_string(),
        reply: shorten(message),
    })
}

/// `addr` always answers in prose, which differs between 2.x and 3.x; a port that was changed must be changed to the
/// one that was asked for (70000 is accepted as 4464).
fn address_is_set(message: &str, port: u16) -> bool {
    let said_so = [
        "IP changed from",
        "no need to change the addr",
        "port changed from",
        "nothing changed",
    ]
    .iter()
    .any(|start| message.starts_with(start));
    let to_port = message
        .split_once("port changed from '")
        .and_then(|(_, rest)| rest.split_once("' to '"))
        .and_then(|(_, rest)| rest.split_once('\''))
        .map(|(number, _)| number);
    said_so
        && !message.contains("problem converting")
        && !message.contains("can't change")
        && to_port.is_none_or(|number| number == port.to_string())
}

/// The number and the text of `[4]: text`.
fn without_severity(reply: &str) -> (Option<u8>, &str) {
    let marked = reply
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "));
    match marked.and_then(|(number, text)| Some((number.parse().ok()?, text))) {
        Some((severity, text)) => (Some(severity), text.trim_end_matches('\n')),
        None => (None, reply),
    }
}

fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(160).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use haproxy::*;

    /// Answers as HAProxy 2.6.12 and 2.8.25 gave them.
    mod haproxy {
        pub(super) const CHANGED: &str = "[4]: IP changed from '127.0.0.2' to '127.0.0.3', port changed from '8080' to '8081' by 'stats socket command'\n\n";
        pub(super) const NO_SERVER: &str = "[3]: No such server.\n\n";
        pub(super) const UNKNOWN: &str = "[6]: Unknown command: 'bogus', but maybe one of the following ones is a better match:\n  show fd [-!plcfbsd]* [num]              : dump list\n  quit                                    : disconnect\n\n";
    }

    fn command(action: Action) -> Command {
        Command::new("web/w-1".parse().unwrap(), action)
    }

    fn address(port: u16) -> Command {
        command(Action::Address("127.0.0.3".parse().unwrap(), port))
    }

    fn done(replies: &[Result<(), Refusal>]) -> Vec<bool> {
        replies.iter().map(Result::is_ok).collect()
    }

    #[test]
    fn a_batch_is_taken_apart_by_counting() {
        let commands = [
            command(Action::DisableAgent),
            address(8081),
            command(Action::CheckPort(8081)),
            command(Action::EnableAgent),
            command(Action::HealthDown),
        ];
        let text = format!("\n\n{CHANGED}\n{NO_SERVER}\n");
        let replies = read_replies(&commands, Marks::Severity, &text).unwrap();
        assert_eq!(done(&replies), [true, true, true, false, true]);
        assert_eq!(
            replies[3].clone().unwrap_err().to_string(),
            "HAProxy answered `enable agent web/w-1` with: No such server."
        );
        let text = format!("\n\n{CHANGED}{UNKNOWN}\n\n");
        assert_eq!(
            done(&read_replies(&commands, Marks::Severity, &text).unwrap()),
            [true, true, false, true, true]
        );
    }

    #[test]
    fn what_does_not_match_one_to_one_says_nothing() {
        let commands = [command(Action::HealthDown), address(8081)];
        for cut in 0..format!("\n\n{CHANGED}").len() {
            let text = format!("\n\n{CHANGED}");
            assert!(
                matches!(
                    read_replies(&commands, Marks::Severity, &text[..cut]),
                    Err(BatchError::Short { .. })
                ),
                "{cut}"
            );
        }
        let text = format!("\n\n{CHANGED}{NO_SERVER}");
        assert!(matches!(
            read_replies(&commands, Marks::Severity, &text),
            Err(BatchError::Extra { .. })
        ));
        let denied = read_replies(&commands, Marks::Severity, "Permission denied\n\n");
        assert!(matches!(denied, Err(BatchError::Severity { .. })));
    }

    #[test]
    fn the_address_is_what_was_asked_for() {
        for (message, fits) in [
            (
                "no need to change the addr, no need to change the port by 'stats socket command'",
                true,
            ),
            (
                "no need to change the addr, port changed from '1' to '8081' by 'stats socket command'",
                true,
            ),
            // 3.0 and 3.2.
            (
                "port changed from '1' to '8081' by 'stats socket command'",
                true,
            ),
            ("nothing changed", true),
            (
                "port changed from '8081' to '4464' by 'stats socket command'",
                false,
            ),
            ("Invalid addr 'nosuch.host'", false),
            ("port changed from '36135' to '4464'", false),
            (
                "no need to change the addr, problem converting port 'x' to an int",
                false,
            ),
            (
                "Invalid addr 'nosuch.host' by 'stats socket command'",
                false,
            ),
            (
                "can't change <port> to port map because it is incompatible with …",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(judge(&address(8081), message).is_ok(), fits, "{message}");
        }
    }

    #[test]
    fn dynamic_servers() {
        let add = [command(Action::Add(
            "127.0.0.1".parse().unwrap(),
            80,
            String::new(),
        ))];
        assert_eq!(
            done(
                &read_replies(&add, Marks::Severity, "\n[6]: New server registered.\n\n").unwrap()
            ),
            [true]
        );
        let exists = "\n[3]: Already exists a server with the same name in backend.\n\n";
        assert_eq!(
            done(&read_replies(&add, Marks::Severity, exists).unwrap()),
            [false]
        );

        let delete = [command(Action::Delete), command(Action::Delete)];
        let on_28 =
            "\n[3]: Only servers in maintenance mode can be deleted.\n\n[6]: Server deleted.\n\n";
        let on_26 =
            "\n[3]: Only servers in maintenance mode can be deleted.\n[6]: Server deleted.\n";
        for text in [on_28, on_26] {
            assert_eq!(
                done(&read_replies(&delete, Marks::Severity, text).unwrap()),
                [false, true]
            );
        }
    }

    /// Any text is taken apart into one verdict a command, or into none at all.
    #[test]
    fn any_text_gives_all_verdicts_or_none() {
        let pieces = [
            "\n",
            "[3]: ",
            "[4]: IP changed from 'a' to 'b'",
            "No such server.",
            "port changed from '1' to '8081'",
            " ",
            "[",
            "é",
            CHANGED,
        ];
        let commands = [
            command(Action::HealthDown),
            address(8081),
            command(Action::Delete),
        ];
        let mut seed = 1_u64;
        for _ in 0..5000 {
            let mut text = String::new();
            for _ in 0..12 {
                // A generator of one line is enough here.
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += pieces[(seed >> 33) as usize % pieces.len()];
            }
            for marks in [Marks::Severity, Marks::None] {
                if let Ok(verdicts) = read_replies(&commands, marks, &text) {
                    assert_eq!(verdicts.len(), commands.len());
                }
            }
        }
    }
}
