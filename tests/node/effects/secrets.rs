//! Canary: a secret that is sent to an upstream and returned in its errors appears nowhere else.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

const CANARY: &str = "canary-5be7\"c0ffee";
const REFRESHED: &str = "canary-again-77aa";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records all log lines of this process until the result is dropped.
    fn record(&self) -> OnDrop<impl Fn() + use<>> {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("trace")
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .with_filter_reloading();
        let filter = subscriber.reload_handle();
        tracing::subscriber::set_global_default(subscriber.finish())
            .expect("the first of this process");
        // Lines of other tests would cost time and memory.
        OnDrop(move || {
            filter
                .reload("off")
                .expect("the subscriber lives as long as the process");
        })
    }
}

/// Calls a function when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads the content of all files of the node.
fn files(dir: &Path, text: &mut Vec<u8>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, text);
        } else {
            text.extend(std::fs::read(&path).unwrap());
        }
    }
}

#[track_caller]
fn check_clean(location: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for secret in [CANARY, "canary-5be7", REFRESHED] {
        assert!(!text.contains(secret), "{location} shows the secret");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_appear_only_at_their_upstream() {
    let log = Log::default();
    let _recording = log.record();
    let shop = HttpUpstream::open().await;
    let echo = format!(
        "{{\"error\": {}, \"code\": \"denied\"}}",
        Value::from(format!("no: {CANARY}"))
    );
    shop.script(503, &[], &echo);
    shop.script(402, &[], &echo);
    shop.script(200, &[], &format!("{{\"you\": {REFRESHED:?}}}"));
    let dirs = Dirs::new(&[]);
    let (key, text) = (dirs.path("key"), |path: &Path| {
        format!("file:{}", path.display())
    });
    std::fs::write(&key, CANARY).unwrap();
    dirs.describe(
        "pay",
        &format!(
            "base_url = {:?}\nauth = {{ bearer = {:?} }}\nbackoff = {{ initial = \"1ms\" }}\n[effects.\"pay.charge\"]\npath = \"/c\"\nheaders = {{ x-key = \"{{{}}}\" }}\n",
            shop.url, text(&key), text(&key)
        ),
    );
    let node = dirs.start().await;
    node.pay("", "o-1", json!({})).await;
    let failed = node.end("", "o-1").await;
    assert_eq!(failed["status"], "failed");
    std::fs::write(dirs.path("next"), REFRESHED).unwrap();
    std::fs::rename(dirs.path("next"), &key).unwrap();
    node.pay("", "o-2", json!({})).await;
    let done = node.end("", "o-2").await;
    assert_eq!(done["status"], "completed");
    let received = shop.received();
    assert_eq!(received.len(), 3);
    assert_eq!(
        received[0].header("authorization"),
        format!("Bearer {CANARY}")
    );
    assert_eq!(received[1].header("x-key"), CANARY);
    assert_eq!(received[2].header("x-key"), REFRESHED);

    check_clean("the API", format!("{failed}{done}").as_bytes());
    assert!(format!("{failed}").contains("[secret]"), "{failed}");
    for path in [
        "/info",
        "/metrics",
        "/v1/dead-letters",
        "/v1/inspect/history",
        "/v1/inspect/instance",
    ] {
        let (status, response) = node.ask(Method::GET, "", path, &Value::Null).await;
        assert!(
            status == StatusCode::OK || path.contains("inspect"),
            "{path}: {status}"
        );
        check_clean(path, response.to_string().as_bytes());
    }
    check_clean(
        "the configuration",
        toml::to_string(&*node.app.config).unwrap().as_bytes(),
    );
    check_clean(
        "the upstreams",
        format!("{:?}", node.app.catalog.upstream_statuses()).as_bytes(),
    );
    let dirs = node.stop().await;
    let mut stored = Vec::new();
    files(&dirs.path("data"), &mut stored);
    assert!(!stored.is_empty());
    check_clean("the data directory", &stored);
    let log = log.0.lock().clone();
    assert!(!log.is_empty());
    check_clean("the log", &log);
}
