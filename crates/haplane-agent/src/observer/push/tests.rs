use super::*;
use std::time::Duration;

use haplane_haproxy::Percent;
use haplane_haproxy::server_state::{AdminBits, CheckBits, OpState};
use haplane_haproxy::show_info;
use jiff::Timestamp;

use crate::observer::process::Process;

const PORT: u16 = 9777;

fn look(rows: &[(&str, Seen)]) -> Look {
    let now = Instant::now();
    let info = show_info::read("Version: 2.8.25\nPid: 7\nUptime_sec: 60\n\n").unwrap();
    Look {
        process: Process::new(info, now),
        rows: rows
            .iter()
            .map(|(row, seen)| ((*row).into(), *seen))
            .collect(),
        started: now,
        at: Timestamp::UNIX_EPOCH,
        ended: now,
    }
}

fn seen(agent: u32, port: u16) -> Seen {
    Seen {
        admin: AdminBits::READY,
        operational: OpState::Running,
        weight: 100,
        configured_weight: 100,
        check: CheckBits::from_number(0),
        agent: CheckBits::from_number(agent),
        agent_port: Some(port),
    }
}

/// Asked just now.
fn asked(answer: Answer, due: Answer) -> AskedRow {
    let now = Instant::now();
    AskedRow {
        answer,
        due,
        asked: now,
        answered: now,
        interval: Duration::from_secs(2),
        is_ambiguous: false,
    }
}

fn asked_rows(rows: &[(&str, AskedRow)]) -> HashMap<Arc<str>, AskedRow> {
    rows.iter()
        .map(|(row, asked)| ((*row).into(), *asked))
        .collect()
}

fn texts(wanted: &[Wanted]) -> Vec<String> {
    let text = |one: &Wanted| {
        let commands: Vec<_> = one.group.iter().map(ToString::to_string).collect();
        commands.join(";")
    };
    let mut texts: Vec<_> = wanted.iter().map(text).collect();
    texts.sort();
    texts
}

#[tokio::test(start_paused = true)]
async fn only_what_the_store_changed_and_the_row_would_be_answered() {
    let changed = asked(Answer::READY, Answer::Drain);
    let quarter = Answer::Ready {
        weight: Percent::new(25),
        up: true,
    };
    let rows = [
        ("web/drained", seen(22, PORT)),
        ("web/weighed", seen(22, PORT)),
        ("web/same", seen(22, PORT)),
        (
            "web/by-hand",
            Seen {
                admin: AdminBits::FMAINT,
                ..seen(22, PORT)
            },
        ),
        (
            "web/already",
            Seen {
                admin: AdminBits::FDRAIN,
                ..seen(22, PORT)
            },
        ),
        ("web/off", seen(18, PORT)),
        ("web/not-enrolled", seen(0, PORT)),
        ("web/elsewhere", seen(22, 1)),
        ("web/in-flight", seen(23, PORT)),
        ("web/two-lines", seen(22, PORT)),
        ("web/kept", seen(22, PORT)),
        ("web/silent", seen(22, PORT)),
        ("web/unasked", seen(22, PORT)),
    ];
    let asked = asked_rows(&[
        ("web/drained", changed),
        ("web/weighed", asked(Answer::READY, quarter)),
        ("web/same", asked(Answer::READY, Answer::READY)),
        ("web/by-hand", asked(Answer::READY, Answer::READY)),
        ("web/already", changed),
        ("web/off", changed),
        ("web/not-enrolled", changed),
        ("web/elsewhere", changed),
        ("web/in-flight", changed),
        (
            "web/two-lines",
            AskedRow {
                is_ambiguous: true,
                ..changed
            },
        ),
        ("web/kept", asked(Answer::Drain, Answer::Keep)),
        (
            "web/silent",
            AskedRow {
                interval: Duration::ZERO,
                ..changed
            },
        ),
        ("web/not-there", changed),
        ("no-row", changed),
    ]);
    tokio::time::advance(Duration::from_millis(1)).await;
    let mut pusher = Pusher::new(PORT);
    let wanted = pusher.wanted(&asked, &look(&rows), Generation::Same);
    assert_eq!(
        texts(&wanted),
        [
            "set server web/drained state drain",
            "set server web/in-flight state drain",
            "set server web/weighed weight 25%;set server web/weighed state ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_process_is_brought_to_where_the_old_one_was() {
    let rows = [("web/a", seen(22, PORT)), ("web/b", seen(22, PORT))];
    let asked = asked_rows(&[
        ("web/a", asked(Answer::Drain, Answer::Drain)),
        ("web/b", asked(Answer::READY, Answer::READY)),
    ]);
    tokio::time::advance(Duration::from_mins(5)).await;
    let mut pusher = Pusher::new(PORT);
    let wanted =
        |pusher: &mut Pusher, generation| texts(&pusher.wanted(&asked, &look(&rows), generation));
    assert!(wanted(&mut pusher, Generation::Same).is_empty());
    assert_eq!(
        wanted(&mut pusher, Generation::New),
        ["set server web/a state drain"]
    );
}

#[tokio::test(start_paused = true)]
async fn every_change_is_tried_once() {
    let socket = Socket::new("/nonexistent");
    let rows = look(&[("web/a", seen(22, PORT))]);
    let mut pusher = Pusher::new(PORT);
    let due = |due| asked_rows(&[("web/a", asked(Answer::READY, due))]);
    let drain = due(Answer::Drain);
    tokio::time::advance(Duration::from_secs(1)).await;
    let wanted = pusher.wanted(&drain, &rows, Generation::Same);
    let changes = pusher.push(&socket, &wanted).await;
    let (results, trouble) = results(&wanted, &changes, None);
    assert_eq!(results, [Pushed::Unknown]);
    assert!(trouble.unwrap().contains("/nonexistent"));
    assert!(pusher.wanted(&drain, &rows, Generation::Same).is_empty());
    // Back to what was answered, and the push may have taken all the same.
    let drained = look(&[(
        "web/a",
        Seen {
            admin: AdminBits::FDRAIN,
            ..seen(22, PORT)
        },
    )]);
    let back = asked_rows(&[(
        "web/a",
        AskedRow {
            due: Answer::READY,
            ..drain["web/a"]
        },
    )]);
    assert_eq!(
        texts(&pusher.wanted(&back, &drained, Generation::Same)),
        ["set server web/a weight 100%;set server web/a state ready"]
    );
    // It asks: from then on its answer is what HAProxy was told.
    tokio::time::advance(Duration::from_secs(1)).await;
    let after = due(Answer::READY);
    assert!(pusher.wanted(&after, &drained, Generation::Same).is_empty());
}

#[tokio::test(start_paused = true)]
async fn done_is_not_applied_until_it_is_seen() {
    let before = look(&[("web/a", seen(22, PORT))]);
    let after = look(&[(
        "web/a",
        Seen {
            admin: AdminBits::FDRAIN,
            ..seen(22, PORT)
        },
    )]);
    let asked = asked_rows(&[("web/a", asked(Answer::READY, Answer::Drain))]);
    let wanted = Pusher::new(PORT).wanted(&asked, &before, Generation::Same);
    for (change, after, expected) in [
        (Change::Done, Some(&after), Pushed::Applied),
        (Change::Done, Some(&before), Pushed::NotApplied),
        (Change::Done, None, Pushed::NotApplied),
        (
            Change::Refused("no".to_owned()),
            Some(&after),
            Pushed::Refused,
        ),
    ] {
        assert_eq!(results(&wanted, &[change], after).0, [expected]);
    }
}
