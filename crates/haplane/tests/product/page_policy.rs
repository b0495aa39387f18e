//! What both pages may load and do, and who may change something through them: nobody.

use haplane_testkit::browser::{Browser, Scheme};
use haplane_testkit::http::{Request, Target};

use crate::agent::{Agent, Folder};
use crate::fleet_page::Ui;

#[tokio::test]
async fn both_pages_are_read_only_and_run_nothing_but_their_own_files() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.haplane()).await;
    let _asking = agent.asked(&["web/a"]);
    let urls = agent.page().trim_end_matches('/').to_owned();
    let ui = Ui::start(&folder.haplane(), &urls).await;
    let mut browser = Browser::start().await;
    browser.look_as(1200, 800, Scheme::Light).await;
    for (page, port) in [(agent.page(), &agent.http), (ui.page(), &ui.port)] {
        let target = Target::Tcp(port.address());
        let answer = Request::get("/").send(&target).await.unwrap().ok();
        let policy = answer.headers.get("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for method in ["POST", "PUT", "DELETE"] {
            let answer = Request::new(method, "/").send(&target).await.unwrap();
            assert_eq!(answer.status, 405, "{method} {page}");
        }

        browser.goto(&page).await;
        browser
            .until("performance.getEntriesByName('shown').length === 1")
            .await;
        let elsewhere = "performance.getEntriesByType('resource')
            .filter((one) => new URL(one.name).origin !== location.origin).length";
        assert_eq!(browser.value(elsewhere).await, 0, "{page}");
        // Somebody has found a way to put markup into the page: it does nothing there.
        let title = browser.value("document.title").await;
        browser
            .value(
                "const script = document.createElement('script');
                 script.textContent = 'document.title = \"harmed\"';
                 document.body.append(script);
                 document.body.insertAdjacentHTML('beforeend',
                     '<img src=\"data:,\" onerror=\"document.title = `harmed`\" style=\"color: red\">')",
            )
            .await;
        browser
            .until("document.querySelector('img').complete")
            .await;
        assert_eq!(browser.value("document.title").await, title, "{page}");
    }
    let refused = browser.complaints();
    assert!(!refused.is_empty(), "the browser says what it refused");
    let by_policy = |said: &String| said.contains("Content Security Policy");
    assert!(refused.iter().all(by_policy), "{refused:?}");
}
