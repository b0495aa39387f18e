//! What can happen to a folder that is read: people with editors, swaps and copies, files that cannot be read.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use haplane_store::{CommitError, Store as _, StoreError};

use crate::contract::{Bench as _, change, read, transaction, write};
use crate::dir::Folder;
use crate::follower::{Follower, RECOVERY, SOON, says};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_editor_or_a_shell_in_the_middle_of_saving_is_not_believed() {
    let folder = Folder::new();
    write(
        &folder.open(),
        &[("canary", Some("drain")), ("web/a", Some("maint"))],
    )
    .await;
    let follower = Follower::start_eager(folder.open());
    follower.until_says("canary", "drain", SOON).await;
    let (canary, backup, swap) = (
        folder.file("canary"),
        folder.file("canary~"),
        folder.file(".canary.swp"),
    );
    for n in 1..=15 {
        let text = format!("{n}% until=2099-01-01T00:00:00Z");
        // A shell empties the file, then writes.
        fs::write(&canary, "").unwrap();
        tokio::time::sleep(Duration::from_millis(15)).await;
        fs::write(&canary, format!("{text}\n")).unwrap();
        follower.until_says("canary", &text, RECOVERY).await;
        // An editor moves the file away, then writes a new one.
        fs::write(&swap, "b0VIM").unwrap();
        fs::rename(&canary, &backup).unwrap();
        tokio::time::sleep(Duration::from_millis(15)).await;
        fs::write(&canary, "drain\n").unwrap();
        fs::remove_file(&backup).unwrap();
        fs::remove_file(&swap).unwrap();
        follower.until_says("canary", "drain", RECOVERY).await;
    }
    follower.every_snapshot(|snapshot| match says(snapshot, "canary") {
        Some(value) if value != "ready" && snapshot.invalid().len() == 0 => Ok(()),
        other => Err(format!(
            "{other:?}, {:?}",
            snapshot.invalid().collect::<Vec<_>>()
        )),
    });
    follower.has_always_said("web/a", "maint");
    // What stays empty is what it is, and what stays gone is gone.
    fs::write(&canary, "").unwrap();
    follower
        .until(
            "the emptied key as invalid, after ten seconds",
            10 * RECOVERY,
            |view| {
                view.snapshot
                    .as_ref()
                    .is_some_and(|s| s.invalid().len() == 1)
            },
        )
        .await;
    fs::remove_file(folder.file("web/a")).unwrap();
    follower
        .until("the removed key as gone", RECOVERY, |view| {
            view.snapshot
                .as_deref()
                .is_some_and(|s| says(s, "web/a").is_none())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mounted_config_map_is_seen_as_one_moment() {
    const SERVERS: usize = 60;
    let folder = Folder::new();
    let names: Vec<_> = (0..SERVERS).map(|n| format!("web/server-{n}")).collect();
    let publish = |generation: usize, text: &str| {
        // As the kubelet does it: a new folder, a link to it, the link renamed.
        let version = format!("..2026_11_29_{generation}");
        fs::create_dir_all(folder.file(&version).join("web")).unwrap();
        for path in names
            .iter()
            .map(String::as_str)
            .chain([".haplane", "canary"])
        {
            fs::write(folder.file(&version).join(path), text).unwrap();
        }
        symlink(&version, folder.file("..data_tmp")).unwrap();
        fs::rename(folder.file("..data_tmp"), folder.file("..data")).unwrap();
        if generation > 0 {
            fs::remove_dir_all(folder.file(&format!("..2026_11_29_{}", generation - 1))).unwrap();
        }
    };
    publish(0, "drain");
    for name in [".haplane", "canary", "web"] {
        symlink(format!("..data/{name}"), folder.file(name)).unwrap();
    }
    let follower = Follower::start_eager(folder.open());
    follower.until_says("canary", "drain", SOON).await;
    for generation in 1..=100 {
        let text = format!("{generation}%");
        publish(generation, &text);
        if generation % 2 == 0 {
            follower.until_says("web/server-7", &text, RECOVERY).await;
        }
    }
    follower.every_snapshot(|snapshot| {
        let mut values: Vec<_> = snapshot.keys().map(|(_, stored)| stored.value).collect();
        values.dedup();
        match (values.len(), snapshot.keys().len()) {
            (1, keys) if keys == SERVERS + 1 => Ok(()),
            (_, keys) => Err(format!("{keys} keys with {values:?}")),
        }
    });
    let error = refused(folder.open().commit(&drain(&folder, "canary").await).await);
    assert!(error.what.contains("leads elsewhere"), "{error}");
}

async fn drain(folder: &Folder, name: &str) -> haplane_store::Transaction {
    let seen = read(&folder.open()).await.snapshot;
    transaction(vec![change(&seen, name, Some("drain"))])
}

pub(crate) fn refused(outcome: Result<impl std::fmt::Debug, CommitError>) -> StoreError {
    match outcome {
        Err(CommitError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// What it is, how it begins and how it ends.
type Fault<'a> = (&'a str, Box<dyn Fn() + 'a>, Box<dyn Fn() + 'a>);

#[tokio::test]
async fn what_cannot_be_read_fails_the_whole_read() {
    let folder = Folder::new();
    write(
        &folder.open(),
        &[("canary", Some("drain")), ("web/a", Some("maint"))],
    )
    .await;
    let follower = Follower::start(folder.open());
    follower.until_says("canary", "drain", SOON).await;
    let bad = folder.file("web/bad");
    let good = folder.file("canary");
    let away = folder.beside("away");
    let root = folder.root();
    let faults: [Fault<'_>; 5] = [
        (
            // Reading the start of one's own memory is an input/output error for everybody.
            "a file that fails to be read",
            Box::new(|| symlink("/proc/self/mem", &bad).unwrap()),
            Box::new(|| fs::remove_file(&bad).unwrap()),
        ),
        (
            "a link to nothing",
            Box::new(|| symlink("nowhere", &bad).unwrap()),
            Box::new(|| fs::remove_file(&bad).unwrap()),
        ),
        (
            "a device",
            Box::new(|| symlink("/dev/zero", &bad).unwrap()),
            Box::new(|| fs::remove_file(&bad).unwrap()),
        ),
        (
            "a folder that links to one above it",
            Box::new(|| symlink("..", &bad).unwrap()),
            Box::new(|| fs::remove_file(&bad).unwrap()),
        ),
        (
            "a folder that is gone",
            Box::new(|| fs::rename(&root, &away).unwrap()),
            Box::new(|| fs::rename(&away, &root).unwrap()),
        ),
    ];
    for (what, begin, end) in faults {
        begin();
        // A change beside it must not come through alone.
        if good.exists() {
            fs::write(&good, "ready").unwrap();
        }
        let view = follower
            .until(what, SOON, |view| view.failure.is_some())
            .await;
        let failure = view.failure.unwrap();
        let path = folder.root().display().to_string();
        assert!(
            failure.what.contains(path.trim_end_matches('/')),
            "{what}: {failure:?}"
        );
        // Who takes away what is named must not take away the store.
        let beyond_the_link = format!("{}/", bad.display());
        assert!(
            !failure.what.contains(&beyond_the_link),
            "{what}: {failure:?}"
        );
        follower.has_always_said("canary", "drain");
        end();
        fs::write(&good, "drain").unwrap();
        follower.until_says("canary", "drain", RECOVERY).await;
    }
    follower.has_always_said("canary", "drain");
    follower.has_always_said("web/a", "maint");
}

/// Moved away and copied back file after file, the marker first: what is still to come is not gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_copied_back_loses_nothing() {
    const SERVERS: usize = 40;
    let folder = Folder::new();
    write(&folder.open(), &[("canary", Some("maint"))]).await;
    let names: Vec<String> = (0..SERVERS).map(|n| format!("web/server-{n}")).collect();
    fs::create_dir(folder.file("web")).unwrap();
    for name in &names {
        fs::write(folder.file(name), "drain\n").unwrap();
    }
    let follower = Follower::start_eager(folder.open());
    follower.until_says("web/server-39", "drain", SOON).await;
    let was = folder.beside("was");
    fs::rename(folder.root(), &was).unwrap();
    fs::create_dir_all(folder.file("web")).unwrap();
    let others = [".haplane", ".index", "canary"].map(str::to_owned);
    for name in others.iter().chain(&names) {
        fs::copy(was.join(name), folder.file(name)).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Who sees this key has seen all that were copied before it: the folder is complete again.
    fs::write(folder.file("web/last"), "drain\n").unwrap();
    follower.until_says("web/last", "drain", RECOVERY).await;
    // One key alone, by hand, is gone soon.
    fs::remove_file(folder.file("web/server-7")).unwrap();
    follower
        .until("the removed key as gone", RECOVERY, |view| {
            view.snapshot
                .as_deref()
                .is_some_and(|s| says(s, "web/server-7").is_none())
        })
        .await;
    follower.has_always_said("canary", "maint");
    follower.has_always_said("web/server-39", "drain");
}

/// Its time and size say nothing when a tool sets them back.
#[tokio::test]
async fn a_change_that_keeps_the_time_is_seen() {
    let folder = Folder::new();
    write(&folder.open(), &[("x", Some("10%"))]).await;
    let canary = folder.file("canary");
    let set = |text: &str| {
        let mut file = fs::OpenOptions::new();
        let mut file = file
            .write(true)
            .create(true)
            .truncate(false)
            .open(&canary)
            .unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(9))
            .unwrap();
    };
    set("ready");
    let follower = Follower::start(folder.open());
    follower.until_says("canary", "ready", SOON).await;
    // Long enough that the file counts as read for good.
    tokio::time::sleep(Duration::from_millis(300)).await;
    set("drain");
    follower.until_says("canary", "drain", SOON).await;
}

#[tokio::test]
async fn another_folder_in_its_place_is_followed() {
    let folder = Folder::new();
    write(&folder.open(), &[("canary", Some("drain"))]).await;
    let other = Folder::new();
    write(&other.open(), &[("canary", Some("maint"))]).await;
    let follower = Follower::start(folder.open());
    follower.until_says("canary", "drain", SOON).await;
    let root = folder.root();
    fs::rename(&root, folder.beside("was")).unwrap();
    fs::rename(other.root(), &root).unwrap();
    follower.until_says("canary", "maint", RECOVERY).await;
    // And its files are watched as the first one's were.
    let begun = Instant::now();
    write(&folder.open(), &[("canary", Some("50%"))]).await;
    follower.until_says("canary", "50%", RECOVERY).await;
    assert!(
        begun.elapsed() < Duration::from_millis(1500),
        "only found by chance"
    );
}
