//! `show servers state`, as real processes of five versions answered it, and damaged in every way.

use haplane_haproxy::server_state::{AdminBits, OpState, StateError, read_answer};
use proptest::prelude::*;

/// The samples were saved without the empty line that ends an answer.
fn answer(saved: &str) -> String {
    format!("{saved}\n")
}

#[test]
fn five_versions_tell_the_same_rows() {
    for (version, saved) in [
        ("2.2", include_str!("../samples/server-state-22.txt")),
        ("2.6", include_str!("../samples/server-state-26.txt")),
        ("2.8", include_str!("../samples/server-state-28.txt")),
        ("3.0", include_str!("../samples/server-state-30.txt")),
        ("3.2", include_str!("../samples/server-state-32.txt")),
    ] {
        let rows = read_answer(&answer(saved)).unwrap();
        let row = |name: &str| rows.iter().find(|row| row.row.to_string() == name).unwrap();
        assert_eq!(row("weight_cli/s").uweight, 3, "{version}");
        assert_eq!(row("weight_cli/s").iweight, 10, "{version}");
        assert_eq!(row("drain_cli/s").admin, AdminBits::FDRAIN, "{version}");
        assert_eq!(
            row("tmpl/w1").address.unwrap().to_string(),
            "127.0.0.5",
            "{version}"
        );
        assert_eq!(row("tmpl/w1").port, 8005, "{version}");
        assert_eq!(
            row("tmpl/w2").admin,
            AdminBits::FMAINT | AdminBits::CMAINT,
            "{version}"
        );
        assert_eq!(row("tmpl/w2").op_state, OpState::Stopped, "{version}");
        assert_eq!(
            row("fqdn/s").fqdn.as_deref(),
            Some("localhost"),
            "{version}"
        );
        assert!(row("port/s").agent.is_configured(), "{version}");
        let check_port = (version != "2.2").then_some(9100);
        assert_eq!(row("chkport/s").check_port, check_port, "{version}");
        assert_eq!(
            row("port/s").agent_port.is_some(),
            version != "2.2",
            "{version}"
        );
    }
}

#[test]
fn every_cut_is_noticed() {
    let whole = answer(include_str!("../samples/server-state-28.txt"));
    for end in 0..whole.len() {
        assert!(read_answer(&whole[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn no_row_is_left_out_silently() {
    let whole = answer(include_str!("../samples/server-state-28.txt"));
    for (damage, replacement, told) in [
        (
            "1\n#",
            "2\n#",
            "line 1 of the answer to `show servers state` should be the format version `1`, but reads: 2",
        ),
        ("# be_id", "# bogus", "line 2"),
        ("2 port 1 s", "2 port 1", "line 3"),
        (
            " 9001 ",
            " 90o1 ",
            "column srv_port should be a number in range, but reads: 90o1",
        ),
        (
            "127.0.0.5",
            "127.0.0.x",
            "column srv_addr should be an IP address or `-`, but reads: 127.0.0.x",
        ),
        (
            "weight_cli 1",
            "weight=cli 1",
            "column be_name should be a backend name",
        ),
        (
            "1 s 127.0.0.1 2 8",
            "1 s 127.0.0.1 7 8",
            "column srv_op_state should be 0, 1, 2 or 3, but reads: 7",
        ),
    ] {
        let damaged = whole.replacen(damage, replacement, 1);
        assert_ne!(damaged, whole, "{damage}");
        let error = read_answer(&damaged).unwrap_err().to_string();
        assert!(error.contains(told), "{damage}: {error}");
    }
    let after = format!("{whole}2 late 1 s 127.0.0.1\n");
    assert!(matches!(
        read_answer(&after),
        Err(StateError::Unexpected { .. })
    ));
    assert!(
        read_answer(&format!("{whole}> ")).is_ok(),
        "the prompt of an interactive session"
    );
}

#[test]
fn a_refusal_is_told_with_its_text() {
    for refusal in [
        "Permission denied\n\n",
        "Can't find backend.\n\n",
        "Permission denied\n",
    ] {
        let error = read_answer(refusal).unwrap_err().to_string();
        assert!(error.contains(refusal.trim()), "{error}");
    }
    assert_eq!(read_answer(""), Err(StateError::CutShort { line: 0 }));
}

#[test]
fn a_process_without_servers_is_not_an_error() {
    let header = haplane_haproxy::server_state::HEADER;
    assert_eq!(read_answer(&format!("1\n{header}\n\n")), Ok(Vec::new()));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(1\n)?(# be_id be_name .*\n)?(\\PC|[ \n-]|[0-9]){0,400}\n*") {
        drop(read_answer(&text));
    }
}
