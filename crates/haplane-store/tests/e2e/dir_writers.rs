//! What can happen to a writer of a folder: it is killed, or the disk gives out under it. Each writes in a process of
//! its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use haplane_core::snapshot::Snapshot;
use haplane_store::dir::DirStore;
use haplane_store::{Store as _, StoreErrorKind};
use haplane_testkit::eventually::{eventually, throughout};

use crate::contract::{Bench as _, change, read, transaction, write};
use crate::dir::Folder;
use crate::dir_faults::refused;
use crate::follower::{Follower, SOON};

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
            &format!("dir_writers::{name}"),
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
            "dir_writers::fails_to_write",
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
