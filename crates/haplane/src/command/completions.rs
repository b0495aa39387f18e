//! `haplane completions`: a script that asks this binary, so that live names complete too.

use clap_complete::env::Shells;

use crate::exit::Exit;
use crate::failure::Failure;

/// The variable by which a shell's script asks for completions.
pub const VARIABLE: &str = "HAPLANE_COMPLETE";

/// The script of one shell.
pub fn script(shell: &str) -> Result<String, Failure> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else {
        let known: Vec<&str> = shells.names().collect();
        return Err(Failure::usage(format!(
            "no completions for {shell:?}; known: {}",
            known.join(", ")
        )));
    };
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, "haplane", "haplane", "haplane", &mut script)
        .map_err(|error| Failure::new(Exit::Unexpected, error.to_string()))?;
    String::from_utf8(script).map_err(|error| Failure::new(Exit::Unexpected, error.to_string()))
}
