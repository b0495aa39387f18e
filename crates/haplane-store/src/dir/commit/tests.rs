//! Writers that die at the worst moment, and people who write beside them.

use std::fs;

use haplane_core::log::LogId;
use haplane_core::snapshot::Snapshot;

use super::super::files::{INDEX, JOURNAL};
use super::super::look::{Memory, look};
use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            folder.put(path, text);
        }
        folder
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, path: &str, text: &str) {
        let file = self.root().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn file(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }

    /// A transaction on top of what is there.
    fn transaction(&self, changes: &[(&str, Option<&str>)]) -> Transaction {
        let changes: Vec<Change> = changes
            .iter()
            .map(|(path, text)| Change {
                key: path.parse().unwrap(),
                path: (*path).to_owned(),
                expected: match read_value(&self.root().join(path)) {
                    Ok(file) => Expected::Version(file.version()),
                    Err(_) => Expected::Absent,
                },
                text: text.map(str::to_owned),
            })
            .collect();
        Transaction {
            changes,
            log: Some(LogEntry {
                id: LogId::new(Timestamp::now(), 7),
                at: Timestamp::now(),
                by: "somebody".into(),
                host: "here".into(),
                command: "haplane set".into(),
                reason: None,
                ticket: None,
                changes: Vec::new(),
            }),
        }
    }

    /// Commits, and dies.
    fn write_ahead(&self, changes: &[(&str, Option<&str>)]) -> Journal {
        let written = write_ahead(self.root(), &self.transaction(changes)).unwrap();
        written.journal.unwrap()
    }

    fn commit(&self, changes: &[(&str, Option<&str>)]) -> Result<Committed, CommitError> {
        commit(self.root(), &self.transaction(changes))
    }

    /// What a reader sees, without the marker.
    fn seen(&self) -> Vec<(String, String)> {
        let look = look(self.root(), &mut Memory::default()).unwrap();
        let text = |value: &[u8]| String::from_utf8_lossy(value).trim().to_owned();
        look.files
            .iter()
            .filter(|(path, _)| *path != marker::PATH)
            .map(|(path, file)| (path.clone(), text(&file.value)))
            .collect()
    }

    fn index_seen(&self) -> u64 {
        look(self.root(), &mut Memory::default()).unwrap().index
    }

    /// Names that haplane uses while it writes.
    fn leftovers(&self) -> Vec<String> {
        fs::read_dir(self.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(TEMPORARY) || name == JOURNAL)
            .collect()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn what_is_committed_is_seen_whole_before_it_is_in_place() {
    let folder = Folder::new(&[("a", "ready\n"), ("gone", "drain"), ("kept", "maint")]);
    let journal =
        folder.write_ahead(&[("a", Some("drain")), ("web/b", Some("50%")), ("gone", None)]);
    let whole = pairs(&[("a", "drain"), ("kept", "maint"), ("web/b", "50%")]);
    assert_eq!(folder.seen(), whole);
    assert_eq!(folder.index_seen(), journal.index);
    assert_eq!(
        folder.file("a").unwrap(),
        "ready\n",
        "nothing is in place yet"
    );
    // Whatever part of it is in place, it is seen whole.
    for step in &journal.steps {
        let one = Journal {
            steps: vec![step.clone()],
            log: None,
            ..journal.clone()
        };
        one.carry_out(folder.root()).unwrap();
        journal.commit(folder.root(), ".tmp-again").unwrap();
        assert_eq!(folder.seen(), whole);
        assert_eq!(folder.index_seen(), journal.index);
    }
    // The next writer clears up before it writes, on top of it.
    folder.commit(&[("kept", None)]).unwrap();
    assert_eq!(folder.seen(), pairs(&[("a", "drain"), ("web/b", "50%")]));
    assert_eq!(folder.leftovers(), [] as [&str; 0]);
    assert_eq!(folder.index_seen(), journal.index + 1);
    assert_eq!(super::super::log::ids(folder.root()).unwrap().len(), 2);
}

#[test]
fn what_a_person_did_meanwhile_counts_more() {
    let folder = Folder::new(&[
        ("a", "ready"),
        ("b", "ready"),
        ("c", "ready"),
        ("d", "ready"),
    ]);
    folder.write_ahead(&[
        ("a", Some("drain")),
        ("b", Some("drain")),
        ("c", None),
        ("d", Some("drain")),
    ]);
    folder.put("b", "maint\n");
    folder.put("c", "50%\n");
    fs::remove_file(folder.root().join("d")).unwrap();
    let both = pairs(&[("a", "drain"), ("b", "maint"), ("c", "50%")]);
    assert_eq!(folder.seen(), both);
    clear_up(folder.root()).unwrap();
    assert_eq!(folder.seen(), both);
    assert_eq!(folder.file("b").unwrap(), "maint\n");
    assert_eq!(folder.leftovers(), [] as [&str; 0]);
}

#[test]
fn a_file_of_a_persons_where_a_folder_is_needed_stops_nobody() {
    let folder = Folder::new(&[]);
    folder.write_ahead(&[("zone/b", Some("drain")), ("a", Some("drain"))]);
    fs::remove_dir(folder.root().join("zone")).unwrap();
    folder.put("zone", "maint\n");
    clear_up(folder.root()).unwrap();
    assert_eq!(folder.seen(), pairs(&[("a", "drain"), ("zone", "maint")]));
    folder.write_ahead(&[("web", Some("drain")), ("b", Some("drain"))]);
    folder.put("web/a", "maint\n");
    clear_up(folder.root()).unwrap();
    let all = [
        ("a", "drain"),
        ("b", "drain"),
        ("web/a", "maint"),
        ("zone", "maint"),
    ];
    assert_eq!(folder.seen(), pairs(&all));
    assert_eq!(folder.leftovers(), [] as [&str; 0]);
}

#[test]
fn a_committed_write_survives_the_loss_of_its_temporary_files() {
    let folder = Folder::new(&[("a", "ready")]);
    folder.write_ahead(&[("a", Some("drain")), ("b", Some("drain"))]);
    for name in folder.leftovers() {
        if name != JOURNAL {
            fs::remove_file(folder.root().join(name)).unwrap();
        }
    }
    clear_up(folder.root()).unwrap();
    assert_eq!(folder.seen(), pairs(&[("a", "drain"), ("b", "drain")]));
    assert_eq!(folder.file(INDEX).unwrap(), "2\n");
}

#[test]
fn what_was_not_committed_leaves_no_trace() {
    let folder = Folder::new(&[("a", "ready")]);
    let mut preparation = Preparation::new(folder.root());
    let intents = vec![Intent {
        path: "web/b",
        place: folder.root().join("web/b"),
        before: None,
        text: Some("drain\n".into()),
    }];
    preparation.journal(9, intents, None).unwrap();
    assert_eq!(folder.leftovers().len(), 2);
    assert_eq!(folder.seen(), pairs(&[("a", "ready")]));
    drop(preparation);
    assert_eq!(folder.leftovers(), [] as [&str; 0]);
    assert!(!folder.root().join("web").exists());
    // One that died could not clear up; the next writer does.
    folder.put(".tmp-1-1", "drain");
    folder.commit(&[("a", Some("drain"))]).unwrap();
    assert_eq!(folder.leftovers(), [] as [&str; 0]);
}

#[test]
fn a_damaged_journal_or_index_fails_reads_and_writes_with_what_to_do() {
    let folder = Folder::new(&[("a", "ready")]);
    folder.commit(&[("a", Some("drain"))]).unwrap();
    for (name, text) in [
        (JOURNAL, "{\"index\":"),
        (INDEX, "x"),
        (INDEX, ""),
        (INDEX, "0"),
        (INDEX, "99999999999999999999"),
    ] {
        let before = folder.file(name);
        folder.put(name, text);
        let path = folder.root().join(name).display().to_string();
        let error = look(folder.root(), &mut Memory::default())
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Undecodable, "{}", error.story());
        assert!(error.what.contains(&path), "{error}");
        assert!(folder.commit(&[("a", Some("maint"))]).is_err());
        match before {
            Some(text) => folder.put(name, &text),
            None => fs::remove_file(folder.root().join(name)).unwrap(),
        }
        assert_eq!(folder.seen(), pairs(&[("a", "drain")]));
    }
}

#[test]
fn a_key_that_is_a_file_cannot_be_a_folder() {
    let folder = Folder::new(&[("zone", "drain"), ("web/a", "drain")]);
    let long = "x".repeat(256);
    for (changes, one, other) in [
        (&[("zone/b", Some("drain"))][..], "zone/b", "zone"),
        (&[("zone/b/c", Some("drain"))], "zone/b/c", "zone"),
        (&[("web", Some("drain"))], "web", "web/a"),
        (
            &[("new", Some("drain")), ("new/b", Some("drain"))],
            "new/b",
            "new",
        ),
        (&[(long.as_str(), Some("drain"))], long.as_str(), "255"),
    ] {
        let refused = folder.commit(changes).unwrap_err();
        let CommitError::Unholdable(text) = &refused else {
            panic!("{refused:?}");
        };
        assert!(text.contains(one) && text.contains(other), "{text}");
        assert_eq!(folder.leftovers(), [] as [&str; 0]);
    }
    assert_eq!(
        folder.seen(),
        pairs(&[("web/a", "drain"), ("zone", "drain")])
    );
    // What makes room in the same command may do so.
    folder
        .commit(&[
            ("zone", None),
            ("zone/b", Some("maint")),
            ("web/a", None),
            ("web", Some("50%")),
        ])
        .unwrap();
    assert_eq!(folder.seen(), pairs(&[("web", "50%"), ("zone/b", "maint")]));
    // An empty folder is in nobody's way.
    fs::create_dir_all(folder.root().join("empty/within")).unwrap();
    folder.commit(&[("empty", Some("drain"))]).unwrap();
    assert_eq!(folder.file("empty").unwrap(), "drain\n");
}

#[test]
fn nothing_is_written_through_a_link() {
    let folder = Folder::new(&[("a", "ready")]);
    let elsewhere = Folder::new(&[("b", "ready")]);
    std::os::unix::fs::symlink(elsewhere.root(), folder.root().join("web")).unwrap();
    std::os::unix::fs::symlink("a", folder.root().join("alias")).unwrap();
    for path in ["web/b", "web/c", "alias"] {
        let error = folder
            .commit(&[("a", Some("drain")), (path, Some("drain"))])
            .unwrap_err();
        assert!(error.to_string().contains("leads elsewhere"), "{error}");
    }
    assert_eq!(
        folder.seen(),
        pairs(&[("a", "ready"), ("alias", "ready"), ("web/b", "ready")])
    );
    // A loop of links is an error, not a feast.
    std::os::unix::fs::symlink(folder.root(), elsewhere.root().join("loop")).unwrap();
    let error = look(folder.root(), &mut Memory::default())
        .map(|_| ())
        .unwrap_err();
    assert!(
        error.what.contains("a folder that it lies in"),
        "{}",
        error.story()
    );
}

#[test]
fn only_init_makes_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("not/mounted");
    let folder = Folder::new(&[]);
    let error = commit(&root, &folder.transaction(&[("a", Some("drain"))])).unwrap_err();
    assert!(error.to_string().contains("haplane init"), "{error}");
    assert!(!root.exists());
    let init = Transaction {
        changes: Vec::new(),
        log: None,
    };
    assert!(commit(&root, &init).unwrap().made_marker);
    let look = look(&root, &mut Memory::default()).unwrap();
    let pairs = look
        .files
        .into_iter()
        .map(|(path, file)| haplane_core::snapshot::Pair {
            version: file.version(),
            value: file.value,
            path,
            log_id: None,
        });
    assert!(Snapshot::new(look.index, pairs).marker.is_some());
}
