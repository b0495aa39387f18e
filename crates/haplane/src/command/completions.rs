//! `haplane completions`: a script that asks this binary, so that live names complete too.

use clap_complete::env::Shells;

use crate::exit::Exit;
use crate::failure::Failure;

/// The variable by which a shell's script asks for completions.
pub const VARIABLE: &str = "HAPLANE_COMPLETE";

/// In a folder of `fpath` the script itself is run as the completing function at the first Tab; if it
/// only defined the function, that Tab would bring nothing.
const ZSH_FIRST_TIME: &str = r#"
if [ "${funcstack[1]-}" = _haplane ]; then
    _clap_dynamic_completer_haplane "$@"
fi
"#;

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
    if shell == "zsh" {
        script.extend_from_slice(ZSH_FIRST_TIME.as_bytes());
    }
    String::from_utf8(script).map_err(|error| Failure::new(Exit::Unexpected, error.to_string()))
}
