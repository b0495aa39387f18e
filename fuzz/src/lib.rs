//! What each fuzz target does with its bytes: read them, and hold what was read to what must always be so.

use haplane_core::ask::Ask;
use haplane_core::audit::{Place, Subject, audit};
use haplane_core::enroll::{Wanted, apply, enroll as plan};
use haplane_haproxy::cfg::{Config, Context, Severity, SourceFile};
use haplane_haproxy::forecast::{StateFiles, forecast};
use haplane_haproxy::server_state::{Fate, StateFile, read_answer};

fn parse(bytes: &[u8]) -> Config {
    Config::parse(vec![SourceFile::new("f.cfg", bytes)], &Context::default())
}

/// haproxy.cfg: places lie within their lines, printing is byte-exact, and every rule can look at the result.
pub fn cfg(bytes: &[u8]) {
    let config = parse(bytes);
    assert_eq!(config.files()[0].bytes(), bytes);
    for line in config.lines() {
        let length = config.files()[0].line(line.number).len();
        for word in &line.words {
            assert!(word.range.start <= word.range.end && word.range.end as usize <= length);
        }
    }
    let files = StateFiles::default();
    let subject = Subject {
        config: &config,
        files: &files,
        global_file: None,
        running: None,
        version: None,
    };
    for finding in audit(&subject) {
        if let Place::Config(span) = finding.place {
            let place = config.locate(span);
            assert!(place.line >= 1 && place.column >= 1 && place.width >= 1);
        }
    }
}

/// An enrolment of whatever it is: a second run has nothing to do, and nothing but insertions was done.
pub fn enroll(bytes: &[u8]) {
    let config = parse(bytes);
    if config
        .diagnostics()
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error)
    {
        return;
    }
    let wanted = Wanted {
        slowstart: Some("60s".to_owned()),
        ..Wanted::default()
    };
    let first = match plan(&config, &Context::default(), &wanted) {
        Ok(first) => first,
        Err(error) => panic!("{error}"),
    };
    let edited = apply(&config, &first.edits).remove(0);
    let again = plan(&parse(&edited), &Context::default(), &wanted)
        .expect("what was read back reads again");
    assert!(again.edits.is_empty(), "{:?}", again.edits);
}

/// A server-state file: dropped or not, a forecast can be made of it.
pub fn state_file(bytes: &[u8]) {
    let file = StateFile::read(bytes);
    assert!(matches!(file.fate(), Fate::Loaded) || file.rows().is_empty());
    let config = parse(
        b"defaults\n load-server-state-from-file global\nbackend b\n server a 192.0.2.1:80 weight 10 check port 5\n \
          server c localhost:80 agent-check agent-port 6 disabled\n server d 192.0.2.1 track b/a\n",
    );
    let files = StateFiles {
        global: Some(file),
        ..StateFiles::default()
    };
    let rows = forecast(&config, &files);
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row.weight.value <= 256 && row.port.value <= 65535);
    }
}

/// The answer to `show servers state`: never a row from a text that is not whole.
pub fn server_state(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if read_answer(&text).is_ok() {
        assert!(text.contains("\n\n"));
    }
}

/// The answer to `show stat`.
pub fn stat_csv(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if haplane_haproxy::stat_csv::read(&text).is_ok() {
        assert!(text.contains("\n\n"));
    }
}

/// The answer to `show info`.
pub fn show_info(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if haplane_haproxy::show_info::read(&text).is_ok() {
        assert!(text.contains("\n\n"));
    }
}

/// What HAProxy asks, and what it would make of an answer.
pub fn agent_line(bytes: &[u8]) {
    if let Ok(Ask::Row(row)) = Ask::parse(bytes) {
        assert!(!row.keys.is_empty());
    }
}
