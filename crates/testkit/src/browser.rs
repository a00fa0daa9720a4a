//! A real browser, Chromium without a window, driven through a pipe as its developer tools do.
//!
//! What is clicked and filled in is found as those who do not see find it: by role and name in the accessibility tree. The
//! browser reaches no host but this one, and ends with the test, however that ends: its pipe is closed then.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::servers::skipped;

/// Nothing in a page takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The protocol is spoken on the descriptors 3 and 4.
const WIRE: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// The names of the browser, the smallest first.
const NAMES: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

const FLAGS: [&str; 10] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--enable-precise-memory-info",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A browser with one page.
pub struct Browser {
    child: Child,
    pipe: Option<ChildStdin>,
    heard: Receiver<Value>,
    session: Option<String>,
    asked: u64,
    events: VecDeque<Value>,
    _folder: tempfile::TempDir,
}

/// What a page did that it should not have done, and whom it asked.
#[derive(Debug, Default)]
pub struct Record {
    /// Errors and warnings of the console, exceptions, refusals of the policy.
    pub complaints: Vec<String>,
    /// The requests, with their headers.
    pub requests: Vec<Value>,
}

impl Browser {
    /// Starts one; `None`: none is installed.
    ///
    /// # Panics
    /// When it does not start, or is missing in CI.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            skipped("Chromium");
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WIRE, "browser"]).arg(program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", folder.path().display())).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env("HOME", folder.path());
        let mut child = command.spawn().expect("there is a shell");
        let (pipe, out) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                if serde_json::from_slice(&message).is_ok_and(|message: Value| tell.send(message).is_err()) {
                    return;
                }
            }
        });
        let events = VecDeque::new();
        let mut browser = Self { child, pipe, heard, session: None, asked: 0, events, _folder: folder };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let wanted = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &wanted);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Asks the browser something.
    ///
    /// # Panics
    /// When it refuses, or says nothing for long.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let pipe = self.pipe.as_mut().expect("it is open until the end");
        pipe.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let heard = self.heard.recv_timeout(left);
            let mut message =
                heard.unwrap_or_else(|error| panic!("{method} {}: no answer: {error}", message["params"]));
            if message["id"] != self.asked {
                self.events.push_back(message);
            } else if message["error"].is_object() {
                return Err(message["error"].take());
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Goes to an address and waits until the page is there.
    pub fn go(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.until("document.readyState === 'complete' && document.querySelector('h1')?.textContent");
    }

    /// The value of an expression in the page; a promise is waited for.
    ///
    /// # Panics
    /// When it throws.
    pub fn eval(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &wanted);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].take()
    }

    /// Waits until an expression is true in the page, looking once a frame; returns what it was then.
    ///
    /// # Panics
    /// When it stays false; with what the page shows.
    pub fn until(&mut self, expression: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let within = format!(
                "new Promise((done) => {{ let frames = 60; const look = () => {{ const found = ({expression}); \
                 if (found || !(frames -= 1)) done(found); else requestAnimationFrame(look); }}; look(); }})"
            );
            let wanted = json!({ "expression": within, "awaitPromise": true, "returnByValue": true });
            // While it goes to another page there may be nobody to answer.
            let Ok(mut result) = self.try_call("Runtime.evaluate", &wanted) else { continue };
            let value = result["result"]["value"].take();
            let is_true = !(value.is_null() || value == false || value == "" || value == 0);
            if is_true && result["exceptionDetails"].is_null() {
                return value;
            }
        }
        let shown = self.eval("document.body.innerText");
        let complaints = self.record().complaints;
        panic!("{expression} stays false on\n{}\n{complaints:#?}", shown.as_str().unwrap_or_default());
    }

    /// Waits until a text stands on the page.
    pub fn see(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Waits for an element by role and name.
    fn find(&mut self, role: &str, name: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let root = self.call("DOM.getDocument", &json!({ "depth": 0 }))["root"]["backendNodeId"].take();
            let wanted = json!({ "backendNodeId": root, "role": role, "accessibleName": name });
            // The document may be replaced in between.
            if let Ok(found) = self.try_call("Accessibility.queryAXTree", &wanted) {
                let nodes = found["nodes"].as_array().into_iter().flatten();
                let mut usable = nodes.filter(|node| node["ignored"] == false);
                if let Some(node) = usable.next() {
                    return node["backendDOMNodeId"].clone();
                }
            }
            self.eval("new Promise(requestAnimationFrame)");
        }
        let shown = self.eval("document.body.innerText");
        panic!("there is no {role} {name:?} on\n{}", shown.as_str().unwrap_or_default());
    }

    /// Presses the mouse on an element.
    pub fn click(&mut self, role: &str, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let node = self.find(role, name);
            let wanted = json!({ "backendNodeId": node });
            // What is drawn anew between two questions is looked for again.
            let shown = self.try_call("DOM.scrollIntoViewIfNeeded", &wanted);
            match shown.and_then(|_| self.try_call("DOM.getContentQuads", &wanted)) {
                Ok(quads) if quads["quads"][0].is_array() => {
                    return self.press_at(&quads["quads"][0]);
                }
                _ => assert!(Instant::now() < deadline, "{role} {name:?} has no place"),
            }
        }
    }

    fn press_at(&mut self, quad: &Value) {
        let corner = |index: usize| quad[index].as_f64().unwrap_or_default();
        let (x, y) = (f64::midpoint(corner(0), corner(4)), f64::midpoint(corner(1), corner(5)));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Writes into a field, in the place of what it holds.
    pub fn fill(&mut self, label: &str, text: &str) {
        self.fill_in("textbox", label, text);
    }

    /// The same for fields with another role.
    pub fn fill_in(&mut self, role: &str, label: &str, text: &str) {
        let node = self.find(role, label);
        self.on(&node, "function () { this.focus(); this.select(); }");
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Chooses in a list.
    pub fn choose(&mut self, label: &str, value: &str) {
        let node = self.find("combobox", label);
        let choose = format!(
            "function () {{ this.value = {}; this.dispatchEvent(new Event('change', {{ bubbles: true }})); }}",
            json!(value)
        );
        self.on(&node, &choose);
    }

    fn on(&mut self, node: &Value, function: &str) {
        let object = self.call("DOM.resolveNode", &json!({ "backendNodeId": node }));
        let wanted = json!({ "objectId": object["object"]["objectId"], "functionDeclaration": function });
        let done = self.call("Runtime.callFunctionOn", &wanted);
        assert!(done["exceptionDetails"].is_null(), "{done}");
    }

    /// Presses a key: `Tab`, `Shift+Tab`, `Enter`, `Escape`, `Space`.
    ///
    /// # Panics
    /// With another one.
    pub fn press(&mut self, key: &str) {
        let (name, code, text, modifiers) = match key {
            "Tab" => ("Tab", 9, "", 0),
            "Shift+Tab" => ("Tab", 9, "", 8),
            "Enter" => ("Enter", 13, "\r", 0),
            "Escape" => ("Escape", 27, "", 0),
            "Space" => (" ", 32, " ", 0),
            other => panic!("the key {other:?} is not known here"),
        };
        let event = |kind: &str| {
            json!({
                "type": kind, "key": name, "code": if name == " " { "Space" } else { name },
                "windowsVirtualKeyCode": code, "text": text, "modifiers": modifiers,
            })
        };
        self.call("Input.dispatchKeyEvent", &event(if text.is_empty() { "rawKeyDown" } else { "keyDown" }));
        self.call("Input.dispatchKeyEvent", &event("keyUp"));
    }

    /// Writes where the focus is.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// The window's size, and whether the reader prefers dark.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// The nodes that those who do not see are told of: role and name.
    pub fn heard_as(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().into_iter().flatten();
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        let told = nodes.filter(|node| node["ignored"] == false);
        told.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }

    /// Keeps a picture of the page.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn screenshot(&mut self, file: &Path) {
        let size = self.call("Page.getLayoutMetrics", &json!({}))["cssContentSize"].take();
        let height = size["height"].as_f64().unwrap_or_default().min(2400.0);
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1 });
        let wanted = json!({ "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", &wanted);
        let bytes = STANDARD.decode(picture["data"].as_str().unwrap_or_default()).expect("Base64");
        std::fs::create_dir_all(file.parent().expect("a file lies in a folder")).expect("a folder");
        std::fs::write(file, bytes).expect("a file");
    }

    /// What was heard since the last time.
    pub fn record(&mut self) -> Record {
        self.events.extend(self.heard.try_iter());
        let mut record = Record::default();
        for mut event in self.events.drain(..) {
            let mut params = event["params"].take();
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => record.complaints.push(params["exceptionDetails"].to_string()),
                "Log.entryAdded" => record.complaints.push(params["entry"].to_string()),
                "Runtime.consoleAPICalled"
                    if matches!(params["type"].as_str(), Some("error" | "warning" | "assert")) =>
                {
                    record.complaints.push(params["args"].to_string());
                }
                "Network.requestWillBeSent" => record.requests.push(params["request"].take()),
                _ => {}
            }
        }
        record
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself when nobody holds the other end; killed, its helpers end too.
        self.pipe.take();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let all = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}
