//! A store in a folder, from nothing to a drain.

use crate::command::Haplane;

#[test]
fn init_makes_a_folder_that_is_missing_and_no_other_command_does() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("lib/state");
    let haplane = Haplane::on(format!("dir:{}", folder.display()));

    for words in [&["show"][..], &["set", "canary", "drain"]] {
        let missing = haplane.run(words).exits(5);
        assert!(missing.stderr.contains("haplane init"), "{missing:#?}");
        assert!(!folder.exists(), "{words:?} made the folder");
    }
    haplane.run(&["init", "--dry-run"]).exits(0);
    assert!(!folder.exists());

    haplane.run(&["init"]).exits(0);
    haplane.run(&["set", "canary", "drain"]).exits(0);
    let text = std::fs::read_to_string(folder.join("canary")).unwrap();
    assert_eq!(text, "drain\n");
}

#[test]
fn echo_breaks_the_glass_and_has_no_author() {
    let base = tempfile::tempdir().unwrap();
    let haplane = Haplane::on(format!("dir:{}", base.path().display()));
    haplane.run(&["init"]).exits(0);
    haplane
        .run(&["set", "canary", "maint", "--reason", "bad deploy"])
        .exits(0);
    let of = |key: &str| {
        let shown = haplane.run(&["show", key, "--json"]).exits(0).json();
        shown["keys"][0].clone()
    };
    let by_command = of("canary");
    assert_eq!(
        (&by_command["by"], &by_command["reason"]),
        (&"alice".into(), &"bad deploy".into())
    );

    std::fs::write(base.path().join("canary"), "drain\n").unwrap();
    let by_hand = of("canary");
    assert_eq!(by_hand["value"], "drain");
    assert_eq!(
        (&by_hand["by"], &by_hand["reason"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
}
