//! A host list in a file, as a template renders it: replaced whole, or written in place; watched, and read again from
//! time to time for the changes that no watch reports.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Failure, Heard, Listing, Reading, hosts};

/// No host list is larger, in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// A file whose last line has no end and that is younger than this is still being written.
const STILL_WRITTEN: Duration = Duration::from_secs(1);
const BEING_WRITTEN: &str = "its last line has no end: it is still being written";
/// After the first sign of a change: the others of the same write.
const GATHER: Duration = Duration::from_millis(10);

/// Reads the file once. `allow_empty`: a file without any line at all is an empty list, not a failed read.
pub async fn read(path: &Path, allow_empty: bool) -> Reading {
    match read_text(path)
        .await
        .and_then(|text| understand(path, &text, allow_empty))
    {
        Ok(listing) => Reading::List(listing),
        Err(failure) => Reading::Failed(failure),
    }
}

fn understand(path: &Path, text: &str, allow_empty: bool) -> Result<Listing, Failure> {
    let no_list = |why: String| Failure::NoList {
        path: path.to_owned(),
        why,
    };
    let listing = hosts::read(text).map_err(no_list)?;
    let is_json = text.trim_start().starts_with('[');
    let none = if is_json { "no entry" } else { "no line" };
    // `[]` says that nothing is there; a text without a line says so only where that was allowed.
    let may_be_empty = listing.refused.is_empty() && (is_json || allow_empty);
    if listing.instances.is_empty() && !may_be_empty {
        let first = listing
            .refused
            .first()
            .map(|refused| format!(": {refused}"))
            .unwrap_or_default();
        return Err(no_list(format!("{none} of it is an instance{first}")));
    }
    Ok(listing)
}

async fn read_text(path: &Path) -> Result<String, Failure> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        read_whole(&path).map_err(|why| Failure::Unreadable { path, why })
    });
    read.await.unwrap_or_else(|error| {
        Err(Failure::Unreadable {
            path: PathBuf::new(),
            why: error.to_string(),
        })
    })
}

fn read_whole(path: &Path) -> Result<String, String> {
    // Opening a pipe would wait for a writer, perhaps for ever.
    let kind = fs::metadata(path).map_err(|error| error.to_string())?;
    if !kind.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let modified = file
        .metadata()
        .and_then(|metadata| metadata.modified())
        .ok();
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than {MOST_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    // Some editors put a mark before UTF-8 that nobody sees.
    let text = text.trim_start_matches('\u{feff}').to_owned();
    let age = modified
        .and_then(|modified| SystemTime::now().duration_since(modified).ok())
        .unwrap_or_default();
    if !text.is_empty() && !text.ends_with(['\n', ']']) && age < STILL_WRITTEN {
        return Err(BEING_WRITTEN.to_owned());
    }
    Ok(text)
}

/// Reads the file now, at every change, and every `again`; hands over each reading until stopped.
pub async fn watch(
    path: PathBuf,
    allow_empty: bool,
    again: Duration,
    mut hand_over: impl FnMut(Reading) -> Heard + Send,
    stop: CancellationToken,
) {
    let (changed, mut changes) = mpsc::channel(1);
    let watcher = watcher(&path, changed);
    if let Err(error) = &watcher {
        tracing::warn!(%error, path = %path.display(), "cannot watch the folder of the host list; it is read from time to time");
    }
    loop {
        let reading = read(&path, allow_empty).await;
        // What is still being written is looked at again soon.
        let pause = match &reading {
            Reading::Failed(Failure::Unreadable { why, .. }) if why == BEING_WRITTEN => GATHER * 20,
            _ => again,
        };
        // Held or not, it is read again soon.
        let _either_way = hand_over(reading);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            Some(()) = changes.recv() => tokio::time::sleep(GATHER).await,
        }
        while changes.try_recv().is_ok() {}
    }
}

/// The folder is watched, not the file: an atomic replacement is another file, and a mounted ConfigMap is replaced by
/// its `..data`.
fn watcher(path: &Path, changed: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let name = path.file_name().map(std::ffi::OsStr::to_owned);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let is_ours = |path: &PathBuf| {
            path.file_name() == name.as_deref()
                || path.file_name().is_some_and(|name| name == "..data")
        };
        let ours = event.as_ref().map_or(true, |event| {
            !event.kind.is_access() && event.paths.iter().any(is_ours)
        });
        if ours {
            // One mark is enough, and a full channel holds it already.
            let _already_marked = changed.try_send(());
        }
    })?;
    watcher.watch(
        path.parent().unwrap_or(Path::new("/")),
        RecursiveMode::NonRecursive,
    )?;
    Ok(watcher)
}
