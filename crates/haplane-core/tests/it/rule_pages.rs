//! The pages of the rules are held to the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use haplane_core::audit::Rule;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules"))
}

#[test]
fn every_rule_has_its_page() {
    let mut expected: BTreeSet<String> =
        Rule::ALL.iter().map(|rule| format!("{rule}.md")).collect();
    for rule in Rule::ALL {
        let page = std::fs::read_to_string(folder().join(format!("{rule}.md"))).unwrap();
        assert!(
            page.starts_with(&format!(
                "# {rule}\n\nUsually: {}. {}\n",
                rule.severity().as_str(),
                rule.reason()
            )),
            "{page}"
        );
        for heading in ["\n## Why\n", "\n## Example\n", "\n## What to do\n"] {
            assert!(page.contains(heading), "{rule}: {heading}");
        }
    }
    expected.insert("README.md".to_owned());
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_index_lists_them_all() {
    let mut table = String::from("| rule | usually | why it matters |\n|---|---|---|\n");
    for rule in Rule::ALL {
        writeln!(
            table,
            "| [{rule}]({rule}.md) | {} | {} |",
            rule.severity().as_str(),
            rule.reason()
        )
        .unwrap();
    }
    let index = std::fs::read_to_string(folder().join("README.md")).unwrap();
    assert!(
        index.ends_with(&table),
        "docs/rules/README.md should end with:\n{table}"
    );
}
