//! `haplane man`: the manual pages, made from the same texts as `--help`.

use std::fs;
use std::path::Path;

use clap::Command;
use jiff::Timestamp;

use crate::cli;
use crate::exit::Exit;
use crate::failure::Failure;

/// Writes a page for the program and one for each command. Gives their names.
pub fn write(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Unexpected,
            format!("cannot write manual pages to {}: {error}", folder.display()),
        )
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let mut command = cli::manual().disable_help_subcommand(true);
    command.build();
    let mut names = Vec::new();
    for (name, command) in pages("haplane", &command) {
        let file = format!("{name}.1");
        let page = clap_mangen::Man::new(command)
            .title(name)
            .date(date())
            .source(concat!("haplane ", env!("CARGO_PKG_VERSION")))
            .manual("haplane");
        let mut text = Vec::new();
        page.render(&mut text).map_err(failed)?;
        fs::write(folder.join(&file), text).map_err(failed)?;
        names.push(file);
    }
    Ok(names)
}

/// A command and all that it has below it, with the names of their pages.
fn pages(name: &str, command: &Command) -> Vec<(String, Command)> {
    let below = command
        .get_subcommands()
        .flat_map(|sub| pages(&format!("{name}-{}", sub.get_name()), sub));
    let mut pages = vec![(name.to_owned(), command.clone())];
    pages.extend(below);
    pages
}

/// The day that stands on the pages: of the release, where whoever builds it says so in the usual
/// variable, so that it does not depend on when it is built; else today.
fn date() -> String {
    let released = std::env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds.parse().ok()?).ok());
    let day = released.unwrap_or_else(Timestamp::now);
    day.to_string()
        .split('T')
        .next()
        .unwrap_or_default()
        .to_owned()
}
