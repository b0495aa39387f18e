//! Sources that fail, shrink, come back, and lie.

use std::fmt::Write as _;
use std::time::Duration;

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::Version;
use haplane_testkit::origin::Origin;
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Slots, Stage, origins, refs};

async fn held(stage: &Stage, reason: &str) -> Value {
    eventually("the list is held", PATIENCE, || async {
        let pool = stage.pool().await;
        if pool["held"]["reason"] == reason {
            Ok(pool["held"].clone())
        } else {
            Err(pool["held"].clone())
        }
    })
    .await
}

async fn stays(stage: &Stage, count: usize) {
    throughout("nobody is removed", Duration::from_millis(1200), || async {
        let seen = stage.in_rotation().await;
        if seen.len() == count {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

#[tokio::test]
async fn a_host_list_that_goes_wrong() {
    let mut stage = Stage::new(Version::V28, Slots::plain(8)).await;
    let origins = origins(4);
    stage.list(&refs(&origins));
    stage.start("", "");
    stage.serves(&refs(&origins)).await;

    std::fs::write(stage.hosts_file(), "").unwrap();
    held(&stage, "failed").await;
    stage.write_hosts("# nobody\n\n");
    let why = held(&stage, "failed").await;
    assert_eq!((&why["had"], &why["has"]), (&json!(4), &json!(4)));
    stays(&stage, 4).await;
    std::fs::remove_file(stage.hosts_file()).unwrap();
    held(&stage, "failed").await;
    stays(&stage, 4).await;
    stage.write_hosts("[]");
    assert_eq!(held(&stage, "empty").await["has"], 0);
    stays(&stage, 4).await;

    // Good lines are served, bad ones reported by their number.
    let mut text =
        String::from("10.0.0.1:70000 id=port\n10.0.0.2:0\nweb.example:80\n\n[::1]:9 id=six\n");
    for origin in &origins {
        writeln!(text, "{}   id={}", origin.address(), origin.name()).unwrap();
    }
    writeln!(text, "{} id=twin", origins[0].address()).unwrap();
    stage.write_hosts(&text);
    let pool = eventually("the good lines are served", PATIENCE, || async {
        let pool = stage.pool().await;
        if stage.in_rotation().await.len() == 5 && pool["held"].is_null() {
            Ok(pool)
        } else {
            Err(pool)
        }
    })
    .await;
    let refused: Vec<_> = pool["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["number"].as_u64().unwrap())
        .collect();
    assert_eq!(refused, [1, 2, 3]);
    assert!(
        pool["duplicates"][0]
            .as_str()
            .unwrap()
            .starts_with("line 10, twin at "),
        "{pool}"
    );

    // Of a source that cannot be read nothing is told but that.
    std::fs::remove_file(stage.hosts_file()).unwrap();
    held(&stage, "failed").await;
    let pool = stage.pool().await;
    assert_eq!(
        (&pool["refused"], &pool["duplicates"]),
        (&json!([]), &json!([]))
    );
    stage.write_hosts(&text);
    eventually("it is accepted again", PATIENCE, || async {
        let pool = stage.pool().await;
        if pool["held"].is_null() {
            Ok(())
        } else {
            Err(pool)
        }
    })
    .await;

    // Too much gone at once: held, new ones served meanwhile, until it is confirmed.
    stage.list(&refs(&origins[..1]));
    let change = held(&stage, "shrunken").await;
    assert_eq!((&change["had"], &change["has"]), (&json!(5), &json!(1)));
    let newcomer = Origin::start("new");
    stage.list(&[&origins[0], &newcomer]);
    eventually("the new instance is served", PATIENCE, || async {
        let seen = stage.in_rotation().await;
        if seen.contains(&newcomer.address().to_string()) && seen.len() == 6 {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    assert_eq!(
        stage
            .post("/v1/confirm", r#"{"pool": "web", "has": 1}"#)
            .await
            .0,
        409
    );
    assert_eq!(
        stage.post("/v1/confirm", r#"{"pool": "nobody"}"#).await.0,
        404
    );
    let (status, text) = stage
        .post("/v1/confirm", r#"{"pool": "web", "has": 2}"#)
        .await;
    assert_eq!(
        (status, serde_json::from_str(&text).unwrap()),
        (200, json!({"pool": "web", "had": 5, "has": 2}))
    );
    stage.serves(&[&origins[0], &newcomer]).await;
    stage.stop().await;
}

/// While a list is held, an instance that HAProxy finds down gives its slot to one that needs it.
#[tokio::test]
async fn the_dead_give_way_while_a_list_is_held() {
    let slots = Slots {
        count: 4,
        check: "check inter 100ms rise 1 fall 1",
        agent: None,
    };
    let mut stage = Stage::new(Version::V28, slots).await;
    let mut origins = origins(5);
    stage.list(&refs(&origins[..4]));
    stage.start("", "");
    stage.serves_up(&refs(&origins[..4])).await;
    origins[3].down().await;
    stage.list(&[&origins[4]]);
    held(&stage, "shrunken").await;
    stage
        .serves(&[&origins[0], &origins[1], &origins[2], &origins[4]])
        .await;
    stays(&stage, 4).await;
    stage.stop().await;
}

async fn register(consul: &Consul, origin: &Origin) {
    let address = origin.address();
    let definition = json!({
        "ID": origin.name(), "Name": "webapp", "Address": address.ip().to_string(), "Port": address.port(),
        "Meta": {"zone": "a"}, "Check": {"TTL": "1h", "Status": "passing"},
    });
    consul.register(&definition).await;
}

fn pool() -> &'static str {
    "source = \"consul:webapp\"\nzone = \"a\"\nsettle = \"4s\""
}

#[tokio::test]
async fn consul_that_dies_and_comes_back_empty() {
    let mut consul = Consul::start(Options::new()).await;
    let mut stage = Stage::new(Version::V28, Slots::plain(8)).await;
    let origins = origins(4);
    for origin in &origins {
        register(&consul, origin).await;
    }
    stage.start(&format!("consul = \"{}\"", consul.url()), pool());
    stage.serves(&refs(&origins)).await;
    consul.deregister("i3").await;
    stage.serves(&refs(&origins[..3])).await;

    consul.kill();
    held(&stage, "failed").await;
    stays(&stage, 3).await;
    consul.restart_empty().await;
    held(&stage, "empty").await;
    stays(&stage, 3).await;
    // They register again one by one: not a scale-down.
    for origin in &origins[..3] {
        register(&consul, origin).await;
        stays(&stage, 3).await;
    }
    eventually("the list is trusted again", PATIENCE, || async {
        let pool = stage.pool().await;
        if pool["held"].is_null() {
            Ok(())
        } else {
            Err(pool)
        }
    })
    .await;
    register(&consul, &origins[3]).await;
    stage.serves(&refs(&origins)).await;
    stage.stop().await;
}

#[tokio::test]
async fn a_token_that_loses_its_permission() {
    let consul = Consul::start(Options::new().acl()).await;
    let mut stage = Stage::new(Version::V28, Slots::plain(4)).await;
    let origins = origins(3);
    for origin in &origins {
        register(&consul, origin).await;
    }
    consul
        .set_policy(
            "discover",
            "service_prefix \"\" { policy = \"read\" }\nnode_prefix \"\" { policy = \"read\" }",
        )
        .await;
    let token = consul.create_token(&["discover"]).await;
    let file = stage.dir.path().join("token");
    std::fs::write(&file, &token.secret).unwrap();
    let text = format!(
        "{}\n[consul]\ntoken_file = \"{}\"\n",
        stage.toml(&format!("consul = \"{}\"", consul.url()), pool()),
        file.display()
    );
    stage.start_with(&text);
    stage.serves(&refs(&origins)).await;
    consul.set_token_policies(&token, &[]).await;
    // Denied reads as an empty list: held, for an operator to look at.
    register(&consul, &origins[0]).await;
    consul.deregister("i2").await;
    held(&stage, "empty").await;
    stays(&stage, 3).await;
    // A permission that is back changes no index, so it wakes no query: it is noticed all the same, long before the
    // next change in Consul or the end of a query's wait. What is there now (one is gone) is looked at for a moment.
    consul.set_token_policies(&token, &["discover"]).await;
    assert_eq!(held(&stage, "settling").await["has"], 2);
    stage.stop().await;
}

/// Who comes and goes waits until it stays; the others are served as ever.
#[tokio::test]
async fn a_flapping_instance_is_damped() {
    let mut stage = Stage::new(Version::V28, Slots::plain(8)).await;
    let origins = origins(4);
    let (steady, flapping) = (refs(&origins[..3]), &origins[3]);
    let all: Vec<_> = steady.iter().copied().chain([flapping]).collect();
    stage.list(&steady);
    stage.start(
        "",
        "flap_times = 2\nflap_window = \"1m\"\nflap_stay = \"1s\"",
    );
    stage.serves(&steady).await;
    stage.list(&all);
    stage.serves(&all).await;
    stage.list(&steady);
    stage.serves(&steady).await;
    stage.list(&all);
    let pool = eventually("it is damped", PATIENCE, || async {
        let pool = stage.pool().await;
        if pool["flapping"][0]["instance"] == "i3" {
            Ok(pool)
        } else {
            Err(pool)
        }
    })
    .await;
    let transitions = pool["flapping"][0]["transitions"].as_array().unwrap();
    let came: Vec<_> = transitions
        .iter()
        .map(|flap| flap["came"].as_bool().unwrap())
        .collect();
    assert_eq!(came, [true, false, true]);
    assert_eq!(stage.in_rotation().await.len(), 3);
    stage.serves(&all).await;
    stage.stop().await;
}
