//! Real browser: headless Chromium, controlled through a pipe with the developer tools protocol.
//!
//! Elements are located by role and name in the accessibility tree, as with a screen reader. The
//! browser can reach only this host. It exits with the test in every case, because its pipe closes.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::host::missing;
use crate::wait::WAIT_TIMEOUT;

/// Connects the protocol to file descriptors 3 and 4.
const WIRE: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// Executable names of the browser, the smallest first.
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

/// Browser with one page.
pub struct Browser {
    child: Child,
    pipe: Option<ChildStdin>,
    received: Receiver<Value>,
    session: Option<String>,
    request_id: u64,
    events: VecDeque<Value>,
    _dir: tempfile::TempDir,
}

/// Errors, requests and responses of a page.
#[derive(Debug, Default)]
pub struct PageLog {
    /// Errors and warnings of the console, exceptions, policy violations.
    pub console_errors: Vec<String>,
    /// Requests with their headers.
    pub requests: Vec<Value>,
    /// Responses with their headers.
    pub responses: Vec<Value>,
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Panics
    /// If none is installed, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        let Some(program) = program() else {
            missing("Chromium", "setup")
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", WIRE, "browser"])
            .arg(program)
            .args(FLAGS);
        command
            .arg(format!("--user-data-dir={}", dir.path().display()))
            .arg("about:blank");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env("HOME", dir.path());
        let mut child = command.spawn().expect("the shell starts");
        let (pipe, out) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let (sender, received) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                if serde_json::from_slice(&message)
                    .is_ok_and(|message: Value| sender.send(message).is_err())
                {
                    return;
                }
            }
        });
        let events = VecDeque::new();
        let mut browser = Self {
            child,
            pipe,
            received,
            session: None,
            request_id: 0,
            events,
            _dir: dir,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let params = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &params);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the browser.
    ///
    /// # Panics
    /// If the call fails or times out.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.try_call(method, params)
            .unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.request_id += 1;
        let mut message = json!({ "id": self.request_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let pipe = self.pipe.as_mut().expect("the pipe is open");
        pipe.write_all(format!("{message}\0").as_bytes())
            .expect("the browser reads its pipe");
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let received = self.received.recv_timeout(remaining);
            let mut message = received.unwrap_or_else(|error| {
                panic!("{method} {}: no response: {error}", message["params"])
            });
            if message["id"] != self.request_id {
                self.events.push_back(message);
            } else if message["error"].is_object() {
                return Err(message["error"].take());
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Navigates to an address and waits until the page is loaded.
    pub fn navigate(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.until(
            "document.readyState === 'complete' && document.querySelector('h1')?.textContent",
        );
    }

    /// Evaluates an expression in the page; awaits a promise.
    ///
    /// # Panics
    /// If the expression throws.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].take()
    }

    /// Waits until an expression is true in the page, checked once per frame. Returns its value.
    ///
    /// # Panics
    /// If it stays false; the message contains the page content.
    pub fn until(&mut self, expression: &str) -> Value {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while Instant::now() < deadline {
            let within = format!(
                "new Promise((done) => {{ let frames = 60; const look = () => {{ const found = ({expression}); \
                 if (found || !(frames -= 1)) done(found); else requestAnimationFrame(look); }}; look(); }})"
            );
            let params =
                json!({ "expression": within, "awaitPromise": true, "returnByValue": true });
            // During navigation there may be no execution context.
            let Ok(mut result) = self.try_call("Runtime.evaluate", &params) else {
                continue;
            };
            let value = result["result"]["value"].take();
            let is_true = !(value.is_null() || value == false || value == "" || value == 0);
            if is_true && result["exceptionDetails"].is_null() {
                return value;
            }
        }
        let page_text = self.eval("document.body.innerText");
        let console_errors = self.record().console_errors;
        panic!(
            "{expression} is false on page\n{}\n{console_errors:#?}",
            page_text.as_str().unwrap_or_default()
        );
    }

    /// Waits until the page contains a text.
    pub fn wait_for_text(&mut self, text: &str) {
        self.until(&format!(
            "document.body.innerText.includes({})",
            json!(text)
        ));
    }

    /// Waits for an element by role and name.
    fn find(&mut self, role: &str, name: &str) -> Value {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while Instant::now() < deadline {
            let root =
                self.call("DOM.getDocument", &json!({ "depth": 0 }))["root"]["backendNodeId"]
                    .take();
            let params = json!({ "backendNodeId": root, "role": role, "accessibleName": name });
            // The document may be replaced in between.
            if let Ok(found) = self.try_call("Accessibility.queryAXTree", &params) {
                let nodes = found["nodes"].as_array().into_iter().flatten();
                let mut usable = nodes.filter(|node| node["ignored"] == false);
                if let Some(node) = usable.next() {
                    return node["backendDOMNodeId"].clone();
                }
            }
            self.eval("new Promise(requestAnimationFrame)");
        }
        let result = self.eval("document.body.innerText");
        panic!(
            "{role} {name:?} not found on page\n{}",
            result.as_str().unwrap_or_default()
        );
    }

    /// Clicks an element. If a refresh of the page moves the element before the click reaches it, clicks again.
    pub fn click(&mut self, role: &str, name: &str) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let node = self.find(role, name);
            if self.try_click(&node).is_ok() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{role} {name:?} receives no click"
            );
        }
    }

    /// Clicks a node. Fails if it is redrawn in between, or if another element receives the click.
    fn try_click(&mut self, node: &Value) -> Result<(), Value> {
        let params = json!({ "backendNodeId": node });
        let object = self.try_call("DOM.resolveNode", &params)?;
        // In the middle, so that neither the fixed header nor a message covers it.
        let watch = "function () { this.scrollIntoView({ block: 'center' }); window.awaitsClick = true; \
                     this.addEventListener('click', () => { window.awaitsClick = false; }, { capture: true, once: true }); }";
        let watch =
            json!({ "objectId": object["object"]["objectId"], "functionDeclaration": watch });
        self.try_call("Runtime.callFunctionOn", &watch)?;
        let quads = self.try_call("DOM.getContentQuads", &params)?;
        if !quads["quads"][0].is_array() {
            return Err(quads);
        }
        self.press_at(&quads["quads"][0]);
        // After a navigation the page is another one, and does not wait.
        let params = json!({ "expression": "window.awaitsClick === true", "returnByValue": true });
        match self.try_call("Runtime.evaluate", &params) {
            Ok(result) if result["result"]["value"] == true => Err(result),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn press_at(&mut self, quad: &Value) {
        let corner = |index: usize| quad[index].as_f64().unwrap_or_default();
        let (x, y) = (
            f64::midpoint(corner(0), corner(4)),
            f64::midpoint(corner(1), corner(5)),
        );
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Replaces the value of a field.
    pub fn fill(&mut self, label: &str, text: &str) {
        self.fill_in("textbox", label, text);
    }

    /// Replaces the value of a field with another role.
    pub fn fill_in(&mut self, role: &str, label: &str, text: &str) {
        let node = self.find(role, label);
        self.on(&node, "function () { this.focus(); this.select(); }");
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Selects a value in a list.
    pub fn select(&mut self, label: &str, value: &str) {
        let node = self.find("combobox", label);
        let choose = format!(
            "function () {{ this.value = {}; this.dispatchEvent(new Event('change', {{ bubbles: true }})); }}",
            json!(value)
        );
        self.on(&node, &choose);
    }

    fn on(&mut self, node: &Value, function: &str) {
        let object = self.call("DOM.resolveNode", &json!({ "backendNodeId": node }));
        let params =
            json!({ "objectId": object["object"]["objectId"], "functionDeclaration": function });
        let result = self.call("Runtime.callFunctionOn", &params);
        assert!(result["exceptionDetails"].is_null(), "{result}");
    }

    /// Presses a key: `Tab`, `Shift+Tab`, `Enter`, `Escape`, `Space`.
    ///
    /// # Panics
    /// If the key is unsupported.
    pub fn press(&mut self, key: &str) {
        let (name, code, text, modifiers) = match key {
            "Tab" => ("Tab", 9, "", 0),
            "Shift+Tab" => ("Tab", 9, "", 8),
            "Enter" => ("Enter", 13, "\r", 0),
            "Escape" => ("Escape", 27, "", 0),
            "Space" => (" ", 32, " ", 0),
            other => panic!("unsupported key {other:?}"),
        };
        let event = |kind: &str| {
            json!({
                "type": kind, "key": name, "code": if name == " " { "Space" } else { name },
                "windowsVirtualKeyCode": code, "text": text, "modifiers": modifiers,
            })
        };
        self.call(
            "Input.dispatchKeyEvent",
            &event(if text.is_empty() {
                "rawKeyDown"
            } else {
                "keyDown"
            }),
        );
        self.call("Input.dispatchKeyEvent", &event("keyUp"));
    }

    /// Types text into the focused element.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Sets the window size and the preferred color scheme.
    pub fn set_color_scheme(&mut self, width: u32, height: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": features }),
        );
    }

    /// Returns the nodes of the accessibility tree: role and name.
    pub fn accessible_name(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().into_iter().flatten();
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        let visible = nodes.filter(|node| node["ignored"] == false);
        visible
            .map(|node| (text(&node["role"]), text(&node["name"])))
            .collect()
    }

    /// Stores a screenshot of the page: WebP if the name of the file ends with `.webp`, else PNG.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn screenshot(&mut self, file: &Path) {
        let size = self.call("Page.getLayoutMetrics", &json!({}))["cssContentSize"].take();
        let height = size["height"].as_f64().unwrap_or_default().min(2400.0);
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1 });
        let is_webp = file
            .extension()
            .is_some_and(|extension| extension == "webp");
        let mut params = json!({ "captureBeyondViewport": true, "clip": clip });
        if is_webp {
            params["format"] = json!("webp");
            params["quality"] = json!(85);
        }
        let picture = self.call("Page.captureScreenshot", &params);
        let bytes = STANDARD
            .decode(picture["data"].as_str().unwrap_or_default())
            .expect("valid Base64");
        std::fs::create_dir_all(file.parent().expect("the file has a directory"))
            .expect("a directory");
        std::fs::write(file, bytes).expect("the file is written");
    }

    /// Returns the records since the last call.
    pub fn record(&mut self) -> PageLog {
        self.events.extend(self.received.try_iter());
        let mut record = PageLog::default();
        for mut event in self.events.drain(..) {
            let mut params = event["params"].take();
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => {
                    record
                        .console_errors
                        .push(params["exceptionDetails"].to_string());
                }
                "Log.entryAdded" => record.console_errors.push(params["entry"].to_string()),
                "Runtime.consoleAPICalled"
                    if matches!(
                        params["type"].as_str(),
                        Some("error" | "warning" | "assert")
                    ) =>
                {
                    record.console_errors.push(params["args"].to_string());
                }
                "Network.requestWillBeSent" => record.requests.push(params["request"].take()),
                "Network.responseReceived" => record.responses.push(params["response"].take()),
                _ => {}
            }
        }
        record
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser exits when the other end of the pipe closes; if it is killed, its helper processes exit
        // too.
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
    let dirs: Vec<_> = std::env::split_paths(&path).collect();
    let all = NAMES
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    all.into_iter().find(|path| path.is_file())
}
