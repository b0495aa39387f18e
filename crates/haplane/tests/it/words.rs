//! Help, wrong words, wrong configuration, pipes.

use std::process::Stdio;

use crate::command::{Haplane, run_of};

fn haplane() -> Haplane {
    Haplane::on("dir:/nowhere/at/all").with("HAPLANE_HTTP_LISTEN", "127.0.0.1:9")
}

#[test]
fn help_lists_the_exit_statuses() {
    let help = haplane().run(&["--help"]).exits(0).stdout;
    for words in [
        "\nChange what takes traffic:\n",
        "Exit: 0 done,",
        " 3 refused,",
        " 7 no\n",
    ] {
        assert!(help.contains(words), "{words} in {help}");
    }
    assert!(help.lines().count() < 50, "{help}");
}

#[test]
fn wrong_words_are_one_document_too() {
    for words in [
        &["--json", "sett"][..],
        &["set", "--json"],
        &["show", "--json", "--colour"],
    ] {
        let run = haplane().run(words).exits(2);
        assert_eq!(run.json()["error"]["exit"], 2, "{words:?}");
        assert!(!run.stderr.is_empty());
    }
}

#[test]
fn what_needs_no_store_is_one_document_too() {
    let right = haplane().run(&["agent", "--check-config", "--json"]);
    assert_eq!(right.exits(0).json()["valid"], true);
    let printed = haplane().run(&[
        "agent",
        "--print-config",
        "--json",
        "--listen",
        "127.0.0.1:7",
    ]);
    assert_eq!(printed.exits(0).json()["agent"]["listen"], "127.0.0.1:7");
    let script = haplane().run(&["completions", "bash", "--json"]).exits(0);
    let script = script.json()["script"].as_str().unwrap().to_owned();
    assert!(script.contains("haplane"), "{script}");
    let plain = haplane().run(&["completions", "bash"]).exits(0).stdout;
    assert_eq!(plain.trim_end(), script.trim_end());
}

#[test]
fn all_errors_of_the_configuration_are_shown_with_their_places() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(
        file.path(),
        "stor = \"dir:/x\"\n[agent]\nlisten = \"nowhere\"\n",
    )
    .unwrap();
    let config = file.path().to_str().unwrap();
    let run = Haplane::without_store()
        .run(&["show", "--config", config, "--json"])
        .exits(2);
    let message = run.json()["error"]["message"].as_str().unwrap().to_owned();
    for part in [
        format!("{config}:1:1"),
        format!("{config}:3:10"),
        "did you mean store?".to_owned(),
        "^".to_owned(),
    ] {
        assert!(message.contains(&part), "{part} in {message}");
    }
    assert!(!run.stderr.contains('\x1b'), "no colours in a pipe");
    let missing = haplane()
        .run(&["show", "--config", "/nowhere.toml"])
        .exits(2);
    assert!(missing.stderr.contains("/nowhere.toml"));
}

#[test]
fn nothing_is_coloured_in_a_pipe_and_a_closed_one_is_no_error() {
    let help = haplane().run(&["set", "--help"]).exits(0);
    assert!(!help.stdout.contains('\x1b'));
    let mut command = haplane().command(&["--help"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer).stderr(Stdio::piped());
    let run = run_of(command.output().unwrap()).exits(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn shells_get_scripts_and_names_are_completed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = haplane().run(&["completions", shell]).exits(0).stdout;
        assert!(script.contains("HAPLANE_COMPLETE"), "{script}");
    }
    let unknown = haplane().run(&["completions", "cmd"]).exits(2);
    assert!(unknown.stderr.contains("bash"), "{}", unknown.stderr);

    let dir = tempfile::tempdir().unwrap();
    let haplane = Haplane::on(format!("dir:{}", dir.path().display()))
        .with("HAPLANE_HTTP_LISTEN", "127.0.0.1:9");
    haplane.run(&["init"]).exits(0);
    haplane.run(&["set", "canary", "web/a", "drain"]).exits(0);
    let complete = |words: &[&str]| {
        let index = words.len() - 1;
        let all: Vec<&str> = std::iter::once("--").chain(words.iter().copied()).collect();
        let run = haplane
            .with("HAPLANE_COMPLETE", "bash")
            .with("_CLAP_COMPLETE_INDEX", &index.to_string())
            .with("_CLAP_COMPLETE_COMP_TYPE", "9")
            .with("_CLAP_IFS", "\n")
            .run(&all);
        run.exits(0).stdout
    };
    assert_eq!(complete(&["haplane", "clear", "can"]), "canary");
    assert!(complete(&["haplane", "set", "web/a", "dr"]).contains("drain"));
    assert!(complete(&["haplane", "sta"]).contains("status"));
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let man = haplane()
        .run(&["man", dir.path().to_str().unwrap(), "--json"])
        .exits(0)
        .json();
    let pages = man["pages"].as_array().unwrap();
    assert!(pages.len() > 10);
    for page in pages {
        let text = std::fs::read_to_string(dir.path().join(page.as_str().unwrap())).unwrap();
        for section in [
            ".SH SYNOPSIS",
            ".SH \"EXIT STATUS\"",
            ".SH EXAMPLES\n",
            "docs/README.md",
        ] {
            assert!(text.contains(section), "{page} has no {section}");
        }
        assert!(!text.contains(".SH EXTRA"), "{page}");
    }
    let people = haplane().run(&["man", dir.path().to_str().unwrap()]);
    assert_eq!(people.exits(0).stdout.lines().count(), 1);
}

#[test]
fn a_file_that_cannot_be_written_is_no_peer_that_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let taken = dir.path().join("taken");
    std::fs::write(&taken, "a file, and no folder").unwrap();
    let below = taken.join("seed").display().to_string();
    let config = dir.path().join("haproxy.cfg").display().to_string();
    std::fs::write(&config, "global\n").unwrap();
    haplane().run(&["man", taken.to_str().unwrap()]).exits(1);
    haplane()
        .run(&["seed", "-f", &config, "-o", &below])
        .exits(1);
}

#[test]
fn a_seed_is_named_by_the_configuration_or_it_says_which_line_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let seed = dir.path().join("seed").display().to_string();
    let config = dir.path().join("haproxy.cfg");
    let warned = |global: &str, output: &str| {
        std::fs::write(&config, format!("global\n{global}")).unwrap();
        let mut command = haplane().command(&["seed", "-f", "haproxy.cfg", "-o", output]);
        run_of(command.current_dir(dir.path()).output().unwrap()).stderr
    };
    let missing = warned("", "seed");
    let line = "names no server-state-file: add `server-state-file seed` to global";
    assert!(missing.contains(line), "{missing}");
    let other = warned(" server-state-file /elsewhere\n", "seed");
    assert!(
        other.contains("names /elsewhere as server-state-file, not seed"),
        "{other}"
    );
    for (named, output) in [
        (seed.as_str(), "seed"),
        ("seed", seed.as_str()),
        ("seed", "./seed"),
        (&seed, &seed),
    ] {
        let said = warned(&format!(" server-state-file {named}\n"), output);
        assert!(
            !said.contains("server-state-file"),
            "{named} {output}: {said}"
        );
    }
}

#[test]
fn without_a_configuration_it_says_how_to_name_one() {
    let run = haplane().run(&["slots"]).exits(2);
    let way = "no configuration file (--config FILE or HAPLANE_CONFIG names one): sync.socket";
    assert!(run.stderr.contains(way), "{run:?}");
}

#[test]
fn the_heartbeats_backend_is_one_that_the_audit_likes() {
    let page = include_str!("../../../../docs/alerts.md");
    let start = page.find("backend haplane-heartbeat").unwrap();
    let (backend, _) = page[start..].split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("haproxy.cfg");
    let site = "global\n max-spread-checks 1\n stats socket /run/haproxy.sock mode 660 level user\n\
                defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n";
    std::fs::write(&config, format!("{site}{backend}")).unwrap();
    let run = haplane().run(&["audit", "--fail-on", "note", "-f", config.to_str().unwrap()]);
    run.exits(0);
}

#[test]
fn the_documented_exit_statuses_are_those_of_the_code() {
    let page = include_str!("../../../../docs/operating.md");
    for exit in haplane::exit::Exit::ALL {
        let line = format!("| {} | {} |", exit.status(), exit.meaning());
        assert!(page.lines().any(|one| one == line), "{line}");
    }
}
