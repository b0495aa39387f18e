//! `show stat`, as a real process answered it, and damaged in every way.

use haplane_haproxy::stat_csv::{StatError, StatKind, read};
use proptest::prelude::*;

const SAMPLE: &str = include_str!("../samples/show-stat-28.csv");

#[test]
fn a_real_answer() {
    let rows = read(SAMPLE).unwrap();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!(row("noagent").status, "UP");
    assert_eq!(row("noagent").agent, None);
    assert_eq!(row("noagent").check.as_ref().unwrap().word, "L4OK");
    assert_eq!(row("ag_drain").status, "DRAIN (agent)");
    assert_eq!(row("ag_drain").agent.as_ref().unwrap().word, "CHECKED");
    assert_eq!(
        row("ag_drain").row.as_ref().unwrap().to_string(),
        "b/ag_drain"
    );
    assert_eq!(
        (row("ag").weight, row("ag").uweight, row("ag").throttle),
        (Some(1), Some(1), None)
    );
    assert_eq!(row("ag").address, "127.0.0.1:38631");
    assert_eq!(row("BACKEND").kind, StatKind::Backend);
    assert_eq!(row("BACKEND").row, None);
    assert_eq!(row("BACKEND").mode, "http");
    assert_eq!(
        rows.len() + 2,
        SAMPLE.lines().count(),
        "the header and the empty line are no rows"
    );
}

#[test]
fn every_cut_is_noticed() {
    for end in (0..SAMPLE.len()).filter(|end| SAMPLE.is_char_boundary(*end)) {
        assert!(read(&SAMPLE[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn columns_go_by_name_and_quotes_are_understood() {
    let text = "# pxname,svname,status,type,novel,weight,last_agt,agent_status,cookie,\n\
                b,s,UP,2,x,7,\"via agent : up (a, \"\"b\"\"\nand more)\",* CHECKED,\"a,b\",\n\
                b,BACKEND,UP,1,,,,,,\n\n";
    let rows = read(text).unwrap();
    assert_eq!(rows[0].last_agent, "via agent : up (a, \"b\"\nand more)");
    assert_eq!(rows[0].cookie, "a,b");
    let agent = rows[0].agent.as_ref().unwrap();
    assert_eq!((agent.word.as_str(), agent.in_flight), ("CHECKED", true));
    assert_eq!((rows[0].line, rows[1].line), (2, 4));
    assert_eq!((rows[1].weight, rows[1].uweight), (None, None));
}

#[test]
fn no_row_is_left_out_silently() {
    for (text, told) in [
        ("", "cut short"),
        ("\n", "cut short"),
        ("Permission denied\n\n", "but reads: Permission denied"),
        ("Permission denied", "cut short"),
        ("# pxname,svname,\na,b,\n\n", "should begin with"),
        (
            "# pxname,svname,status,type,\na,b,UP,\n\n",
            "line 2 of `show stat` has 3 fields, the header has 4",
        ),
        (
            "# pxname,svname,status,type,\na,b,UP,9,\n\n",
            "column type should be 0, 1, 2 or 3, but reads: 9",
        ),
        (
            "# pxname,svname,status,type,weight,\na,b,UP,2,x,\n\n",
            "column weight should be a number, but reads: x",
        ),
        (
            "# pxname,svname,status,type,\na,b,\"UP\"x,2,\n\n",
            "stray quotation mark",
        ),
        ("# pxname,svname,status,type,\na,b,\"UP,2,\n\n", "cut short"),
        (
            "# pxname,svname,status,type,\na b,c,UP,2,\n\n",
            "column pxname should be a backend name",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(told), "{text:?}: {error}");
    }
    assert!(matches!(
        read("# pxname,svname,status,type,\n"),
        Err(StatError::CutShort { line: 2 })
    ));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(# pxname,svname,status,type,\n)?(\\PC|[,\"\n]|[0-9]){0,300}\n*") {
        drop(read(&text));
    }
}
