//! Changes, on every version that haplane is tested with.

use std::time::Duration;

use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_haproxy::server_state::ServerRow;
use haplane_haproxy::{AdminState, Percent, server_state, show_info, stat_csv};
use haplane_runtime::{Change, Group, Master, ProcessKind, Socket, SocketError};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};

const PATIENCE: Duration = Duration::from_secs(5);

pub(super) const SLOTS: &str = "
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
backend web
  balance roundrobin
  server-template w- 1-900 127.0.0.1:1 disabled weight 100
  server enrolled 127.0.0.1:1 disabled weight 100 check agent-check agent-addr 127.0.0.1 agent-port 1 agent-send \"@free\\n\"
";

fn group(server: &str, actions: &[Action]) -> Group {
    let command =
        |action: &Action| Command::new(format!("web/{server}").parse().unwrap(), action.clone());
    actions.iter().map(command).collect()
}

fn address(port: u16) -> Action {
    Action::Address("127.0.0.9".parse().unwrap(), port)
}

async fn rows(socket: &Socket) -> Vec<ServerRow> {
    server_state::read_answer(&socket.ask("show servers state web").await.unwrap()).unwrap()
}

#[tokio::test]
async fn every_action_is_understood() {
    for version in Version::ALL {
        let haproxy = Haproxy::start(version, Config::new(SLOTS)).await;
        let socket = Socket::new(haproxy.admin_socket());
        let every = [
            Action::State(AdminState::Maint),
            address(8080),
            address(8080),
            Action::Weight(Percent::new(50).unwrap()),
            Action::AgentSend("web/a;b c\\d @50%".into()),
            Action::AgentDown,
            Action::AgentUp,
            Action::DisableAgent,
            Action::State(AdminState::Ready),
            Action::HealthDown,
            Action::EnableAgent,
            Action::CheckPort(81),
            Action::EnableHealth,
            Action::ShutdownSessions,
        ];
        let groups = [
            group("enrolled", &every),
            group("w-1", &[Action::AgentSend("x".into())]),
            group("w-2", &[address(7), Action::State(AdminState::Drain)]),
            group("nobody", &[Action::State(AdminState::Ready)]),
            group(
                "d1",
                &[Action::Add(
                    "127.0.0.1".parse().unwrap(),
                    80,
                    "check weight 7".into(),
                )],
            ),
            group("d1", &[Action::Delete]),
            group("w-3", &[address(7), Action::Delete]),
            group("w-4", &[Action::State(AdminState::Ready)]),
            group("w-4", &[Action::Delete]),
        ];
        let changes = socket.change(&groups).await;
        let done: Vec<_> = changes
            .iter()
            .map(|change| *change == Change::Done)
            .collect();
        assert_eq!(
            done,
            [true, false, true, false, true, true, true, true, false],
            "{version:?} {changes:#?}"
        );
        assert_eq!(
            changes[1],
            Change::Refused(
                "HAProxy answered `set server web/w-1 agent-send x` with: agent checks are not enabled on this server."
                    .into()
            )
        );
        // 3.0 and 3.2 answer `addr` before they change the address.
        let rows = eventually("the addresses are shown", PATIENCE, async || {
            let rows = rows(&socket).await;
            let changed = rows.iter().filter(|row| row.port != 1).count();
            if changed == 2 { Ok(rows) } else { Err(changed) }
        })
        .await;
        let row = |name: &str| rows.iter().find(|row| row.row.server.as_str() == name);
        let enrolled = row("enrolled").unwrap();
        assert_eq!(
            (enrolled.port, enrolled.uweight, enrolled.check_port),
            (8080, 50, Some(81)),
            "{version:?}"
        );
        assert!(enrolled.admin.is_ready() && enrolled.agent.is_enabled());
        assert!(row("w-2").unwrap().admin.is_drain());
        assert!(row("w-3").is_none() && row("d1").is_none() && row("w-4").is_some());
    }
}

#[tokio::test]
async fn many_changes_travel_in_few_batches() {
    for version in Version::ALL {
        let haproxy = Haproxy::start(version, Config::new(SLOTS)).await;
        let socket = Socket::new(haproxy.admin_socket());
        let groups: Vec<_> = (1..=900)
            .map(|n| {
                group(
                    &format!("w-{n}"),
                    &[
                        Action::State(AdminState::Maint),
                        address(n),
                        Action::State(AdminState::Ready),
                    ],
                )
            })
            .collect();
        let before = haproxy.info().await.number("CumReq");
        let changes = socket.change(&groups).await;
        assert!(
            changes.iter().all(|change| *change == Change::Done),
            "{version:?} {changes:?}"
        );
        let after = haproxy.info().await.number("CumReq");
        assert!(after - before < 20, "{} connections", after - before);
        eventually("every row shows it", PATIENCE, async || {
            let rows = rows(&socket).await;
            let is_done = |row: &&ServerRow, n: u32| row.port == n && row.admin.is_ready();
            let missing: Vec<_> = (1..=900)
                .zip(&rows)
                .filter(|(n, row)| !is_done(row, *n))
                .collect();
            if missing.is_empty() && rows.len() >= 900 {
                Ok(())
            } else {
                Err(format!("{missing:?}"))
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_socket_of_level_user_reads_and_changes_nothing() {
    let haproxy = Haproxy::start(Version::V28, Config::new(SLOTS)).await;
    let socket = Socket::new(haproxy.user_socket());
    show_info::read(&socket.ask("show info").await.unwrap()).unwrap();
    stat_csv::read(&socket.ask("show stat web 4 -1").await.unwrap()).unwrap();
    assert!(matches!(
        socket.ask("show sess").await,
        Err(SocketError::Denied { .. })
    ));
    let changes = socket
        .change(&[group("w-1", &[Action::State(AdminState::Ready)])])
        .await;
    assert!(
        matches!(&changes[0], Change::Refused(why) if why.contains("Permission denied")),
        "{changes:?}"
    );
}

#[tokio::test]
async fn through_the_master() {
    for version in Version::ALL {
        let haproxy = Haproxy::start(version, Config::new(SLOTS).master_worker()).await;
        let master = Master::new(haproxy.dir().join("master.sock"));
        let processes = master.processes().await.unwrap();
        assert_eq!(
            processes
                .iter()
                .filter(|process| process.kind == ProcessKind::Worker)
                .count(),
            1
        );
        let worker = master.current_worker().await.unwrap();
        let info = show_info::read(&worker.ask("show info").await.unwrap()).unwrap();
        assert!(processes.iter().any(|process| process.pid == info.pid));
        let groups = [
            group("w-1", &[address(8080), Action::State(AdminState::Ready)]),
            group("nobody", &[Action::State(AdminState::Ready)]),
            group("w-2", &[address(8081), Action::State(AdminState::Drain)]),
        ];
        let changes = worker.change(&groups).await;
        assert!(
            matches!(
                &changes[..],
                [Change::Done, Change::Refused(_), Change::Done]
            ),
            "{version:?} {changes:?}"
        );
        assert_eq!(rows(&worker).await[0].port, 8080);
        let gone = Socket::worker(master.path(), 999_999);
        assert!(
            gone.change(&groups)
                .await
                .iter()
                .all(|change| matches!(change, Change::Unknown(_)))
        );
    }
}
