//! The fleet page of `haplane ui`, in a real browser, over two real agents.

use std::time::Duration;

use haplane_testkit::browser::{Browser, Scheme};
use haplane_testkit::eventually::eventually;
use haplane_testkit::ports::Port;
use haplane_testkit::process::{Process, Signal};

use crate::agent::{Agent, Folder};
use crate::node_page::picture;

#[tokio::test]
async fn the_fleet_page_shows_who_does_what_and_why() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agents = [
        Agent::start_as("lb-01", &haplane).await,
        Agent::start_as("lb-02", &haplane).await,
    ];
    let lines = ["web/a", "web/cny-b canary", "api/<b>c</b>"];
    let _asking: Vec<_> = agents.iter().map(|agent| agent.asked(&lines)).collect();
    let urls: Vec<_> = agents
        .iter()
        .map(|agent| agent.page().trim_end_matches('/').to_owned())
        .collect();
    let urls = urls.join(",");
    let port = Port::reserve();
    let log = tempfile::tempdir().unwrap();
    let listen = port.address().to_string();
    let command = haplane.command(&["ui", "--ui-listen", &listen, "--agents", &urls]);
    let mut ui = Process::spawn("haplane ui", command, &log.path().join("log"));
    eventually("the page is there", Duration::from_secs(10), async || {
        tokio::net::TcpStream::connect(port.address()).await
    })
    .await;

    let mut browser = Browser::start().await;
    browser.look_as(1200, 900, Scheme::Light).await;
    browser.goto(&format!("http://{listen}/")).await;
    browser
        .until("document.querySelector('#headline').innerText === '2 of 2 load balancers fresh, 3 of 3 rows as desired'")
        .await;

    // Live, with the reason as it was given.
    haplane
        .run(&["set", "canary", "drain", "--agents", &urls])
        .exits(0);
    haplane
        .run(&[
            "set",
            "api/<b>c</b>",
            "50%",
            "--reason",
            "<b>slow</b>",
            "--agents",
            &urls,
        ])
        .exits(0);
    browser
        .until("document.querySelectorAll('#rows tr').length === 2")
        .await;
    browser
        .until("document.querySelector('#keys').innerText.includes('<b>slow</b>')")
        .await;
    browser
        .until("document.querySelector('#log').innerText.includes('canary: absent → drain')")
        .await;
    assert_eq!(
        browser
            .value("document.querySelectorAll('main b').length")
            .await,
        0
    );

    // Why, one click away.
    browser.press("j").await;
    browser.press("Enter").await;
    browser
        .until("document.querySelectorAll('#why-nodes tr').length === 2")
        .await;
    let why = browser.text("#why").await;
    assert!(why.contains("It is to be drain"), "{why}");
    assert!(why.contains("lb-02"), "{why}");
    browser.picture(&picture("fleet-why")).await;
    browser
        .value("document.querySelector('#why').close()")
        .await;

    // What fits nothing says so, and a value that is none is a problem.
    let says = |id: &str, text: &str| {
        format!("document.querySelector('{id}').innerText.includes('{text}')")
    };
    browser.press("/").await;
    browser.write("nobody").await;
    browser
        .until(&says("#rows-note", "none of 3 fits \"nobody\""))
        .await;
    browser.press("Escape").await;
    std::fs::write(folder.state().join("oops"), "down\n").unwrap();
    browser
        .until(&says("#keys", "\"down\" is no value and counts as absent"))
        .await;
    browser.until(&says("#facts", "3, 1 invalid")).await;
    browser
        .until("document.querySelector('.mark').className === 'mark guarded'")
        .await;

    // A load balancer that is gone stands out, and nobody can take what is left for all there is.
    let [mut first, mut second] = agents;
    second.process.kill();
    browser
        .until("document.querySelector('#nodes tr').innerText.includes('unreachable')")
        .await;
    browser
        .until(&says("#rows-note", "1 load balancer did not answer"))
        .await;
    browser.picture(&picture("fleet")).await;
    first.process.kill();
    browser
        .until(&says(
            "#headline",
            "0 of 2 load balancers fresh, no row is known",
        ))
        .await;
    browser
        .until(&says("#rows-note", "not known: no load balancer answers"))
        .await;
    assert_eq!(browser.text("#count-problems").await, "?");
    assert_eq!(browser.complaints(), &[] as &[String]);

    ui.signal(Signal::INT);
    assert!(ui.exit(Duration::from_secs(10)).await.success());
}

#[test]
fn the_fleet_page_is_not_shown_to_other_machines_by_mistake() {
    let refused = Folder::new()
        .haplane()
        .run(&["ui", "--ui-listen", "0.0.0.0:0"])
        .exits(2);
    assert!(refused.stderr.contains("--ui-allow-remote"), "{refused:?}");
}
