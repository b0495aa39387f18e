//! haproxy.cfg and server-state files on this machine, read as HAProxy would find them.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use haplane_haproxy::HaproxyVersion;
use haplane_haproxy::cfg::{Config, Context, Environment, SourceFile, StateSource, folder_order};
use haplane_haproxy::forecast::StateFiles;
use haplane_haproxy::server_state::StateFile;
use rustix::fs::OFlags;

use crate::failure::Failure;

/// Where HAProxy's packages put its configuration.
pub const DEFAULT_CONFIG: &str = "/etc/haproxy/haproxy.cfg";

/// The most bytes that are read: more than any real configuration, and the parser reports what is cut off.
const MOST_BYTES: u64 = (64 << 20) + 1;

/// How long a pipe may take to bring its text, and how often to look.
const PIPE_PATIENCE: Duration = Duration::from_secs(5);
const PIPE_AGAIN: Duration = Duration::from_millis(10);

/// What is known besides the files: this process's environment, and a version if one was given.
pub fn context(version: Option<HaproxyVersion>) -> Context {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let environment =
        Environment::from_pairs(std::env::vars_os().map(|(name, value)| (text(name), text(value))));
    Context {
        environment,
        version,
    }
}

/// Reads files and folders in the order in which HAProxy reads them.
pub fn read_config(paths: &[PathBuf], version: Option<HaproxyVersion>) -> Result<Config, Failure> {
    read_config_in(paths, &context(version))
}

/// The same in a context that is made already.
pub fn read_config_in(paths: &[PathBuf], context: &Context) -> Result<Config, Failure> {
    let mut files = Vec::new();
    for path in in_haproxys_order(paths)? {
        let bytes = read_bounded(&path).map_err(|error| cannot_read(&path, &error))?;
        files.push(SourceFile::new(path.display().to_string(), bytes));
    }
    if files.is_empty() {
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(Failure::usage(format!(
            "no *.cfg file in {}",
            names.join(", ")
        )));
    }
    Ok(Config::parse(files, context))
}

/// The files themselves; of a folder, those that HAProxy takes.
fn in_haproxys_order(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let kind = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
        if !kind.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|error| cannot_read(path, &error))?;
        let names: Vec<String> = entries
            .iter()
            .filter(|entry| fs::metadata(entry.path()).is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        files.extend(
            folder_order(names.iter().map(String::as_str))
                .into_iter()
                .map(|name| path.join(name)),
        );
    }
    Ok(files)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MOST_BYTES)
}

/// Reads a file, or so many bytes of it. What is no regular file (a pipe, as of `<(…)`) is waited for, but
/// not for ever: HAProxy's start may wait for us.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut bytes = Vec::new();
    let mut rest = file.take(most);
    let until = Instant::now() + PIPE_PATIENCE;
    loop {
        let read = match rest.read_to_end(&mut bytes) {
            // A pipe that nobody has opened for writing yet also reads as ended.
            Ok(_) if bytes.is_empty() && !rest.get_ref().metadata()?.is_file() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(_) => return Ok(bytes),
            Err(error) => Err(error),
        };
        read?;
        if Instant::now() >= until {
            let what =
                format!("it is no file, and nobody wrote all of it within {PIPE_PATIENCE:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        sleep(PIPE_AGAIN);
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::NotFound if path == Path::new(DEFAULT_CONFIG) => {
            "; name yours behind the command"
        }
        io::ErrorKind::PermissionDenied => "; run this as a user that may read it",
        _ => "",
    };
    Failure::usage(format!("cannot read {}: {error}{advice}", path.display()))
}

/// The server-state files of a configuration, and under which name the global one is known.
#[derive(Debug, Default)]
pub struct StateOnDisk {
    /// Their content; a file that does not exist is none.
    pub files: StateFiles,
    /// The global one's path.
    pub global_name: Option<String>,
}

/// Reads the files that the configuration names, or `instead` in place of the global one.
pub fn read_state(config: &Config, instead: Option<&Path>) -> Result<StateOnDisk, Failure> {
    let mut state = StateOnDisk::default();
    let global = match (instead, &config.global().server_state_file) {
        (Some(path), _) => Some(path.to_owned()),
        (None, Some(named)) => Some(in_base(config, &named.value)),
        (None, None) => None,
    };
    if let Some(path) = global {
        state.global_name = Some(path.display().to_string());
        state.files.global = read_state_file(&path)?;
        if instead.is_some() && state.files.global.is_none() {
            return Err(Failure::usage(format!(
                "cannot read {}: there is no such file",
                path.display()
            )));
        }
    }
    for backend in config
        .backends()
        .iter()
        .filter(|one| one.settings.state_source.value == StateSource::Local)
    {
        if let Some(file) = read_state_file(&in_base(config, backend.local_state_file()))? {
            state.files.local.insert(backend.name.clone(), file);
        }
    }
    Ok(state)
}

/// A relative name counts from `server-state-base`.
fn in_base(config: &Config, name: &str) -> PathBuf {
    match &config.global().server_state_base {
        Some(base) if !name.starts_with('/') => Path::new(&base.value).join(name),
        _ => PathBuf::from(name),
    }
}

/// A file that is not there counts as none; one that cannot be read is an error, or the forecast would be
/// made without it.
fn read_state_file(path: &Path) -> Result<Option<StateFile>, Failure> {
    match read_bounded(path) {
        Ok(bytes) => Ok(Some(StateFile::read(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot_read(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_when_somebody_writes_and_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let nobody = read_bounded(&pipe).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::TimedOut);

        let writer = pipe.clone();
        let writing = std::thread::spawn(move || fs::write(writer, "global\n"));
        assert_eq!(read_bounded(&pipe).unwrap(), b"global\n");
        writing.join().unwrap().unwrap();
        assert!(read_bounded(folder.path()).is_err());
    }
}
