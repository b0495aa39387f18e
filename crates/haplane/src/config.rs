//! The configuration of one run: the file, the environment's variables and the flags together.

use std::io;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::ArgMatches;
use haplane_core::nearest::nearest;
use haplane_daemon::config_file::{Document, Effective, Override};
use haplane_daemon::settings::{KeyDoc, overrides};
use haplane_daemon::{ConfigError, Settings};
use haplane_store::StoreSettings;

use crate::failure::Failure;
use crate::haproxy_files::read_at_most;

/// Read when it exists and nothing else is said.
const DEFAULT_FILE: &str = "/etc/haplane/haplane.toml";
/// Where a problem is when no file was read.
const NO_FILE: &str = "no configuration file (--config FILE or HAPLANE_CONFIG names one)";
/// No configuration is larger, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A file's text with everything that overrides it.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    overrides: Vec<Override>,
}

impl Source {
    /// Finds and reads the file, and notes the flags and variables that were given.
    pub fn read(
        file: Option<PathBuf>,
        environment: Option<&str>,
        matches: &ArgMatches,
    ) -> Result<Self, Failure> {
        Self::with_flags(file, environment, |doc| flag(doc, matches))
    }

    fn with_flags(
        file: Option<PathBuf>,
        environment: Option<&str>,
        flag: impl Fn(&KeyDoc) -> Option<String>,
    ) -> Result<Self, Failure> {
        let (name, text) = match file {
            Some(file) => (file.display().to_string(), read_file(&file)?),
            None if fs::exists(DEFAULT_FILE).unwrap_or(true) => {
                (DEFAULT_FILE.to_owned(), read_file(Path::new(DEFAULT_FILE))?)
            }
            None => (NO_FILE.to_owned(), String::new()),
        };
        Ok(Self::with_text(name, text, environment, flag))
    }

    fn with_text(
        name: String,
        text: String,
        environment: Option<&str>,
        flag: impl Fn(&KeyDoc) -> Option<String>,
    ) -> Self {
        let overrides = overrides(flag, |name| env::var(name).ok());
        Self {
            name,
            text,
            overrides: with_environment(overrides, environment),
        }
    }

    /// Flags and variables alone, for when the file cannot be read.
    pub fn without_file(environment: Option<&str>, matches: &ArgMatches) -> Self {
        let (name, text) = (NO_FILE.to_owned(), String::new());
        Self::with_text(name, text, environment, |doc| flag(doc, matches))
    }

    /// As a command without any option has it.
    pub fn without_flags(file: Option<PathBuf>) -> Result<Self, Failure> {
        Self::with_flags(file, None, |_| None)
    }

    /// The document, for reading other parts of it.
    pub fn document(&self) -> Document<'_> {
        Document::parse(&self.name, &self.text, self.overrides.clone())
    }

    /// Every key as it will be used, with where it comes from. It holds no secrets, only the names of
    /// the files that do.
    pub fn effective(&self) -> Vec<Effective> {
        let document = self.document();
        Settings::read(&document, |name| env::var(name).ok());
        document.effective()
    }

    /// All settings, or everything that is wrong.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let document = self.document();
        let settings = Settings::read(&document, |name| env::var(name).ok());
        document.finish()?;
        // Nothing is wrong, so nothing is missing.
        settings.ok_or_else(|| unreadable(&document))
    }
}

impl Source {
    /// The settings as far as they can be read, whatever else is wrong. Not to be trusted with the
    /// store: what is wrong may be the key that names it.
    pub fn readable(&self) -> Option<Settings> {
        Settings::read(&self.document(), |name| env::var(name).ok())
    }
}

/// Every missing value has been reported by now; this case exists only because the types require it.
fn unreadable(document: &Document<'_>) -> ConfigError {
    use haplane_daemon::config_file::{Place, Problem};
    document.report(Problem::new(Place::File, "a value could not be read"));
    match document.finish() {
        Err(error) => error,
        Ok(()) => unreadable(document),
    }
}

fn read_file(file: &Path) -> Result<String, Failure> {
    let wrong = |why: String| {
        Failure::usage(format!(
            "cannot read the configuration {}: {why}",
            file.display()
        ))
    };
    // Not by the file's size, which a pipe or a device does not tell.
    let text = read_at_most(file, MAX_FILE + 1)
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
        .map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > MAX_FILE {
        return Err(wrong(format!("it has more than {MAX_FILE} bytes")));
    }
    Ok(text)
}

/// The text of a flag, if it was used.
fn flag(doc: &KeyDoc, matches: &ArgMatches) -> Option<String> {
    match doc.switch {
        Some(text) => matches.get_flag(doc.flag).then(|| text.to_owned()),
        None => matches.get_one::<String>(doc.flag).cloned(),
    }
}

/// With `--env NAME` a flag speaks of that environment's store. A variable does not: somebody who
/// names an environment does not mean the store that the shell was set up for.
fn with_environment(given: Vec<Override>, environment: Option<&str>) -> Vec<Override> {
    let Some(environment) = environment else {
        return given;
    };
    let of_environment = |one: &Override| {
        let is_flag = one.origin.starts_with("--");
        (is_flag && matches!(one.key.as_str(), "store" | "prefix")).then(|| Override {
            key: format!("env.{environment}.{}", one.key),
            ..one.clone()
        })
    };
    let more: Vec<Override> = given.iter().filter_map(of_environment).collect();
    given.into_iter().chain(more).collect()
}

/// What a writer or reader is pointed at.
#[derive(Clone, Debug)]
pub struct Place {
    /// The environment's name, if one was picked.
    pub environment: Option<String>,
    /// Its store.
    pub store: StoreSettings,
    /// Whether somebody said so, or it is only the default.
    pub store_is_named: bool,
    /// Whether writes ask for confirmation.
    pub confirm: bool,
    /// A link to show beside its state.
    pub dashboard: Option<String>,
    /// Where its agents are, when they are not to be found by Consul.
    pub agents: Vec<String>,
}

impl Place {
    /// The environment of this name, or the one that the top of the file describes.
    pub fn pick(settings: &Settings, environment: Option<&str>) -> Result<Self, Failure> {
        let Some(name) = environment else {
            return Ok(Self {
                environment: None,
                store: settings.store.clone(),
                store_is_named: settings.store_is_named,
                confirm: false,
                dashboard: None,
                agents: Vec::new(),
            });
        };
        let Some(found) = settings.environments.get(name) else {
            return Err(unknown_environment(settings, name));
        };
        Ok(Self {
            environment: Some(name.to_owned()),
            store: found.store.clone(),
            store_is_named: found.store_is_named,
            confirm: found.confirm,
            dashboard: found.dashboard.clone(),
            agents: found.agents.clone(),
        })
    }

    /// A store that nobody named is most often not the one that is meant. This is said first, before
    /// anybody initialises a second one by mistake.
    #[must_use]
    pub fn blame(&self, failure: Failure) -> Failure {
        if self.store_is_named {
            return failure;
        }
        let consul = if env::var_os("CONSUL_HTTP_ADDR").is_some() {
            " (CONSUL_HTTP_ADDR alone does not choose Consul: --store consul does)"
        } else {
            ""
        };
        let message = format!(
            "no store is named: --store, HAPLANE_STORE, or store = in haplane.toml{consul}\nthe default is \
             {}: {}",
            self.store.location, failure.message
        );
        Failure { message, ..failure }
    }
}

fn unknown_environment(settings: &Settings, name: &str) -> Failure {
    let known: Vec<&str> = settings.environments.keys().map(String::as_str).collect();
    let advice = match nearest(name, known.iter().copied()).first() {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "the configuration has no [env.NAME]".to_owned(),
        None => format!("known: {}", known.join(", ")),
    };
    Failure::usage(format!("--env: there is no environment {name:?}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_nobody_named_is_blamed_first() {
        let place = |text: &'static str| {
            let source = Source {
                name: "haplane.toml".to_owned(),
                text: text.to_owned(),
                overrides: Vec::new(),
            };
            Place::pick(&source.settings().unwrap(), Some("prod")).unwrap()
        };
        let told = |text| place(text).blame(Failure::usage("gone")).message;
        assert_eq!(told("[env.prod]\nstore = \"dir:/x\""), "gone");
        assert_eq!(told("store = \"dir:/x\"\n[env.prod]"), "gone");
        let unnamed = told("[env.prod]");
        assert!(
            unnamed.starts_with("no store is named: --store"),
            "{unnamed}"
        );
        assert!(
            unnamed.ends_with("the default is dir:/var/lib/haplane/state: gone"),
            "{unnamed}"
        );
    }

    #[test]
    fn a_file_without_end_is_no_configuration() {
        let error = read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.message.contains("/dev/zero"), "{error:?}");
        assert!(error.message.contains("more than"), "{error:?}");
    }
}
