//! What a terminal gets, a narrow one, one without colours, and what is none.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

use crate::command::{Haplane, run_of};

/// A directory with keys of both colours and a long reason.
fn with_keys() -> (Haplane, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let haplane = Haplane::on(format!("dir:{}", dir.path().display()))
        .with("HAPLANE_HTTP_LISTEN", "127.0.0.1:9");
    haplane.run(&["init"]).exits(0);
    let reason = "a reason that is much longer than any terminal of forty columns is wide";
    haplane
        .run(&["set", "canary", "drain", "--reason", reason])
        .exits(0);
    haplane.run(&["set", "web/server-one", "ready"]).exits(0);
    (haplane, dir)
}

/// Both ends of a terminal of this width.
fn terminal(columns: u16) -> (std::fs::File, OwnedFd) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let far = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&far, size).unwrap();
    (near.into(), far)
}

/// All that a terminal of this width shows of a command.
fn shown(haplane: &Haplane, columns: u16, words: &[&str]) -> String {
    answered(haplane, columns, words, "")
}

/// The same of a command to which this is typed.
fn answered(haplane: &Haplane, columns: u16, words: &[&str], typed: &str) -> String {
    let (mut near, far) = terminal(columns);
    near.write_all(typed.as_bytes()).unwrap();
    let mut command = haplane.with("TERM", "xterm").command(words);
    command
        .stdin(far.try_clone().unwrap())
        .stdout(far.try_clone().unwrap())
        .stderr(far);
    let mut child = command.spawn().unwrap();
    // The command keeps our copies of the far end; without them reading ends when it does.
    drop(command);
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    // A terminal that nobody has open any more says EIO.
    while let Ok(read @ 1..) = near.read(&mut piece) {
        seen.extend_from_slice(&piece[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(seen).unwrap()
}

#[test]
fn a_terminal_has_colours_unless_somebody_minds() {
    let (haplane, _dir) = with_keys();
    let coloured = shown(&haplane, 120, &["show"]);
    assert!(coloured.contains("\x1b[32mready"), "{coloured:?}");
    assert!(coloured.contains("\x1b[33mdrain"), "{coloured:?}");
    let plain = shown(&haplane.with("NO_COLOR", "1"), 120, &["show"]);
    assert!(plain.contains("drain"), "{plain:?}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let piped = haplane.run(&["show"]).exits(0).stdout;
    assert_eq!(piped, plain.replace("\r\n", "\n"), "a pipe gets the same");
}

#[test]
fn a_narrow_terminal_gets_tables_that_fit() {
    let (haplane, _dir) = with_keys();
    let narrow = shown(&haplane.with("NO_COLOR", "1"), 40, &["show"]);
    let lines: Vec<&str> = narrow.lines().collect();
    assert_eq!(lines.len(), 3, "{narrow}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 40),
        "{narrow}"
    );
    assert!(narrow.contains('…'), "{narrow}");
    shown(&haplane, 1, &["show"]);
}

#[test]
fn the_log_is_never_cut() {
    let (haplane, _dir) = with_keys();
    let haplane = haplane.with("NO_COLOR", "1");
    haplane
        .run(&["set", "canary", "maint", "--for", "2h"])
        .exits(0);
    let narrow = shown(&haplane, 60, &["log"]);
    assert!(
        narrow.contains("  canary  drain → maint until="),
        "{narrow}"
    );
    // All but the lines that say how long ago.
    let still = |log: &str| -> Vec<String> {
        let lines = log.lines().filter(|line| !line.contains(" ago  "));
        lines.map(str::to_owned).collect()
    };
    let piped = haplane.run(&["log"]).exits(0).stdout;
    assert_eq!(still(&narrow), still(&piped), "a pipe gets the same");
}

#[test]
fn progress_is_for_terminals_alone() {
    let (haplane, _dir) = with_keys();
    let words = ["wait", "--timeout", "1s"];
    let seen = shown(&haplane.with("NO_COLOR", "1"), 80, &words);
    assert!(seen.contains("\r\x1b[K0/1 load balancers"), "{seen:?}");
    let run = haplane.run(&words).exits(4);
    assert!(!run.stderr.contains(['\r', '\x1b']), "{run:?}");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let (haplane, _dir) = with_keys();
    for words in [&["show"][..], &["show", "--json"], &["log"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = haplane.command(words);
        command.stdout(writer).stderr(Stdio::piped());
        let run = run_of(command.output().unwrap()).exits(0);
        assert_eq!(run.stderr, "", "{words:?}");
    }
}

#[test]
fn nothing_open_at_all_is_no_error() {
    let (haplane, _dir) = with_keys();
    let mut command = haplane.command(&["show"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    assert!(command.status().unwrap().success());
}

#[test]
fn who_is_asked_sees_first_what_for() {
    let (haplane, dir) = with_keys();
    let file = dir.path().join(".environments.toml");
    let text = format!(
        "[env.gprd]\nstore = \"dir:{}\"\nconfirm = true\n",
        dir.path().display()
    );
    std::fs::write(&file, text).unwrap();
    let haplane = haplane
        .with("HAPLANE_STORE", "")
        .with("HAPLANE_CONFIG", file.to_str().unwrap())
        .with("NO_COLOR", "1");
    let words = ["--env", "gprd", "set", "canary", "maint"];
    let no = answered(&haplane, 120, &words, "n\n");
    let (before, after) = no.split_once("[y/N]").expect("a question");
    assert!(before.contains("canary  drain   maint"), "{no}");
    assert!(after.contains("nothing was written"), "{no}");
    let canary = || std::fs::read_to_string(dir.path().join("canary")).unwrap();
    assert_eq!(canary().trim(), "drain");
    answered(&haplane, 120, &words, "y\n");
    assert_eq!(canary().trim(), "maint");
}
