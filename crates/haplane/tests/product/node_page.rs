//! The node page, in a real browser, served by a real agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use haplane_testkit::agent_peer::ask;
use haplane_testkit::browser::{Browser, Scheme};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::ports::Port;

use crate::agent::{Agent, Folder};

/// A name and a value that would do harm if they were taken as markup.
const HOSTILE: &str = "web/<img/src=x/onerror=document.title='harmed'>";

/// Pictures for people to look at.
pub(crate) fn picture(name: &str) -> PathBuf {
    crate::checkout::path("target/pictures").join(format!("{name}.png"))
}

#[tokio::test]
async fn the_node_page_follows_what_happens_and_can_be_worked_by_keyboard() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    let _asking = agent.asked(&["web/a", "web/cny-b canary", "api/c", HOSTILE]);
    std::fs::write(folder.state().join("by-hand"), "<b>down</b>\n").unwrap();
    let mut browser = Browser::start().await;
    browser.look_as(1200, 800, Scheme::Light).await;
    browser.goto(&agent.page()).await;
    browser
        .until("document.querySelectorAll('main tbody tr').length === 4")
        .await;
    assert_eq!(browser.text("h1").await, "lb-01");

    // Live: no reload, or the mark would be gone.
    browser.value("window.mark = 'still here'").await;
    folder
        .haplane()
        .run(&["set", "canary", "drain", "--force"])
        .exits(0);
    browser
        .until("[...document.querySelectorAll('main tr')].some((row) => /^cny-b\\s+drain\\s+canary\\s+drain,/.test(row.innerText))")
        .await;
    assert_eq!(browser.value("window.mark").await, "still here");
    assert_eq!(browser.text("#count-out").await, "1");

    // Names and values from outside are text.
    browser
        .until("document.querySelector('#keys').textContent.includes('<b>down</b>')")
        .await;
    let harmed = "document.querySelectorAll('img, #keys b').length";
    assert_eq!(browser.value(harmed).await, 0);
    assert_eq!(browser.value("document.title").await, "lb-01 · haplane");

    // By keyboard: filter, details, back.
    browser.press("/").await;
    browser.write("canary").await;
    browser
        .until("document.querySelectorAll('main tbody tr').length === 1")
        .await;
    browser.press("Tab").await;
    browser.value("document.activeElement.blur()").await;
    browser.press("j").await;
    browser.press("Enter").await;
    browser
        .until("document.querySelector('tr.more')?.innerText.includes('web/cny-b = no value, then canary = drain')")
        .await;
    assert_eq!(browser.faint().await, [""; 0]);
    browser.picture(&picture("node-details")).await;
    browser.press("Escape").await;
    browser
        .until("document.querySelectorAll('main tbody tr').length === 5")
        .await;
    browser
        .until("document.activeElement.matches('main td button')")
        .await;
    assert_eq!(browser.complaints(), &[] as &[String]);
}

#[tokio::test]
async fn the_node_page_shows_what_haproxy_does() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let checks = Port::reserve();
    let haproxy = Haproxy::start(
        Version::V28,
        Config::new(&format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
             backend web\n default-server weight 100 agent-inter 200ms agent-addr 127.0.0.1 agent-port {checks}\n \
             server a 127.0.0.1:9 agent-check agent-send \"web/a\\n\"\n \
             server b 127.0.0.1:9 agent-check agent-send \"web/b\\n\"\n \
             server left-out 127.0.0.1:9\n \
             server-template slot- 1-2 127.0.0.1:1 disabled agent-check agent-send \"@free\\n\"\n"
        )),
    )
    .await;
    let socket = haproxy.user_socket().display().to_string();
    let observing = haplane.with("HAPLANE_HAPROXY_SOCKET", &socket);
    let agent = Agent::start_at("lb-01", &observing, checks).await;
    haplane.run(&["set", "web/b", "drain", "--force"]).exits(0);
    let mut browser = Browser::start().await;
    browser.look_as(1200, 800, Scheme::Dark).await;
    browser.goto(&agent.page()).await;
    let row = |name: &str, expected: &str| {
        format!(
            "[...document.querySelectorAll('main tr')].some((row) => row.innerText.startsWith('{name}') \
             && /{expected}/.test(row.innerText.replace(/\\s+/g, ' ')))"
        )
    };
    browser
        .until(&row(
            "b",
            "drain web.b drain, .* DRAIN .agent. 100 0 .*converged",
        ))
        .await;
    browser
        .until(&row(
            "a",
            "ready no key ready 100%, .* ready, .* 100 0 .*converged",
        ))
        .await;
    // In the order that is wished for.
    haplane.run(&["set", "web/b", "50%", "--force"]).exits(0);
    browser
        .until(&row("b", "50% web.b ready 50%, .* 50 0 .*converged"))
        .await;
    for (order, first) in [("name", "a"), ("weight", "b"), ("problems", "a")] {
        browser
            .value(&format!(
                "document.querySelector('#sort').value = '{order}';
                 document.querySelector('#sort').dispatchEvent(new Event('change'))"
            ))
            .await;
        // `innerText` is empty for a moment where a group was just moved: what is out of sight is not rendered.
        browser
            .until(&format!(
                "[...document.querySelectorAll('main section')]
                .find((one) => one.textContent.startsWith('web'))?.querySelector('td').textContent === '{first}'"
            ))
            .await;
    }
    haplane.run(&["set", "web/b", "drain", "--force"]).exits(0);
    browser
        .until("document.querySelector('main tbody td').textContent === 'b'")
        .await;
    browser.until(&row("left-out", "– – not enrolled")).await;
    // Nothing is desired of free slots, and they do ask.
    browser
        .until(&row("@free", "– the slots are free maint, .* unobserved"))
        .await;
    browser
        .until(&row(
            "slot-1",
            "– – asks by another name MAINT.* unobserved",
        ))
        .await;
    assert_eq!(browser.text("#count-out").await, "1", "b alone");
    // The store speaks for a row that does not ask any more, too.
    haproxy.command("disable agent web/b").await;
    haplane.run(&["clear", "web/b"]).exits(0);
    browser.until(&row("b", "ready no key drain, ")).await;

    // Somebody works on the socket, and HAProxy asks no more.
    haproxy.command("disable agent web/a").await;
    haproxy.command("set server web/a state maint").await;
    browser
        .until("document.querySelector('#count-problems').textContent === '2'")
        .await;
    // Problems first.
    browser
        .until("document.querySelector('main tbody td').textContent === 'a'")
        .await;
    browser.press("j").await;
    browser.press("Enter").await;
    browser.until("!!document.querySelector('tr.more')").await;
    browser.picture(&picture("node-observed-dark")).await;
    assert_eq!(browser.complaints(), &[] as &[String]);
}

#[tokio::test]
async fn the_node_page_says_when_rows_fall_silent_and_when_the_agent_is_gone() {
    let folder = Folder::new();
    let mut agent = Agent::start(&folder.haplane()).await;
    let asking = agent.asked(&["web/a", "web/b"]);
    let mut browser = Browser::start().await;
    browser.look_as(390, 800, Scheme::Dark).await;
    browser.goto(&agent.page()).await;
    browser
        .until("document.querySelectorAll('main tbody tr').length === 2")
        .await;
    agent.knows_the_interval_of("web/b").await;
    asking.abort();
    browser
        .until("document.querySelector('#count-problems').textContent === '2'")
        .await;
    let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.value(wide).await, false, "wider than a phone");
    assert_eq!(browser.faint().await, [""; 0]);
    browser.picture(&picture("node-phone-dark")).await;

    // What the store says is not believed any more.
    std::fs::remove_file(folder.state().join(".haplane")).unwrap();
    browser
        .until("document.querySelector('#guard').innerText.includes('marker_missing')")
        .await;
    assert_eq!(browser.text("#word").await, "guarded");

    agent.process.kill();
    browser
        .until("document.querySelector('#away').innerText.startsWith('The agent does not answer')")
        .await;
    let kept = "document.querySelectorAll('main tbody tr').length";
    assert_eq!(browser.value(kept).await, 2, "what it said last stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_node_page_begins_with_what_is_wrong_and_keeps_still() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    let lines: Vec<_> = (0..20)
        .flat_map(|backend| (0..16).map(move |server| format!("backend-{backend}/s-{server}")))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let _asking = agent.asked_calmly(&lines);
    let failing = agent.asked_calmly(&["wrong/a", "wrong/b"]);
    let mut browser = Browser::start().await;
    browser.look_as(1200, 800, Scheme::Light).await;
    browser.goto(&agent.page()).await;
    let lines_are = |count: usize| {
        format!("document.querySelectorAll('main table:not([hidden]) tbody tr').length === {count}")
    };
    browser
        .until("document.querySelector('#count-all').textContent === '322'")
        .await;
    // Thousands of lines that are well only hide the others.
    browser.until(&lines_are(0)).await;
    browser
        .until("document.querySelector('#headline').innerText.startsWith('322 rows: 322 told')")
        .await;

    // Ages change at every look, and nothing moves for it. What does change starts it anew.
    browser
        .value(
            "const looks = () => performance.getEntriesByType('resource')
                 .filter((one) => one.name.endsWith('/v1/rows')).length;
             window.moved = [];
             new PerformanceObserver((list) => moved.push(...list.getEntries())).observe({ type: 'layout-shift' });
             let from = looks();
             new MutationObserver(() => { from = looks(); moved.length = 0; })
                 .observe(document.querySelector('header'), { subtree: true, childList: true, characterData: true });
             window.hasRested = () => looks() - from >= 3",
        )
        .await;
    browser.until("hasRested()").await;
    assert_eq!(browser.value("moved.length").await, 0);

    // What is wrong comes first, and open.
    agent.knows_the_interval_of("wrong/b").await;
    failing.abort();
    browser.until(&lines_are(2)).await;
    browser
        .until("document.querySelector('#headline').innerText === '2 of 322 rows in trouble: 2 silent'")
        .await;
    assert_eq!(browser.text("#word").await, "in trouble");
    browser
        .until("document.querySelector('main h2').innerText.startsWith('wrong')")
        .await;
    assert_eq!(browser.faint().await, [""; 0]);

    // By keyboard: the rows, then the first backend that is folded, then its rows.
    for _ in 0..3 {
        browser.press("j").await;
    }
    browser.press("Enter").await;
    browser.until(&lines_are(2 + 16)).await;
    for _ in 0..16 {
        browser.press("j").await;
    }
    let here = "document.activeElement.textContent";
    assert_eq!(browser.value(here).await, "s-15");
    // It comes up among the first, and the cursor with it.
    folder
        .haplane()
        .run(&["set", "backend-0/s-15", "drain", "--force"])
        .exits(0);
    browser
        .until("document.querySelectorAll('main tbody')[1].textContent.startsWith('s-15')")
        .await;
    assert_eq!(browser.value(here).await, "s-15");
    browser.press("p").await;
    browser.until(&lines_are(2)).await;
    assert_eq!(browser.value("location.hash").await, "#show=problems");
    browser.press("Escape").await;
    browser.press("p").await;
    browser.until(&lines_are(2 + 16)).await;
    assert_eq!(browser.complaints(), &[] as &[String]);
}

#[tokio::test]
async fn the_node_page_shows_where_the_keyboard_is() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    let _asking = agent.asked(&["web/a"]);
    let mut browser = Browser::start().await;
    for scheme in [Scheme::Dark, Scheme::Light] {
        browser.look_as(1200, 800, scheme).await;
        browser.goto("about:blank").await;
        browser.goto(&agent.page()).await;
        browser
            .until("document.querySelectorAll('main tbody tr').length === 1")
            .await;
        let mut way = Vec::new();
        for _ in 0..6 {
            browser.press("Tab").await;
            let place = "(({ activeElement: one }) => [
                one.id || one.name || one.tagName.toLowerCase() + ' ' + one.textContent,
                getComputedStyle(one.closest('.choice label') ?? one).outlineStyle,
            ].join(': '))(document)";
            way.push(browser.value(place).await.as_str().unwrap().to_owned());
        }
        let expected = [
            "summary Keys in force 0: solid",
            "filter: solid",
            "show: solid",
            "sort: solid",
            "button web: solid",
            "button a: solid",
        ];
        assert_eq!(way, expected, "{scheme:?}");
    }
}

#[tokio::test]
async fn the_node_page_stays_quick_with_5000_rows() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    ask_for_all(agent.checks.address()).await;
    folder
        .haplane()
        .run(&["set", "canary", "drain", "--force"])
        .exits(0);
    let mut browser = Browser::start().await;
    browser.look_as(1200, 800, Scheme::Light).await;
    browser.goto(&agent.page()).await;
    browser
        .until("document.querySelector('#count-all').textContent === '5000'")
        .await;
    let shown = browser
        .value("performance.getEntriesByName('shown')[0].startTime")
        .await;
    // From a wish to the picture that answers it.
    let wished = |field: &str, value: &str, event: &str| {
        format!(
            "new Promise((done) => {{
                const field = document.querySelector('{field}');
                const start = performance.now();
                field.value = '{value}';
                field.dispatchEvent(new Event('{event}'));
                requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
            }})"
        )
    };
    let lines = "document.querySelectorAll('main table:not([hidden]) tbody tr').length";
    let all = browser.value(&wished("#sort", "weight", "change")).await;
    assert_eq!(browser.value(lines).await, 5000);
    let filtered = browser
        .value(&wished("#filter", "backend-7/", "input"))
        .await;
    assert_eq!(browser.value(lines).await, 100);
    let back = browser.value(&wished("#filter", "", "input")).await;
    assert_eq!(browser.value(lines).await, 5000);
    browser.picture(&picture("node-5000")).await;
    // How quick it is on a quiet machine is for a person to measure; that it is not stuck, for this.
    let limit = 20_000.0;
    for (what, took) in [
        ("shown", &shown),
        ("all lines", &all),
        ("filtered", &filtered),
        ("all back", &back),
    ] {
        let took = took.as_f64().unwrap();
        assert!(took < limit, "{what} took {took} ms of {limit}");
    }
}

pub(crate) async fn ask_for_all(agent: SocketAddr) {
    for backend in 0..50 {
        for server in 0..100 {
            let group = if server % 10 == 0 { " canary" } else { "" };
            let line = format!("backend-{backend}/server-{server}{group}\n");
            ask(agent, line.as_bytes()).await.unwrap();
        }
    }
}
