//! Example worker that uses the NATS protocol directly.

use std::path::PathBuf;
use std::process::Command;

use orlog::config::Role;
use orlog_testkit::host::missing;
use orlog_testkit::nats_server::NatsServer;
use serde_json::json;

use super::{count, node, until};
use crate::effects::node::Dirs;
use crate::harness::process::Killed;

/// Returns the path of the client library.
fn library() -> PathBuf {
    let library = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/nats-py"));
    if !library.is_dir() {
        missing("nats-py", "nats");
    }
    library
}

/// Starts a worker; with a key, it verifies commands and signs results.
fn worker(server: &NatsServer, library: &PathBuf, key: Option<&str>) -> Killed {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/workers/nats/worker.py"
    );
    let mut python = Command::new("python3");
    python
        .args([script, "pay.charge"])
        .env("PYTHONPATH", library)
        .env("NATS_URL", server.url());
    python
        .env("WORKER_ACK_WAIT_SECONDS", "1")
        .env("ORLOG_SIGNING_KEY", key.unwrap_or_default());
    Killed::start(&mut python)
}

/// Requirements: R5.
#[tokio::test(flavor = "multi_thread")]
async fn python_worker_consumes_commands_from_nats() {
    let (server, library) = (NatsServer::start(), library());
    let dirs = Dirs::new(&[("pay", "kind = \"nats\"\neffects = [\"pay.charge\"]\n")]);
    let node = node(&server, &dirs, Role::Combined, |_| {}).await;
    for number in 0..20 {
        node.pay("acme", &format!("o-{number}"), json!({ "number": number }))
            .await;
    }
    let first_worker = worker(&server, &library, None);
    node.end("acme", "o-0").await;
    // One worker is killed under load; another one executes its work.
    drop(first_worker);
    let mut second_worker = worker(&server, &library, None);
    for number in 0..20 {
        assert_eq!(
            node.end("acme", &format!("o-{number}")).await["status"],
            "completed"
        );
    }
    assert_eq!(
        count(&server, "WORKFLOW_EVENTS", "tenant.acme.effect_result.>").await,
        20
    );
    second_worker.signal("TERM");
    until(|| std::future::ready(second_worker.0.try_wait().unwrap())).await;
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn python_worker_with_the_key_of_its_effect_verifies_commands_and_signs_results() {
    let (server, library) = (NatsServer::start(), library());
    let dirs = Dirs::new(&[("pay", "kind = \"nats\"\neffects = [\"pay.charge\"]\n")]);
    let key = "0123456789abcdef0123456789abcdef";
    std::fs::write(dirs.path("key"), key).unwrap();
    let reference = format!("file:{}", dirs.path("key").display())
        .parse()
        .unwrap();
    let node = node(&server, &dirs, Role::Combined, |config| {
        config.nats.signing.keys = vec![reference];
    })
    .await;
    // The command of the documentation.
    let mut derive = Command::new("sh");
    derive.args([
        "-c",
        "printf orlog.effect.pay.charge | openssl dgst -sha256 -hmac $KEY | sed 's/.* //'",
    ]);
    let derived = String::from_utf8(derive.env("KEY", key).output().unwrap().stdout).unwrap();
    node.pay("acme", "o-1", json!({ "text": "ä" })).await;
    let _worker = worker(&server, &library, Some(derived.trim()));
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
    node.app.stop().await.unwrap();
}
