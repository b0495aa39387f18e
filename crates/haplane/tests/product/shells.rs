//! What the package brings for people at a terminal, read by the programs that will read it: three
//! shells complete a key, and manual pages are without fault.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::checkout::succeed;

/// A folder with the three scripts as packages place them, and a store in which there is something
/// to complete.
struct Terminal(TempDir);

impl Terminal {
    fn new() -> Self {
        let terminal = Self(tempfile::tempdir().unwrap());
        for words in [&["init"][..], &["set", "canary", "drain", "--force"]] {
            succeed(terminal.command(env!("CARGO_BIN_EXE_haplane")).args(words));
        }
        for (shell, file) in [
            ("bash", "haplane"),
            ("zsh", "_haplane"),
            ("fish", "haplane.fish"),
        ] {
            let script =
                succeed(Command::new(env!("CARGO_BIN_EXE_haplane")).args(["completions", shell]));
            std::fs::write(terminal.path().join(file), script).unwrap();
        }
        terminal
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A command in this folder that finds haplane and its store.
    fn command(&self, program: &str) -> Command {
        let haplane = Path::new(env!("CARGO_BIN_EXE_haplane")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("PATH", format!("{}:{path}", haplane.display()))
            .env(
                "HAPLANE_STORE",
                format!("dir:{}/state", self.path().display()),
            )
            .env("HAPLANE_HTTP_LISTEN", "127.0.0.1:9");
        command
    }
}

#[test]
fn bash_completes() {
    let script = "source ./haplane
        COMP_WORDS=(haplane clear can) COMP_CWORD=2 COMP_TYPE=9
        _clap_complete_haplane haplane can clear
        printf '%s' \"${COMPREPLY[@]}\"";
    let terminal = Terminal::new();
    let completed = succeed(terminal.command("bash").args(["--norc", "-c", script]));
    assert_eq!(completed, "canary");
}

#[test]
fn fish_completes() {
    let script = "source ./haplane.fish; complete -C 'haplane clear can'";
    let terminal = Terminal::new();
    let completed = succeed(terminal.command("fish").args(["--no-config", "-c", script]));
    assert_eq!(completed, "canary\n");
}

/// At the first Tab already, as zsh loads a script from `fpath`.
#[test]
fn zsh_completes() {
    let script = r#"
        zmodload zsh/zpty
        zpty shell TERM=dumb zsh -f -i
        zpty -w shell 'unsetopt prompt_cr prompt_sp; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
        zpty -w shell 'buffer() { print -r -- $BUFFER >buffer }; zle -N buffer; bindkey "^X" buffer; : >ready'
        within() { for i in {1..200}; do eval "$1" && return; sleep 0.05; done; print "not: $1"; exit 1 }
        within '[[ -e ready ]]'
        zpty -w -n shell $'haplane clear can\t'
        within 'zpty -r -t shell said; all+=$said; [[ $all == *canary* ]]'
        zpty -w -n shell $'\x18'
        within '[[ -s buffer ]]'
        zpty -d shell
        cat buffer"#;
    let terminal = Terminal::new();
    let completed = succeed(terminal.command("zsh").args(["-f", "-c", script]));
    assert_eq!(completed.trim_end(), "haplane clear canary");
}

#[test]
fn manual_pages_are_without_fault_and_lead_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    succeed(
        Command::new(env!("CARGO_BIN_EXE_haplane"))
            .arg("man")
            .arg(folder.path())
            .env("SOURCE_DATE_EPOCH", "0"),
    );
    let pages = std::fs::read_dir(folder.path()).unwrap();
    let pages: Vec<_> = pages.map(|page| page.unwrap().file_name()).collect();
    assert!(
        pages.contains(&"haplane-sync-confirm.1".into()),
        "{pages:?}"
    );
    for page in &pages {
        let file = folder.path().join(page);
        let found = Command::new("mandoc")
            .args(["-T", "lint", "-W", "warning"])
            .arg(&file)
            .output()
            .unwrap();
        // Of two line breaks that clap_mangen writes one is enough; the page is the same.
        let faults = String::from_utf8(found.stdout).unwrap();
        let faults = faults
            .lines()
            .filter(|line| !line.contains("skipping paragraph macro: br"));
        assert_eq!(faults.collect::<Vec<_>>(), [""; 0]);
        let text = std::fs::read_to_string(&file).unwrap().replace("\\-", "-");
        assert!(text.contains(" 1970-01-01 "), "no date: {text}");
        for other in text.lines().filter_map(|line| line.strip_suffix("(1)")) {
            let other = format!("{other}.1");
            assert!(
                pages.contains(&other.as_str().into()),
                "{page:?} leads to {other}"
            );
        }
    }
}
