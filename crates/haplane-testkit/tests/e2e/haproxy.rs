//! HAProxy starts, answers, reloads, restarts and ends under the kit's hands.

use haplane_testkit::haproxy::{Config, Haproxy, Version, one_command};
use haplane_testkit::ports::Port;

fn one_server(weight: u32) -> Config {
    with_defaults(weight, "")
}

fn with_defaults(weight: u32, defaults: &str) -> Config {
    Config::new(&format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n {defaults}\n\
         backend web\n server a 127.0.0.1:9 weight {weight}\n server b 127.0.0.1:9\n"
    ))
}

#[tokio::test]
async fn a_drain_by_socket_is_lost_by_a_reload_and_by_a_restart() {
    for version in Version::ALL {
        let mut haproxy = Haproxy::start(version, one_server(10)).await;
        assert_eq!(haproxy.command("set server web/a state drain").await, "\n");
        assert_eq!(haproxy.server("web/a").await.number("srv_admin_state"), 8);
        assert_eq!(haproxy.stat("web/a").await.get("status"), "DRAIN");

        let first = haproxy.pid().await;
        haproxy.reload_with(one_server(20)).await;
        assert_ne!(haproxy.pid().await, first);
        let row = haproxy.server("web/a").await;
        assert_eq!(
            (row.number("srv_admin_state"), row.number("srv_iweight")),
            (0, 20)
        );

        haproxy.command("set server web/a state maint").await;
        haproxy.restart().await;
        assert_eq!(haproxy.server("web/a").await.number("srv_admin_state"), 0);
    }
}

#[tokio::test]
async fn a_state_file_carries_a_drain_over_a_reload() {
    for version in Version::ALL {
        let config = with_defaults(10, "load-server-state-from-file global")
            .global("server-state-file {dir}/state");
        let mut haproxy = Haproxy::start(version, config).await;
        haproxy.command("set server web/a state drain").await;
        haproxy.save_state("state").await;
        haproxy.reload().await;
        assert_eq!(haproxy.server("web/a").await.number("srv_admin_state"), 8);
    }
}

#[tokio::test]
async fn a_master_reloads_its_worker() {
    for version in Version::ALL {
        let mut haproxy = Haproxy::start(version, one_server(10).master_worker()).await;
        let first = haproxy.pid().await;
        haproxy.reload_with(one_server(30).master_worker()).await;
        assert_ne!(haproxy.pid().await, first);
        assert_eq!(haproxy.server("web/a").await.number("srv_iweight"), 30);
        let worker = haproxy.pid().await;
        drop(haproxy);
        // A zombie that nobody has collected yet is as good as gone.
        let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
        assert!(
            status.is_empty() || status.contains("State:\tZ"),
            "the worker outlived its master: {status}"
        );
    }
}

#[tokio::test]
async fn a_user_level_socket_reads_and_never_writes() {
    let haproxy = Haproxy::start(Version::V28, one_server(10)).await;
    let state = one_command(&haproxy.user_socket(), "show servers state")
        .await
        .unwrap();
    assert!(state.contains(" web "), "{state}");
    let refused = one_command(&haproxy.user_socket(), "set server web/a state drain")
        .await
        .unwrap();
    assert!(refused.contains("Permission denied"), "{refused}");
}

#[test]
fn a_wrong_configuration_is_refused_with_haproxys_words() {
    for version in Version::ALL {
        Haproxy::check(version, &one_server(10)).unwrap();
        let refused = Haproxy::check(
            version,
            &Config::new("backend web\n server a nonsense:x:y\n"),
        )
        .unwrap_err();
        assert!(refused.contains("server"), "{refused}");
    }
}

#[test]
fn reserved_ports_differ_and_are_free() {
    let ports: Vec<_> = (0..50).map(|_| Port::reserve()).collect();
    let mut numbers: Vec<_> = ports.iter().map(Port::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ports.len());
    let _listening: Vec<_> = ports.iter().map(Port::listen).collect();
}
