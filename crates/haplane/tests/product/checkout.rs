//! The files of this checkout, and the tools that read them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of a file of the repository.
pub(crate) fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/haplane lies two folders below the root")
        .join(relative)
}

/// Its text.
pub(crate) fn text(relative: &str) -> String {
    let path = path(relative);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the files in a folder, sorted, that end in `ending`.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(path(folder))
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names
}

/// Runs a command that must succeed, and gives what it said.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{said}");
    said
}

/// The names of haplane's metrics that a text uses, as far as they are followed by `{` or are
/// whole words.
pub(crate) fn metric_names(text: &str) -> std::collections::BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("haplane_"))
        .map(str::to_owned)
        .collect()
}

/// The block of code of a page that begins with these words.
#[track_caller]
pub(crate) fn block(page: &str, beginning: &str) -> String {
    page.split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| Some(block.split_once('\n')?.1))
        .find(|block| block.starts_with(beginning))
        .unwrap_or_else(|| panic!("no block begins with {beginning:?}"))
        .to_owned()
}
