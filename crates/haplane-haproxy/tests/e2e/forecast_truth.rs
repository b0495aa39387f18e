//! The forecast: what we say a reload will make, against what it makes.

use haplane_haproxy::forecast::{Source, StateFiles, forecast};
use haplane_haproxy::server_state::{Fate, StateFile, read_answer};
use haplane_testkit::haproxy::{Config, Haproxy, Version};

use crate::compare::{assert_same, row};
use crate::generate::{self, Generated};
use crate::row_parity::read;

const STATE: &str = "server-state-file {dir}/state";
const LOAD: &str = "  load-server-state-from-file global\n";

fn files(haproxy: &Haproxy) -> StateFiles {
    let global = std::fs::read(haproxy.dir().join("state"))
        .ok()
        .map(|bytes| StateFile::read(&bytes));
    StateFiles {
        global,
        ..StateFiles::default()
    }
}

/// What operators and agents do to a running process.
async fn meddle(haproxy: &Haproxy, generated: &Generated, rng: &mut fastrand::Rng) {
    for backend in &generated.backends {
        for server in &backend.servers {
            for name in server.rows() {
                let row = format!("{}/{name}", backend.name);
                let command = match rng.u8(0..12) {
                    0 | 1 => format!("set server {row} state drain"),
                    2 => format!("set server {row} state maint"),
                    3 => format!("set server {row} state ready"),
                    4 => format!(
                        "set server {row} addr 127.0.1.{} port {}",
                        rng.u8(1..9),
                        rng.u16(1..=65535)
                    ),
                    5 => format!("set server {row} weight {}", rng.u16(0..=256)),
                    6 => format!("set server {row} weight {}%", rng.u16(0..=200)),
                    7 => format!("disable agent {row}"),
                    8 => format!("disable health {row}"),
                    9 if server.port.is_some() => {
                        format!("set server {row} check-port {}", rng.u16(1..9))
                    }
                    10 => format!(
                        "set server {row} agent-addr 127.0.2.{} port {}",
                        rng.u8(1..9),
                        rng.u8(1..9)
                    ),
                    _ => continue,
                };
                haproxy.command(&command).await;
            }
        }
    }
}

fn change(generated: &mut Generated, rng: &mut fastrand::Rng) {
    for backend in &mut generated.backends {
        for server in &mut backend.servers {
            for _ in 0..rng.usize(0..3) {
                server.change(rng);
            }
        }
        if rng.bool() {
            backend.servers.reverse();
        }
    }
    // What is tracked may have been renamed: tracking goes on where it still leads somewhere.
    let names: Vec<String> = generated
        .backends
        .iter()
        .flat_map(|backend| {
            backend
                .servers
                .iter()
                .map(move |server| format!("{}/{}", backend.name, server.name))
        })
        .collect();
    for server in generated
        .backends
        .iter_mut()
        .flat_map(|backend| &mut backend.servers)
    {
        server.track = server.track.take().filter(|track| names.contains(track));
    }
}

#[tokio::test]
async fn generated_reloads() {
    let mut rows = 0;
    for seed in 0..crate::cases(24) {
        for version in Version::ALL {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut generated = generate::configuration(&mut rng);
            let old = Config::new(&generated.render(&mut rng, LOAD)).global(STATE);
            let mut haproxy = Haproxy::start(version, old).await;
            meddle(&haproxy, &generated, &mut rng).await;
            haproxy.save_state("state").await;
            change(&mut generated, &mut rng);
            haproxy
                .reload_with(Config::new(&generated.render(&mut rng, LOAD)).global(STATE))
                .await;
            let shown = read_answer(&haproxy.command("show servers state").await).unwrap();
            let state = std::fs::read_to_string(haproxy.dir().join("state")).unwrap();
            let what = format!("seed {seed} on {version:?}\n--- state\n{state}");
            rows += assert_same(&what, &read(&haproxy), &files(&haproxy), &shown);
        }
    }
    assert!(rows > 200, "{rows} rows compared");
}

/// The story of the third background document: a port changed in the configuration, the old one in the state file.
#[tokio::test]
async fn a_changed_port_loses_against_the_state_file() {
    for version in Version::ALL {
        let config = |port: u16| {
            let sections = format!(
                "defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n{LOAD}backend pages_https\n server web-pages-01 127.0.0.1:{port}\n"
            );
            Config::new(&sections).global(STATE)
        };
        let mut haproxy = Haproxy::start(version, config(1443)).await;
        haproxy.save_state("state").await;
        haproxy.reload_with(config(2443)).await;
        let forecasts = forecast(&read(&haproxy), &files(&haproxy));
        let told = row(&forecasts, "pages_https/web-pages-01");
        assert_eq!(
            (told.port.value, told.port.source),
            (1443, Source::StateFile)
        );
        assert_eq!(
            haproxy
                .server("pages_https/web-pages-01")
                .await
                .get("srv_port"),
            "1443"
        );
    }
}

/// Files with one thing wrong, or just unusual: HAProxy drops them, refuses a row, or takes it.
#[tokio::test]
async fn damaged_files() {
    const SECTIONS: &str = "defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n \
        load-server-state-from-file global\nbackend b\n server a 127.0.0.1:9001 weight 10\n \
        server c 127.0.0.1:9002 weight 10 disabled check inter 50s port 5 agent-check agent-port 6 agent-inter 50s\n";
    let row = "2 b 1 a - 2 8 10 10 0 0 0 0 6 22 0 0 - 9001 -\n";
    let other = "2 b 2 c - 2 4 7 10 0 0 0 0 6 22 0 0 - 9009 - 0 7 127.0.0.7 127.0.0.8 8\n";
    let good = format!("1\n# header\n{row}{other}");
    let mut texts = vec![
        good.clone(),
        String::new(),
        "1\n".to_owned(),
        good.replace('\n', "\r\n"),
        good.replacen('1', "2", 1),
        good.trim_end().to_owned(),
        good.replace(" 9001 -", " 9001"),
        good.replace(" 9001 -", " - -"),
        good.replace(" - 2 8 ", " - 2 9 "),
        good.replace(" - 2 8 ", " - 0 0 "),
        good.replace(" 0 7 127.0.0.7", " 0 x 127.0.0.7"),
        good.replace(" 127.0.0.8 8", " 127.0.0.8 8x"),
        good.replace("0 6 22 0 0 - 9009", "0 2 22 0 0 - 9009"),
        good.replace("0 6 22 0 0 - 9009", "0 6 18 0 0 - 9009"),
        format!("{good}{}", row.replace(" 8 ", " 1 ")),
        format!("{good}{}", other.replace(" c ", " unknown ")),
    ];
    texts.extend(
        (2..good.len())
            .step_by(17)
            .map(|end| good[..end].to_owned()),
    );
    for version in Version::ALL {
        for text in &texts {
            let config = Config::new(SECTIONS).global(STATE);
            let mut haproxy = Haproxy::start(version, config.clone()).await;
            std::fs::write(haproxy.dir().join("state"), text).unwrap();
            haproxy.restart().await;
            let shown = read_answer(&haproxy.command("show servers state").await).unwrap();
            assert_same(
                &format!("{text:?} on {version:?}"),
                &read(&haproxy),
                &files(&haproxy),
                &shown,
            );
            let fate = StateFile::read(text.as_bytes()).fate().clone();
            if fate == Fate::Empty {
                // 2.6 complains of an empty file, 2.8 mentions it.
                continue;
            }
            let dropped = matches!(fate, Fate::Dropped { .. });
            let log = haproxy.log();
            let complained =
                log.contains("corrupted global server state") || log.contains("Can't get version");
            assert_eq!(dropped, complained, "{text:?} on {version:?}: {log}");
        }
    }
}

/// Files of backends of their own, beside the global one.
#[tokio::test]
async fn local_files() {
    const SECTIONS: &str = "defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n \
        load-server-state-from-file local\nbackend own\n server a 127.0.0.1:9001\n server b 127.0.0.1:9002\n\
        backend named\n server-state-file-name elsewhere\n server a 127.0.0.1:9003\n\
        backend none\n load-server-state-from-file none\n server a 127.0.0.1:9004\n\
        backend global\n load-server-state-from-file global\n server a 127.0.0.1:9005\n\
        backend missing\n server a 127.0.0.1:9006\n\
        backend off\n disabled\n server a 127.0.0.1:9007\n";
    let row = |id: u8, name: &str, port: u16| {
        let (backend, server) = name.split_once('/').unwrap();
        format!("{id} {backend} 1 {server} - 2 8 1 1 0 0 0 0 6 22 0 0 - {port} -\n")
    };
    let all: String = ["own/a", "named/a", "none/a", "global/a", "off/a"]
        .map(|name| row(99, name, 80))
        .concat();
    let files = [
        // A wrong id is complained of and taken; another backend's row is left out.
        (
            "own",
            format!(
                "1\n{}{}{}",
                row(99, "own/a", 81),
                row(98, "named/a", 82),
                row(2, "own/gone", 83)
            ),
        ),
        ("elsewhere", format!("1\n{}", row(99, "named/a", 84))),
        ("global", format!("1\n{all}")),
        ("off", format!("1\n{}", row(99, "off/a", 85))),
    ];
    for version in Version::ALL {
        let config = Config::new(SECTIONS)
            .global("server-state-base {dir}/states\nserver-state-file global");
        let mut haproxy = Haproxy::start(version, config).await;
        let folder = haproxy.dir().join("states");
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in &files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        haproxy.restart().await;
        let parsed = read(&haproxy);
        let file = |name: &str| {
            std::fs::read(folder.join(name))
                .ok()
                .map(|bytes| StateFile::read(&bytes))
        };
        let local = parsed
            .backends()
            .iter()
            .filter_map(|backend| Some((backend.name.clone(), file(backend.local_state_file())?)))
            .collect();
        let state = StateFiles {
            global: file("global"),
            local,
        };
        let shown = read_answer(&haproxy.command("show servers state").await).unwrap();
        assert_same(&format!("{version:?}"), &parsed, &state, &shown);
        assert_eq!(haproxy.server("named/a").await.get("srv_port"), "84");
    }
}
