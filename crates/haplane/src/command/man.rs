//! `haplane man`: the manual pages, made from the same texts as `--help`.

use std::fs;
use std::path::Path;

use crate::cli;
use crate::exit::Exit;
use crate::failure::Failure;

/// Writes a page for the program and one for each command. Gives their names.
pub fn write(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Unreachable,
            format!("cannot write manual pages to {}: {error}", folder.display()),
        )
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let mut command = cli::manual();
    command.build();
    let mut pages = vec![("haplane".to_owned(), command.clone())];
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        pages.push((format!("haplane-{}", sub.get_name()), sub.clone()));
    }
    let mut names = Vec::new();
    for (name, command) in pages {
        let file = format!("{name}.1");
        let page = clap_mangen::Man::new(command).title(name);
        let mut text = Vec::new();
        page.render(&mut text).map_err(failed)?;
        fs::write(folder.join(&file), text).map_err(failed)?;
        names.push(file);
    }
    Ok(names)
}
