//! A real Chromium without a window, for tests of pages.
//!
//! It is spoken to over its debugging pipe (Chrome `DevTools` protocol: JSON documents ended by a
//! zero byte), so it opens no port and needs no driver.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::peers::Peer;

/// For one command; a cold start on a busy machine takes some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing of it may reach beyond this machine.
const FLAGS: [&str; 13] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
];

/// A browser with one page open. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: UnboundedReceiver<Value>,
    session: Option<String>,
    next: u64,
    complaints: Vec<String>,
    _profile: TempDir,
}

/// What the reader of the page prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Browser {
    /// Starts it with an empty page.
    pub async fn start() -> Self {
        let profile = tempfile::Builder::new()
            .prefix("browser")
            .tempdir()
            .expect("a folder for the browser's profile");
        let log = std::fs::File::create(profile.path().join("log")).expect("a log file");
        // The pipe is file descriptors 3 and 4 of the browser.
        let mut child = Command::new("sh")
            .arg("-c")
            .arg("exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2")
            .arg("browser")
            .arg(Peer::Chromium.program())
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // What it leaves for a later run lies in the profile, too, and goes with it.
            .env("TMPDIR", profile.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("to start the browser");
        let to = child.stdin.take().expect("the pipe to it");
        let from = documents(child.stdout.take().expect("the pipe from it"));
        let mut browser = Self {
            child,
            to,
            from,
            session: None,
            next: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        browser.open_page().await;
        browser
    }

    async fn open_page(&mut self) {
        let target = self
            .call("Target.createTarget", json!({"url": "about:blank"}))
            .await;
        let attached = self
            .call(
                "Target.attachToTarget",
                json!({"targetId": target["targetId"], "flatten": true}),
            )
            .await;
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
    }

    /// Goes to an address. The page may still be reading what it shows.
    pub async fn goto(&mut self, url: &str) {
        let went = self.call("Page.navigate", json!({"url": url})).await;
        assert!(went["errorText"].is_null(), "{url}: {went}");
        self.until("document.readyState === 'complete'").await;
    }

    /// The value of an expression in the page, waiting for it if it is a promise.
    pub async fn value(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
            "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", asked).await;
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// The text that a person sees at a selector's first match.
    pub async fn text(&mut self, selector: &str) -> String {
        let expression = format!(
            "document.querySelector({})?.innerText ?? '(nothing there)'",
            json!(selector)
        );
        self.value(&expression)
            .await
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits until an expression is true.
    pub async fn until(&mut self, expression: &str) {
        let start = Instant::now();
        while self.value(expression).await != Value::Bool(true) {
            if start.elapsed() > PATIENCE {
                let seen = self.text("body").await;
                let seen: String = seen.chars().take(800).collect();
                panic!("not within {PATIENCE:?} in the page: {expression}; seen:\n{seen}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Types a key: a character, or `Enter`, `Escape`, `Tab`.
    pub async fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            "Escape" | "Tab" => "",
            text => text,
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types a text, key by key.
    pub async fn write(&mut self, text: &str) {
        for character in text.chars() {
            self.press(&character.to_string()).await;
        }
    }

    /// Makes the window this large, in pixels, for a person who likes this scheme.
    pub async fn look_as(&mut self, width: u32, height: u32, scheme: Scheme) {
        let mobile = width < 600;
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile,
        });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let value = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Keeps a picture of what is seen, as a PNG.
    pub async fn picture(&mut self, file: &Path) {
        let shot = self
            .call("Page.captureScreenshot", json!({"format": "png"}))
            .await;
        let picture = STANDARD
            .decode(shot["data"].as_str().unwrap_or_default())
            .expect("a picture in base64");
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).expect("a folder for pictures");
        }
        std::fs::write(file, picture).expect("to write the picture");
    }

    /// The texts that are hard to read, as they stand out too little from what is behind them.
    pub async fn faint(&mut self) -> Vec<String> {
        let faint = self.value(include_str!("browser/faint.js")).await;
        serde_json::from_value(faint).expect("a list of texts")
    }

    /// Errors that the page has raised so far: exceptions, refused assets, failed requests.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut document = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            document["sessionId"] = json!(session);
        }
        let mut bytes = document.to_string().into_bytes();
        bytes.push(0);
        self.to
            .write_all(&bytes)
            .expect("to write to the browser; is it still running?");
        tokio::time::timeout(PATIENCE, self.answer(id))
            .await
            .unwrap_or_else(|_| panic!("the browser did not answer {method} in {PATIENCE:?}"))
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut said = self.from.recv().await.expect("the browser has ended");
            if said["id"] == id {
                assert!(said["error"].is_null(), "{said}");
                return said["result"].take();
            }
            self.note(&said);
        }
    }

    fn note(&mut self, event: &Value) {
        let details = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &details["exceptionDetails"],
            Some("Log.entryAdded") if details["entry"]["level"] == "error" => &details["entry"],
            _ => return,
        };
        self.complaints.push(complaint.to_string());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes are in its group; one that lives on would fill the profile again.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.child.wait().ok();
    }
}

/// The documents that come through the pipe, read on a thread of their own.
fn documents(pipe: ChildStdout) -> UnboundedReceiver<Value> {
    let (to, from) = unbounded_channel();
    std::thread::spawn(move || {
        for document in BufReader::new(pipe).split(0).map_while(Result::ok) {
            let Ok(document) = serde_json::from_slice(&document) else {
                return;
            };
            if to.send(document).is_err() {
                return;
            }
        }
    });
    from
}
