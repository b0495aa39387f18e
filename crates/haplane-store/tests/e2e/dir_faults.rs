//! What can happen to a folder: writers that are killed, people with editors, disks that give out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haplane_core::snapshot::Snapshot;
use haplane_store::dir::DirStore;
use haplane_store::{CommitError, Store as _, StoreError, StoreErrorKind};
use haplane_testkit::eventually::{eventually, throughout};

use crate::contract::{Bench as _, change, read, transaction, write};
use crate::dir::Folder;
use crate::follower::{Follower, RECOVERY, SOON, says};

/// Names the folder for the parts of these tests that run in a process of their own.
const FOLDER: &str = "HAPLANE_TEST_FOLDER";

const PAIRED: usize = 12;

fn paired(n: usize) -> String {
    format!("zone/{}/server-{n}", n % 3)
}

/// All of one generation, or the snapshot is torn.
fn is_whole(snapshot: &Snapshot) -> Result<(), String> {
    let mut values: Vec<_> = snapshot.keys().map(|(_, stored)| stored.value).collect();
    let count = values.len();
    values.dedup();
    if values.len() <= 1 && (count == 0 || count == PAIRED) {
        Ok(())
    } else {
        Err(format!("{count} keys with {values:?}"))
    }
}

/// This test binary again, running one of its ignored tests in this folder.
fn helper(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            &format!("dir_faults::{name}"),
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn given_folder() -> DirStore {
    DirStore::new(std::env::var_os(FOLDER).expect("a folder").into())
}

#[tokio::test]
#[ignore = "a process that another test kills"]
async fn writes_for_ever() {
    let store = given_folder();
    for generation in 0_u64.. {
        let text = (generation % 5 > 0).then(|| format!("{}%", generation % 100));
        let names: Vec<_> = (0..PAIRED).map(paired).collect();
        let pairs: Vec<_> = names
            .iter()
            .map(|n| (n.as_str(), text.as_deref()))
            .collect();
        write(&store, &pairs).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_is_killed_wrote_all_or_nothing() {
    let folder = Folder::new();
    write(&folder.open(), &[]).await;
    let follower = Follower::start_eager(folder.open());
    let mut left_in_the_middle = 0;
    for round in 0..30 {
        let mut writer: Child = helper("writes_for_ever", &folder.root()).spawn().unwrap();
        let before = read(&folder.open()).await.snapshot.index;
        eventually("a write", SOON, async || {
            let now = read(&folder.open()).await.snapshot;
            is_whole(&now).unwrap();
            if now.index > before + 1 {
                Ok(())
            } else {
                Err(now.index)
            }
        })
        .await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
        writer.kill().unwrap();
        writer.wait().unwrap();
        left_in_the_middle += usize::from(folder.file(".txn").exists());
        let left = read(&folder.open()).await.snapshot;
        is_whole(&left).unwrap_or_else(|torn| panic!("round {round}: {torn}"));
    }
    follower.every_snapshot(is_whole);
    assert!(
        follower.arrivals().len() > 30,
        "{}",
        follower.arrivals().len()
    );
    assert!(
        left_in_the_middle > 0,
        "no kill came in the middle: this proves nothing"
    );
    // Whoever comes next finds everything in order.
    write(&folder.open(), &[]).await;
    assert!(!folder.file(".txn").exists());
}

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

fn refused(outcome: Result<impl std::fmt::Debug, CommitError>) -> StoreError {
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

#[tokio::test]
#[ignore = "the part of another test that writes to a disk that gives out"]
async fn fails_to_write() {
    let store = given_folder();
    let before = read(&store).await.snapshot;
    let names: Vec<_> = (0..40).map(|n| format!("web/server-{n}")).collect();
    let changes = names
        .iter()
        .map(|name| change(&before, name, Some("drain")));
    let error = refused(store.commit(&transaction(changes.collect())).await);
    eprintln!("{}", error.story());
    assert!(matches!(
        error.kind,
        StoreErrorKind::Io | StoreErrorKind::TooLarge | StoreErrorKind::Denied
    ));
    let after = read(&store).await.snapshot;
    assert_eq!(after, before, "nothing is half-written");
    let root = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let left = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with(".t"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!root.join("web").exists());
}

/// Runs [`fails_to_write`] by way of a shell that takes something away from it first.
fn fails_to_write_after(script: &str, folder: &Path, program: &[&str]) {
    let mut command = Command::new(program[0]);
    let output = command
        .args(&program[1..])
        .args(["-c", &format!("{script} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "dir_faults::fails_to_write",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{script}: {said}"
    );
}

#[tokio::test]
async fn a_disk_that_gives_out_in_the_middle_leaves_nothing_half_written() {
    let folder = Folder::new();
    write(&folder.open(), &[("canary", Some("drain"))]).await;
    let follower = Follower::start(folder.open());
    follower.until_says("canary", "drain", SOON).await;
    // No file can become larger than this: the log entry of 40 keys cannot be written.
    let limit = "trap '' XFSZ && ulimit -f 4";
    fails_to_write_after(limit, &folder.root(), &["sh"]);
    if may_mount() {
        // A disk of its own that is nearly full.
        let small = Folder::new();
        let path = small.root().display().to_string();
        let mount = format!(
            "mount -t tmpfs -o size=64k,nr_inodes=40 tmpfs {path} && echo m > {path}/.haplane && echo drain > {path}/canary"
        );
        fails_to_write_after(&mount, &small.root(), &["unshare", "-rm", "sh"]);
    }
    throughout("the snapshot", Duration::from_millis(300), async || {
        let view = follower.view();
        if view.failure.is_none() {
            Ok(())
        } else {
            Err(view)
        }
    })
    .await;
    follower.has_always_said("canary", "drain");
}

#[tokio::test]
async fn a_folder_that_is_read_only_is_read_and_a_write_says_why_not() {
    let folder = Folder::new();
    write(&folder.open(), &[("canary", Some("drain"))]).await;
    let path = folder.root().display().to_string();
    if may_mount() {
        let mount = format!("mount --bind {path} {path} && mount -o remount,bind,ro {path}");
        fails_to_write_after(&mount, &folder.root(), &["unshare", "-rm", "sh"]);
    }
    // Not for root, to whom no permission is denied.
    if !rustix::process::getuid().is_root() {
        fails_to_write_after(&format!("chmod 500 {path}"), &folder.root(), &["sh"]);
        let follower = Follower::start(folder.open());
        follower.until_says("canary", "drain", SOON).await;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
}

/// Whether this machine lets a test mount something for itself alone.
fn may_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"])
        .stderr(Stdio::null())
        .status();
    let may = tried.is_ok_and(|status| status.success());
    if !may {
        eprintln!("this machine lets nobody mount: the part of the test that needs it is left out");
    }
    may
}
