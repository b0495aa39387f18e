//! The fleet page of `haplane ui`, in a real browser, over two real agents.

use std::time::Duration;

use haplane_testkit::browser::{Browser, Scheme};
use haplane_testkit::eventually::eventually;
use haplane_testkit::ports::Port;
use haplane_testkit::process::{Process, Signal};
use tempfile::TempDir;

use crate::agent::{Agent, Folder};
use crate::command::Haplane;
use crate::node_page::{ask_for_all, picture};

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
    let urls = addresses(&agents);
    let mut ui = Ui::start(&haplane, &urls).await;
    let mut browser = Browser::start().await;
    browser.look_as(1200, 900, Scheme::Light).await;
    browser.goto(&ui.page()).await;
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
            .value("document.querySelectorAll('tbody b').length")
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
        .until("document.querySelector('#word').innerText === 'in trouble'")
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
    browser.look_as(1200, 900, Scheme::Dark).await;
    assert_eq!(browser.faint().await, [""; 0]);
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

    ui.process.signal(Signal::INT);
    assert!(ui.process.exit(Duration::from_secs(10)).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_page_shows_what_is_wrong_and_folds_the_rest() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agents = [
        Agent::start_as("lb-01", &haplane).await,
        Agent::start_as("lb-02", &haplane).await,
        Agent::start_as("lb-03", &haplane).await,
        Agent::start_as("lb-04", &haplane).await,
    ];
    let rows: Vec<_> = (0..40).map(|one| format!("web/s-{one} canary")).collect();
    let rows: Vec<_> = rows.iter().map(String::as_str).collect();
    let _asking: Vec<_> = agents
        .iter()
        .map(|agent| agent.asked_calmly(&rows))
        .collect();
    let failing = agents[2].asked_calmly(&["web/wrong"]);
    let urls = addresses(&agents);
    haplane
        .run(&["set", "canary", "drain", "--agents", &urls])
        .exits(0);
    let ui = Ui::start(&haplane.with("HAPLANE_FORGOTTEN_AFTER", "10ms"), &urls).await;
    let mut browser = Browser::start().await;
    browser.look_as(390, 800, Scheme::Light).await;
    browser.goto(&ui.page()).await;
    let lines_are = |table: &str, count: usize| {
        format!("document.querySelectorAll('{table} tr').length === {count}")
    };
    // All four are well: all are shown. Forty rows are out of rotation: the first, and a way to the others.
    browser.until(&lines_are("#nodes", 4)).await;
    browser.until(&lines_are("#rows", 25 + 1)).await;
    let rest = "document.querySelector('#rows button.rest')";
    assert_eq!(browser.text("#rows button.rest").await, "show 15 more");
    browser.value(&format!("{rest}.click()")).await;
    browser.until(&lines_are("#rows", 40 + 1)).await;
    assert_eq!(browser.text("#rows button.rest").await, "show fewer");
    browser.value(&format!("{rest}.click()")).await;

    // A drain that is older than it should be stands out, though nothing is wrong.
    assert_eq!(browser.text("#word").await, "forgotten drain");
    assert!(browser.text("#keys").await.contains("ago, forgotten?"));

    // One row of one of them asks no more.
    agents[2].knows_the_interval_of("web/wrong").await;
    failing.abort();
    browser
        .until("document.querySelector('#nodes-note').innerText === '1 of 4 in trouble'")
        .await;
    browser.until(&lines_are("#nodes", 1 + 1)).await;
    assert!(browser.text("#nodes").await.starts_with("lb-03"));
    assert!(browser.text("#rows").await.starts_with("web/wrong"));
    assert_eq!(browser.text("#word").await, "in trouble");
    browser.press("p").await;
    browser.until(&lines_are("#rows", 1)).await;
    assert_eq!(browser.value("location.hash").await, "#show=problems");
    let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.value(wide).await, false, "wider than a phone");
    assert_eq!(browser.faint().await, [""; 0]);
    browser.picture(&picture("fleet-phone")).await;

    // Whoever looks at one row sees what becomes of it.
    browser.press("j").await;
    browser.press("Enter").await;
    browser
        .until("document.querySelector('#why-nodes').innerText.includes('silent')")
        .await;
    let _again = agents[2].asked_calmly(&["web/wrong"]);
    browser
        .until("document.querySelector('#why-nodes').innerText.includes('unobserved')")
        .await;
    assert_eq!(browser.complaints(), &[] as &[String]);
}

#[tokio::test]
async fn the_fleet_page_stays_quick_with_5000_rows() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agent = Agent::start(&haplane).await;
    ask_for_all(agent.checks.address()).await;
    let agents = [agent];
    let ui = Ui::start(&haplane, &addresses(&agents)).await;
    let mut browser = Browser::start().await;
    browser.look_as(1200, 800, Scheme::Light).await;
    browser.goto(&format!("{}#show=all", ui.page())).await;
    browser
        .until("document.querySelector('#count-all').textContent === '5000'")
        .await;
    let wished = |act: &str| {
        format!(
            "new Promise((done) => {{
                const start = performance.now();
                {act};
                requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
            }})"
        )
    };
    let lines = "document.querySelectorAll('#rows tr').length";
    let all = browser
        .value(&wished(
            "document.querySelector('#rows button.rest')?.click()",
        ))
        .await;
    assert_eq!(browser.text("#rows-note").await, "the first 1000 of 5000");
    assert_eq!(browser.value(lines).await, 1001);
    let filtered = browser
        .value(&wished(
            "const filter = document.querySelector('#filter');
             filter.value = 'backend-7/';
             filter.dispatchEvent(new Event('input'))",
        ))
        .await;
    assert_eq!(browser.value(lines).await, 100);
    let limit = 20_000.0;
    for (what, took) in [("all lines", &all), ("filtered", &filtered)] {
        let took = took.as_f64().unwrap();
        assert!(took < limit, "{what} took {took} ms of {limit}");
    }
}

/// What `--agents` takes.
fn addresses(agents: &[Agent]) -> String {
    let urls = agents.iter().map(Agent::page);
    let urls: Vec<_> = urls
        .map(|url| url.trim_end_matches('/').to_owned())
        .collect();
    urls.join(",")
}

/// A running `haplane ui`.
pub(crate) struct Ui {
    process: Process,
    pub(crate) port: Port,
    _log: TempDir,
}

impl Ui {
    pub(crate) async fn start(haplane: &Haplane, agents: &str) -> Self {
        let port = Port::reserve();
        let listen = port.address().to_string();
        let command = haplane.command(&["ui", "--ui-listen", &listen, "--agents", agents]);
        let log = tempfile::tempdir().unwrap();
        let process = Process::spawn("haplane ui", command, &log.path().join("log"));
        eventually("the page is there", Duration::from_secs(10), async || {
            tokio::net::TcpStream::connect(port.address()).await
        })
        .await;
        Self {
            process,
            port,
            _log: log,
        }
    }

    pub(crate) fn page(&self) -> String {
        format!("http://{}/", self.port.address())
    }
}

#[test]
fn the_fleet_page_is_not_shown_to_other_machines_by_mistake() {
    let refused = Folder::new()
        .haplane()
        .run(&["ui", "--ui-listen", "0.0.0.0:0"])
        .exits(2);
    assert!(refused.stderr.contains("--ui-allow-remote"), "{refused:?}");
}
