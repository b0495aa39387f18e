//! The words of a line: ours against those that `haproxy -dC` prints.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use haplane_haproxy::cfg::{Config, Context, Environment, Severity, SourceFile};
use haplane_testkit::peers::Peer;

const VARIABLES: [(&str, &str); 3] = [("A", "va"), ("SP", " x  y "), ("EMPTY", "")];

/// What lines are made of.
/// (`${.SECTION}` is not among them: `-dC` prints words before it looks at sections.)
const PIECES: [&str; 43] = [
    "\"",
    "\"",
    "\"",
    "'",
    "'",
    "\\",
    "\\",
    " ",
    " ",
    " ",
    "\t",
    "#",
    "$A",
    "${A}",
    "${B}",
    "${B-d e}",
    "${A-x}",
    "${SP[*]}",
    "${B[*]}",
    "${B[*]-p q}",
    "${EMPTY}",
    "${EMPTY[*]}",
    "${.LINE}",
    "${A",
    "${1}",
    "$",
    "{",
    "}",
    "[*]",
    "-",
    "a",
    "b",
    "xyz",
    "\\n",
    "\\t",
    "\\x41",
    "\\x4",
    "\\\"",
    "\\'",
    "\\#",
    "\\ ",
    "é",
    "\u{b}",
];

fn random_line(rng: &mut fastrand::Rng) -> String {
    let mut line = String::from("k ");
    for _ in 0..rng.usize(0..14) {
        line += PIECES[rng.usize(0..PIECES.len())];
    }
    line
}

fn context() -> Context {
    Context {
        environment: Environment::from_pairs(VARIABLES),
        version: None,
    }
}

/// HAProxy's own buffer must be large from the start: 2.8 garbles `${NAME-default}` on a line that makes it grow.
fn file_of<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = format!("global\nk {}\n", "w".repeat(4000));
    for line in lines {
        text += line;
        text += "\n";
    }
    text
}

struct Said {
    words: String,
    messages: String,
}

fn haproxy(text: &str) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.cfg");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(Peer::Haproxy28.program());
    command
        .arg("-dC,line")
        .arg("-f")
        .arg("f.cfg")
        .current_dir(dir.path())
        .envs(VARIABLES)
        .env_remove("B");
    let output = command.output().unwrap();
    Said {
        words: String::from_utf8_lossy(&output.stdout).into_owned(),
        messages: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The lines of `text` that we say HAProxy refuses, with the column that it should point at.
fn refused(text: &str) -> Vec<(u32, u32)> {
    let config = Config::parse(vec![SourceFile::new("f.cfg", text)], &context());
    let errors = config
        .diagnostics()
        .iter()
        .filter(|one| one.severity == Severity::Error);
    errors
        .map(|error| (error.span.line, error.span.start + 1))
        .collect()
}

#[test]
fn the_words_of_random_lines() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut compared = 0;
    for _ in 0..crate::cases(5) {
        let lines: Vec<String> = (0..2000).map(|_| random_line(&mut rng)).collect();
        let faulty: BTreeSet<u32> = refused(&file_of(lines.iter().map(String::as_str)))
            .iter()
            .map(|one| one.0)
            .collect();
        let good = (3..)
            .zip(&lines)
            .filter(|(number, _)| !faulty.contains(number));
        let text = file_of(good.map(|(_, line)| line.as_str()));
        let config = Config::parse(vec![SourceFile::new("f.cfg", text.as_str())], &context());
        let mut ours = String::new();
        for line in config.lines() {
            let indent = if line.begins.is_some() { "" } else { "\t" };
            write!(ours, "{}\t{indent}", line.number).unwrap();
            for word in &line.words {
                write!(ours, "{} ", word.text).unwrap();
            }
            ours.push('\n');
            compared += 1;
        }
        let theirs = haproxy(&text);
        assert!(!theirs.messages.contains("ALERT"), "{}", theirs.messages);
        for (mine, other) in ours.split('\n').zip(theirs.words.split('\n')) {
            assert_eq!(mine, other);
        }
        assert_eq!(ours, theirs.words);
    }
    assert!(compared > 1000, "{compared} lines compared");
}

#[test]
fn the_faults_of_random_lines() {
    let mut rng = fastrand::Rng::with_seed(2);
    let lines: Vec<String> = (0..3000).map(|_| random_line(&mut rng)).collect();
    let all = file_of(lines.iter().map(String::as_str));
    let faulty: BTreeSet<u32> = refused(&all).iter().map(|one| one.0).collect();
    let faulty: Vec<&str> = faulty
        .iter()
        .map(|number| lines[*number as usize - 3].as_str())
        .collect();
    assert!(faulty.len() > 500);
    // HAProxy stops reading after fifty faults.
    for chunk in faulty.chunks(45) {
        let text = file_of(chunk.iter().copied());
        let ours = refused(&text);
        let theirs = haproxy(&text).messages;
        assert_eq!(
            theirs.matches("parsing [f.cfg:").count(),
            chunk.len(),
            "{theirs}"
        );
        for (line, column) in ours {
            let told = theirs
                .lines()
                .find(|message| message.contains(&format!("parsing [f.cfg:{line}]")));
            let told = told.unwrap_or_else(|| panic!("line {line} is fine to HAProxy: {text}"));
            assert!(
                told.ends_with(&format!("at position {column}:")),
                "{column}: {told}\n{text}"
            );
        }
    }
}

/// Every keyword of server lines, by HAProxy's own list (`-dKall`), takes as many words as we think.
#[test]
fn the_keywords_of_server_lines() {
    for peer in [Peer::Haproxy28, Peer::Haproxy26] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f.cfg"), "global\n").unwrap();
        let mut command = Command::new(peer.program());
        let output = command
            .args(["-dKall", "-c", "-f", "f.cfg"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let list = String::from_utf8_lossy(&output.stdout).into_owned();
        let keywords: Vec<(&str, usize)> = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix("server <name> <addr> "))
            .map(keyword_and_values)
            .collect();
        assert!(keywords.len() > 80, "{list}");
        // `usesrc` is a part of `source`, and refused alone.
        for (keyword, values) in keywords
            .into_iter()
            .filter(|(keyword, _)| *keyword != "usesrc")
        {
            // 3.0 lists it without the id that it is written with.
            let keyword = match keyword {
                "set-proxy-v2-tlv-fmt" => "set-proxy-v2-tlv-fmt(0x20) 1",
                keyword => keyword,
            };
            let values = " 1".repeat(values);
            let text = format!("backend b\n server s 192.0.2.1:80 {keyword}{values} weight 77\n");
            let config = Config::parse(
                vec![SourceFile::new("f.cfg", text.as_str())],
                &Context::default(),
            );
            let row = config.rows().next().unwrap_or_else(|| panic!("{text}"));
            assert_eq!(row.server.settings.weight.value, 77, "{text}");
            let unknown = config
                .diagnostics()
                .iter()
                .find(|one| one.message.starts_with("no server keyword"));
            assert_eq!(unknown, None, "{text}");
        }
    }
}

/// `agent-port +1`: one value follows. `source +-1`: it depends on them, an address at least.
fn keyword_and_values(line: &str) -> (&str, usize) {
    let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
    let values = match rest
        .split_whitespace()
        .find_map(|word| word.strip_prefix('+'))
    {
        None => 0,
        Some("-1") => 1,
        Some(number) => number.parse().unwrap(),
    };
    (keyword, values)
}
