//! `haplane seed` across real reloads, under load.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haplane_haproxy::server_state::{Fate, StateFile};
use haplane_testkit::consul::{Consul, MANAGEMENT_TOKEN, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::agent_process::Launch;
use crate::command::Haplane;

/// A server that counts who comes.
struct Origin {
    port: u16,
    served: Arc<AtomicUsize>,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                drop(connection.write_all(b"here\n").await);
            }
        });
        Self { port, served }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// An agent that answers what its table says for the first word.
async fn responder(answers: &[(&str, &str)]) -> u16 {
    let answers: BTreeMap<String, String> = answers
        .iter()
        .map(|(word, answer)| ((*word).to_owned(), format!("{answer}\n")))
        .collect();
    let answers = Arc::new(Mutex::new(answers));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut line = vec![0; 4096];
            let length = connection.read(&mut line).await.unwrap_or(0);
            let text = String::from_utf8_lossy(&line[..length]).into_owned();
            let word = text
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned();
            let answer = answers
                .lock()
                .unwrap()
                .get(&word)
                .cloned()
                .unwrap_or_default();
            drop(connection.write_all(answer.as_bytes()).await);
        }
    });
    port
}

/// Clients that never stop asking; one that gets no answer is counted as an error.
struct Traffic {
    stop: Arc<AtomicBool>,
    clients: Vec<tokio::task::JoinHandle<usize>>,
}

impl Traffic {
    fn start(socket: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..4)
            .map(|_| tokio::spawn(client(socket.to_owned(), stop.clone())))
            .collect();
        Self { stop, clients }
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut errors = 0;
        for client in self.clients {
            errors += client.await.unwrap();
        }
        errors
    }
}

async fn client(socket: std::path::PathBuf, stop: Arc<AtomicBool>) -> usize {
    let mut errors = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut answer = String::new();
        let asked = async {
            let mut connection = UnixStream::connect(&socket).await?;
            connection.read_to_string(&mut answer).await
        };
        if asked.await.is_err() || answer != "here\n" {
            errors += 1;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    errors
}

struct Stage {
    store: tempfile::TempDir,
    a: Origin,
    b: Origin,
    agent: u16,
}

impl Stage {
    async fn set() -> Self {
        let agent = responder(&[("web/a", "drain"), ("web/b", "ready 100%")]).await;
        Self {
            store: tempfile::tempdir().unwrap(),
            a: Origin::start().await,
            b: Origin::start().await,
            agent,
        }
    }

    /// `spare` backends first, so that the rows of `web` are the last to be asked.
    fn config(&self, weight: u16) -> Config {
        let agent = self.agent;
        let spare: String = (0..20)
            .map(|number| {
                format!(
                    " server s{number} 127.0.0.1:1 agent-check agent-send \"spare/s{number}\\n\"\n"
                )
            })
            .collect::<Vec<_>>()
            .concat();
        Config::new(&format!(
            "defaults\n mode tcp\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n \
             load-server-state-from-file global\n \
             default-server weight {weight} agent-addr 127.0.0.1 agent-port {agent} agent-inter 2s\n\
             frontend f\n bind unix@{{dir}}/front.sock\n default_backend web\n\
             backend spare\n{spare}\
             backend web\n server a 127.0.0.1:{} agent-check agent-send \"web/a canary\\n\"\n \
             server b 127.0.0.1:{} agent-check agent-send \"web/b\\n\"\n",
            self.a.port, self.b.port
        ))
        .global("server-state-file {dir}/seed")
    }

    fn haplane(&self) -> Haplane {
        Haplane::on(format!("dir:{}", self.store.path().display()))
    }

    async fn drained(&self, haproxy: &Haproxy) {
        eventually(
            "web/a drained by its agent",
            Duration::from_secs(10),
            async || {
                let admin = haproxy
                    .server("web/a")
                    .await
                    .get("srv_admin_state")
                    .to_owned();
                if admin == "8" { Ok(()) } else { Err(admin) }
            },
        )
        .await;
    }

    /// How many requests the drained row gets until its agent has spoken again.
    async fn reload_under_load(&self, haproxy: &mut Haproxy, weight: u16) -> usize {
        let traffic = Traffic::start(&haproxy.dir().join("front.sock"));
        let before = self.b.served();
        eventually("traffic", Duration::from_secs(5), async || {
            let more = self.b.served() - before;
            if more > 20 { Ok(()) } else { Err(more) }
        })
        .await;
        let wrongly_before = self.a.served();
        haproxy.reload_with(self.config(weight)).await;
        self.drained(haproxy).await;
        let wrongly = self.a.served() - wrongly_before;
        traffic.stop().await;
        wrongly
    }
}

fn seed_words(haproxy: &Haproxy) -> Vec<String> {
    let dir = haproxy.dir().display().to_string();
    [
        "seed",
        "-f",
        &format!("{dir}/haproxy.cfg"),
        "-o",
        &format!("{dir}/seed"),
        "--json",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn run(haplane: &Haplane, words: &[String], more: &[&str]) -> crate::command::Run {
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    haplane.run(&words)
}

fn rows_of(haproxy: &Haproxy) -> Vec<String> {
    let file = StateFile::read(&std::fs::read(haproxy.dir().join("seed")).unwrap());
    assert_eq!(file.fate(), &Fate::Loaded);
    assert!(file.is_seed());
    file.rows()
        .iter()
        .map(|row| format!("{}/{}", row.backend, row.server))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_reaches_a_drained_row_across_a_reload() {
    let stage = Stage::set().await;
    stage.haplane().run(&["init"]).exits(0);
    stage
        .haplane()
        .run(&["set", "canary", "drain", "--force"])
        .exits(0);
    let mut haproxy = Haproxy::start(Version::V28, stage.config(100)).await;
    stage.drained(&haproxy).await;

    // Without a seed the new process forgets the drain until it asks: the test would notice.
    let forgotten = stage.reload_under_load(&mut haproxy, 100).await;
    assert!(
        forgotten > 0,
        "a reload without a seed should have sent requests to the drained row"
    );

    let run = run(&stage.haplane(), &seed_words(&haproxy), &[]).exits(0);
    let document = run.json();
    assert_eq!(document["source"], "store");
    assert_eq!(document["rows"][0]["row"], "web/a");
    assert_eq!(document["rows"][0]["admin"], "drain");
    assert_eq!(rows_of(&haproxy), ["web/a"]);
    // The weight changes in the same reload and is honoured.
    assert_eq!(stage.reload_under_load(&mut haproxy, 50).await, 0);
    let row = haproxy.server("web/a").await;
    assert_eq!(row.get("srv_iweight"), "50");
    assert_eq!(row.get("srv_port"), stage.a.port.to_string());
}

#[tokio::test]
async fn the_running_process_is_the_next_best_and_nothing_old_is_left() {
    let stage = Stage::set().await;
    let haproxy = Haproxy::start(Version::V28, stage.config(100)).await;
    stage.drained(&haproxy).await;
    let old = "1\n0 web 0 b - 2 8 100 100 0 0 0 0 6 22 0 0 - 1 -\n";
    std::fs::write(haproxy.dir().join("seed"), old).unwrap();
    // The folder has no marker: nobody can say what is desired. The process can say what it has.
    let words = seed_words(&haproxy);
    let socket = haproxy.user_socket();
    let nobody = ["--agent", "127.0.0.1:1"];
    let told = run(
        &stage.haplane(),
        &words,
        &[
            "--agent",
            "127.0.0.1:1",
            "--socket",
            socket.to_str().unwrap(),
        ],
    )
    .exits(5);
    assert_eq!(told.json()["source"], "process");
    assert!(
        told.stderr.contains("marker") || told.stderr.contains("store"),
        "{}",
        told.stderr
    );
    assert_eq!(rows_of(&haproxy), ["web/a"]);

    std::fs::write(haproxy.dir().join("seed"), old).unwrap();
    let told = run(&stage.haplane(), &words, &nobody).exits(5);
    assert_eq!(told.json()["source"], "nothing");
    assert!(rows_of(&haproxy).is_empty());

    // Not even a configuration that cannot be read leaves the old file.
    std::fs::write(haproxy.dir().join("seed"), old).unwrap();
    let mut broken = words.clone();
    broken[2] = "/nonexistent".to_owned();
    run(&stage.haplane(), &broken, &nobody).exits(2);
    assert!(rows_of(&haproxy).is_empty());
}

/// The page that an agent serves, with its store away.
#[tokio::test]
async fn the_agent_stands_in_for_the_store() {
    let stage = Stage::set().await;
    let haproxy = Haproxy::start(Version::V28, stage.config(100)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent = listener.local_addr().unwrap().to_string();
    let state = Arc::new(Mutex::new(
        r#"{"index":null,"synced_at":null,"keys":{},"invalid":{}}"#.to_owned(),
    ));
    let page = state.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let body = page.lock().unwrap().clone();
            drop(serve(connection, &body).await);
        }
    });
    let words = seed_words(&haproxy);
    let ask = || {
        let (haplane, words, agent) = (stage.haplane(), words.clone(), agent.clone());
        tokio::task::spawn_blocking(move || run(&haplane, &words, &["--agent", &agent]))
    };
    // An agent without a snapshot knows no more than we do.
    ask().await.unwrap().exits(5);
    *state.lock().unwrap() =
        r#"{"index":7,"synced_at":null,"keys":{"canary":"maint","web/b":"25%"},"invalid":{},"absent":true}"#
            .to_owned();
    let document = ask().await.unwrap().exits(0).json();
    assert_eq!(
        (&document["source"], &document["index"]),
        (&"agent".into(), &7.into())
    );
    assert_eq!(document["rows"][0]["admin"], "maint");
    assert_eq!(document["rows"][1]["weight"], 25);

    // What is wrong with our own configuration says nothing about HAProxy's state.
    let broken = stage.store.path().join(".broken.toml");
    std::fs::write(&broken, "unknown_key = 1\n").unwrap();
    let (haplane, mut more) = (stage.haplane(), vec!["--agent".to_owned(), agent.clone()]);
    more.extend(["--config".to_owned(), broken.display().to_string()]);
    let seeded = {
        let words = words.clone();
        tokio::task::spawn_blocking(move || {
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            run(&haplane, &words, &more)
        })
    };
    let document = seeded.await.unwrap().exits(2).json();
    assert_eq!(document["source"], "agent");
    assert_eq!(document["rows"][0]["admin"], "maint");
    assert_eq!(document["error"]["exit"], 2);

    // Neither is the agent of another store believed, nor one that cannot prove what it does not have.
    let whole = state.lock().unwrap().clone();
    let other = whole.replace("{\"index\"", "{\"store\":{\"kind\":\"consul\"},\"index\"");
    assert_ne!(whole, other);
    *state.lock().unwrap() = other;
    let told = ask().await.unwrap().exits(5);
    assert!(told.stderr.contains("another store"), "{}", told.stderr);
    let denied = "\"absent\":false,\"why\":\"denied_key\"";
    *state.lock().unwrap() = whole.replace("\"absent\":true", denied);
    let told = ask().await.unwrap().exits(5);
    assert!(told.stderr.contains("denies"), "{}", told.stderr);
    assert!(rows_of(&haproxy).is_empty());
}

async fn serve(mut connection: TcpStream, body: &str) -> std::io::Result<()> {
    let mut request = vec![0; 4096];
    let _length = connection.read(&mut request).await?;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(body.as_bytes()).await
}

/// A token that may read all but one key is not shown that key's drain.
#[tokio::test]
async fn a_key_that_the_token_may_not_read_makes_no_seed() {
    let consul = Consul::start(Options::new().acl()).await;
    let writer =
        Haplane::on(format!("consul:{}", consul.url())).with("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN);
    writer.run(&["init"]).exits(0);
    writer.run(&["set", "web/a", "drain", "--force"]).exits(0);
    let all = r#"key_prefix "haplane/state/" { policy = "read" }"#;
    let all_but_one = format!(r#"{all} key "haplane/state/web/a" {{ policy = "deny" }}"#);
    consul.set_policy("reader", &all_but_one).await;
    let token = consul.create_token(&["reader"]).await;
    let reader =
        Haplane::on(format!("consul:{}", consul.url())).with("CONSUL_HTTP_TOKEN", &token.secret);

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text =
        "backend web\n  server a 127.0.0.1:1 agent-check agent-port 9777 agent-send \"web/a\\n\"\n";
    std::fs::write(path("haproxy.cfg"), text).unwrap();
    let words = [
        "seed",
        "-f",
        &path("haproxy.cfg"),
        "-o",
        &path("seed"),
        "--agent",
        "127.0.0.1:1",
    ];
    let denied = reader.run(&words).exits(5);
    assert!(
        denied.stderr.contains("denies the key web/a"),
        "{denied:#?}"
    );
    let seed = std::fs::read_to_string(path("seed")).unwrap();
    assert!(!seed.contains("web"), "{seed}");

    // Nor does an agent with the same token stand in, though no row has asked it yet.
    let agent = Launch::on_consul(&consul)
        .with("CONSUL_HTTP_TOKEN", &token.secret)
        .ready()
        .await;
    let http = agent.http().to_string();
    let mut asking = words;
    asking[6] = &http;
    let denied = reader.run(&asking).exits(5);
    assert!(denied.stderr.contains("its store denies it"), "{denied:#?}");

    consul.set_policy("reader", all).await;
    reader.run(&words).exits(0);
    let seed = std::fs::read_to_string(path("seed")).unwrap();
    assert!(seed.contains(" web "), "{seed}");

    // A person may have written a key as it is, where haplane would not.
    let all_but_raw = format!(r#"{all} key "haplane/state/web/a:1" {{ policy = "deny" }}"#);
    consul.set_policy("reader", &all_but_raw).await;
    let text = text.replace("web/a", "web/a:1");
    std::fs::write(path("haproxy.cfg"), text).unwrap();
    let denied = reader.run(&words).exits(5).stderr;
    assert!(denied.contains("denies the key web/a:1"), "{denied}");
}
