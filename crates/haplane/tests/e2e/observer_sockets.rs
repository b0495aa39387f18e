//! Sockets that hang, are closed, forbidden or talk garbage; several at once; reloads.

use std::path::Path;
use std::time::{Duration, Instant};

use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};

use crate::agent_process::PATIENCE;
use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};
use crate::observer_site::{SOON, Site};

/// One row that asks.
fn one_row(site: &Site, origin: &Origin) -> String {
    format!(
        "{DEFAULTS}
backend web
    server a {} weight 100 {}
",
        origin.address(),
        enrolled(site.agent.checks(), "web/a canary")
    )
}

/// A socket that says `text` to everybody, and then hangs or closes.
fn speaking(path: &Path, text: String, closes: bool) {
    let listener = UnixListener::bind(path).expect("a socket");
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut line = [0; 4096];
            let _asked = stream.read(&mut line).await;
            stream.write_all(text.as_bytes()).await.ok();
            if !closes {
                kept.push(stream);
            }
        }
    });
}

#[tokio::test]
async fn bad_sockets_are_named_and_delay_nobody() {
    let bad = [
        "absent", "closed", "garbage", "denied", "cut", "hangs", "half",
    ];
    let sockets = [&["good"], &bad[..]].concat();
    let site = Site::start(&sockets, &[]).await;
    let origin = Origin::start("o");
    let config = Config::new(&one_row(&site, &origin)).global(AT_ONCE);
    let haproxy = Haproxy::start(Version::V28, config).await;
    let info = haproxy.command("show info").await;
    let half = info.replace("\n\n", "\n\n1\n# be_id be_name\n");
    drop(UnixListener::bind(site.path("closed")).unwrap());
    speaking(
        &site.path("garbage"),
        "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(),
        true,
    );
    speaking(
        &site.path("denied"),
        "Permission denied\n\n".to_owned(),
        true,
    );
    speaking(
        &site.path("cut"),
        info.clone() + "1\n# be_id be_name srv_id\n2 web",
        true,
    );
    speaking(&site.path("hangs"), String::new(), false);
    speaking(&site.path("half"), half, false);
    site.look_at("good", &haproxy);

    for (name, kind) in [
        ("absent", "absent"),
        ("closed", "refused"),
        ("garbage", "garbage"),
        ("denied", "denied"),
        ("cut", "garbage"),
        ("hangs", "hung"),
        ("half", "hung"),
    ] {
        let one = site.socket_is(name, Some(kind)).await;
        let path = site.path(name).display().to_string();
        let error = one["error"].as_str().unwrap();
        assert!(error.contains(&path), "{error}");
        assert_eq!(one["pid"], Value::Null);
    }
    // The good one is looked at as if it were alone.
    site.socket_is("good", None).await;
    let mut last = (Value::Null, Instant::now());
    throughout(
        "a look every two seconds",
        Duration::from_secs(7),
        async || {
            let looked = site.socket_is("good", None).await["looked_at"].clone();
            if looked != last.0 {
                last = (looked, Instant::now());
            }
            let ago = last.1.elapsed();
            if ago < Duration::from_secs(3) {
                Ok(())
            } else {
                Err(ago)
            }
        },
    )
    .await;
    // A row could be on any of those that were never seen: nobody may call it converged.
    let row = site
        .row_is("web/a", "unobserved", &["HAProxy cannot be looked at"])
        .await;
    assert_eq!(row["observed"]["admin"], "ready");
}

#[tokio::test]
async fn a_haproxy_that_hangs_touches_neither_the_responder_nor_another() {
    let site = Site::start(&["one", "two"], &[]).await;
    let origin = Origin::start("o");
    let config = Config::new(&one_row(&site, &origin)).global(AT_ONCE);
    let mut one = Haproxy::start(Version::V28, config.clone()).await;
    let two = Haproxy::start(Version::V26, config).await;
    site.look_at("one", &one);
    site.look_at("two", &two);
    let both = site.row_is("web/a", "converged", &[]).await;
    eventually("both show the row", SOON, async || {
        let row = site.row("web/a").await.unwrap();
        let shown = row["observed_by"].as_array().map(Vec::len);
        if shown == Some(2) { Ok(()) } else { Err(row) }
    })
    .await;
    assert_eq!(both["observed"]["admin"], "ready");

    one.process().freeze().await;
    site.socket_is("one", Some("hung")).await;
    throughout("answers at once", Duration::from_secs(3), async || {
        let start = Instant::now();
        let line = site
            .agent
            .ask("web/b")
            .await
            .map_err(|error| error.to_string())?;
        let took = start.elapsed();
        if line == "ready 100%" && took < Duration::from_millis(500) {
            Ok(())
        } else {
            Err(format!("{line} after {took:?}"))
        }
    })
    .await;
    site.set("canary", "drain");
    eventually("the other one is seen to drain", PATIENCE, async || {
        let row = site.row("web/a").await.unwrap();
        let by = row["observed_by"].as_array();
        let is_seen = row["observed"]["admin"] == "drain" && by.is_none();
        if is_seen && row["verdict"] == "unobserved" {
            Ok(())
        } else {
            Err(row)
        }
    })
    .await;
    one.process().thaw();
    site.socket_is("one", None).await;
    site.row_is("web/a", "converged", &[]).await;
}

#[tokio::test]
async fn of_several_haproxy_the_one_that_differs_is_told() {
    let site = Site::start(&["one", "two"], &[]).await;
    let origin = Origin::start("o");
    let config = Config::new(&one_row(&site, &origin)).global(AT_ONCE);
    let one = Haproxy::start(Version::V28, config.clone()).await;
    let two = Haproxy::start(Version::V28, config).await;
    site.look_at("one", &one);
    site.look_at("two", &two);
    site.row_is("web/a", "converged", &[]).await;
    two.command("disable agent web/a; set server web/a state maint")
        .await;
    // The other HAProxy goes on asking for the row, so the row is not silent.
    let row = site
        .row_is(
            "web/a",
            "diverged",
            &["agent check is disabled", "keeps it in maint"],
        )
        .await;
    assert_eq!(row["observed"]["pid"], two.pid().await);
    let by = row["observed_by"].as_array().unwrap();
    let verdict = |socket: &str| {
        let socket = site.path(socket).display().to_string();
        by.iter().find(|one| one["socket"] == *socket).unwrap()["verdict"].clone()
    };
    assert_eq!(
        (verdict("one"), verdict("two")),
        ("converged".into(), "diverged".into())
    );
}

#[tokio::test]
async fn a_reload_is_a_new_process_and_old_workers_are_counted() {
    for version in Version::ALL {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let master = folder.path().join("m");
        let site = Site::start(
            &["s"],
            &["--haproxy-master-socket", master.to_str().unwrap()],
        )
        .await;
        let origin = Origin::start("o");
        let frontend = Port::reserve();
        let sections = |extra: &str| {
            format!(
                "{DEFAULTS}
listen web
    mode tcp
    bind 127.0.0.1:{frontend}
    timeout client 60s
    timeout server 60s
    server a {} weight 100 {}
    {extra}
",
                origin.address(),
                enrolled(site.agent.checks(), "web/a canary")
            )
        };
        let removed = format!(
            "server removed {} backup {}",
            origin.address(),
            enrolled(site.agent.checks(), "web/removed")
        );
        let config = |extra: &str| {
            Config::new(&sections(extra))
                .global(AT_ONCE)
                .master_worker()
        };
        let mut haproxy = Haproxy::start(version, config(&removed)).await;
        site.look_at("s", &haproxy);
        std::os::unix::fs::symlink(haproxy.dir().join("master.sock"), &master).unwrap();
        site.row_is("web/removed", "converged", &[]).await;
        let mut held = TcpStream::connect(frontend.address()).await.unwrap();
        held.write_all(b"G").await.unwrap();
        eventually("a session", SOON, async || {
            let stat = haproxy.stat("web/a").await;
            if stat.number("scur") == 1 {
                Ok(())
            } else {
                Err(stat)
            }
        })
        .await;

        let before = haproxy.pid().await;
        haproxy.reload_with(config("")).await;
        site.counts("haplane_haproxy_restarts_seen_total", 1.0)
            .await;
        assert_ne!(site.socket_is("s", None).await["pid"], before);
        site.row_is("web/a", "converged", &[]).await;
        eventually("the old worker's session", PATIENCE, async || {
            let node = site.agent.json("/v1/node").await;
            let old = &node["haproxy_master"]["old_workers"][0];
            if old["pid"] == before && old["sessions"] == 1 {
                Ok(())
            } else {
                Err(node)
            }
        })
        .await;
        assert_eq!(site.row("web/a").await.unwrap()["old_sessions"], 1);
        drop(held);
        eventually("no old worker", PATIENCE, async || {
            let row = site.row("web/a").await.unwrap();
            if row["old_sessions"] == 0 {
                Ok(())
            } else {
                Err(row)
            }
        })
        .await;
        // It asks no more and HAProxy does not have it: nobody waits for it.
        eventually(
            "the removed row is forgotten",
            PATIENCE,
            async || match site.row("web/removed").await {
                None => Ok(()),
                Some(row) => Err(row),
            },
        )
        .await;
    }
}
