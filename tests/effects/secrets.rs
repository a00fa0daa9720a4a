//! A canary: a secret that is sent to an upstream, and that comes back in its errors, is found nowhere but at the upstream.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http_upstream::Shop;
use crate::node::Folders;

const CANARY: &str = "canary-5be7\"c0ffee";
const REFRESHED: &str = "canary-again-77aa";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Everything that lies in the files of the node.
fn files(folder: &Path, text: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, text);
        } else {
            text.extend(std::fs::read(&path).unwrap());
        }
    }
}

#[track_caller]
fn check_clean(place: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for secret in [CANARY, "canary-5be7", REFRESHED] {
        assert!(!text.contains(secret), "{place} shows the secret");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_seen_by_its_upstream_and_by_nobody_else() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("trace")
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("the first of this process");
    let shop = Shop::open().await;
    let echo = format!("{{\"error\": {}, \"code\": \"denied\"}}", Value::from(format!("no: {CANARY}")));
    shop.answers(503, &[], &echo);
    shop.answers(402, &[], &echo);
    shop.answers(200, &[], &format!("{{\"you\": {REFRESHED:?}}}"));
    let folders = Folders::new(&[]);
    let (key, text) = (folders.path("key"), |path: &Path| format!("file:{}", path.display()));
    std::fs::write(&key, CANARY).unwrap();
    folders.describe(
        "pay",
        &format!(
            "base_url = {:?}\nauth = {{ bearer = {:?} }}\nbackoff = {{ first = \"1ms\" }}\n[effects.\"pay.charge\"]\npath = \"/c\"\nheaders = {{ x-key = \"{{{}}}\" }}\n",
            shop.url, text(&key), text(&key)
        ),
    );
    let node = folders.start().await;
    node.pay("", "o-1", json!({})).await;
    let failed = node.end("", "o-1").await;
    assert_eq!(failed["status"], "failed");
    std::fs::write(folders.path("next"), REFRESHED).unwrap();
    std::fs::rename(folders.path("next"), &key).unwrap();
    node.pay("", "o-2", json!({})).await;
    let done = node.end("", "o-2").await;
    assert_eq!(done["status"], "completed");
    let asked = shop.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].header("authorization"), format!("Bearer {CANARY}"));
    assert_eq!(asked[1].header("x-key"), CANARY);
    assert_eq!(asked[2].header("x-key"), REFRESHED);

    check_clean("the API", format!("{failed}{done}").as_bytes());
    assert!(format!("{failed}").contains("[secret]"), "{failed}");
    for path in ["/info", "/metrics", "/v1/dead-letters", "/v1/inspect/history", "/v1/inspect/instance"] {
        let (status, answer) = node.ask(Method::GET, "", path, &Value::Null).await;
        assert!(status == StatusCode::OK || path.contains("inspect"), "{path}: {status}");
        check_clean(path, answer.to_string().as_bytes());
    }
    check_clean("the configuration", toml::to_string(&node.app.config).unwrap().as_bytes());
    check_clean("the upstreams", format!("{:?}", node.app.catalog.conditions()).as_bytes());
    let folders = node.stop().await;
    let mut stored = Vec::new();
    files(&folders.path("data"), &mut stored);
    assert!(!stored.is_empty());
    check_clean("the data folder", &stored);
    let log = log.0.lock().unwrap().clone();
    assert!(!log.is_empty());
    check_clean("the log", &log);
}
