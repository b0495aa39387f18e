//! `haplane man`: the manual pages, made from the same texts as `--help`.

use std::fs;
use std::io;
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use jiff::Timestamp;
use serde_json::json;

use crate::cli;
use crate::cli::examples::{self, Example};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;

/// Writes a page for the program and one for each command.
pub fn run(folder: &Path) -> Result<Report, Failure> {
    let pages = write(folder).map_err(|error| {
        Failure::new(
            Exit::Unexpected,
            format!("cannot write manual pages to {}: {error}", folder.display()),
        )
    })?;
    let line = format!("{} manual pages are in {}", pages.len(), folder.display());
    Ok(Report::new(json!({"pages": pages})).line(line))
}

/// Gives the names of the pages.
fn write(folder: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder)?;
    let mut command = cli::command().disable_help_subcommand(true);
    command.build();
    let mut names = Vec::new();
    let mut left = vec![(&command, examples::TOP)];
    while let Some((command, examples)) = left.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let file = format!("{name}.1");
        fs::write(folder.join(&file), page(command, name, examples)?)?;
        names.push(file);
        let subs = command.get_subcommands();
        left.extend(subs.map(|sub| (sub, examples::of(sub.get_name()))));
    }
    names.sort_unstable();
    Ok(names)
}

fn page(command: &clap::Command, name: &str, examples: &[Example]) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name)
        .date(date())
        .source(concat!("haplane ", env!("CARGO_PKG_VERSION")))
        .manual("haplane");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    exit_status().to_writer(&mut page)?;
    examples_section(examples).to_writer(&mut page)?;
    see_also().to_writer(&mut page)?;
    Ok(page)
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

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        roff.control("TP", []);
        roff.text([roman(exit.status().to_string())]);
        roff.text([roman(exit.meaning())]);
    }
    roff
}

fn see_also() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(
        "haplane(1); the documents: docs/README.md of haplane, in /usr/share/doc/haplane/ where the package is installed.",
    )]);
    roff
}

fn examples_section(examples: &[Example]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for (at, (line, what)) in examples.iter().enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(format!("{what}:"))]);
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.control("nf", []);
        roff.text([roman(*line)]);
        roff.control("fi", []);
        roff.control("RE", []);
    }
    roff
}
