//! The worker of the examples that speaks NATS itself.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use orlog::config::Role;
use orlog_testkit::nats_server::NatsServer;
use serde_json::json;

use super::{count, node, until};
use crate::node::Folders;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The client library; `None`: it is not installed.
fn library() -> Option<PathBuf> {
    let library = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/nats-py"));
    if library.is_dir() {
        return Some(library);
    }
    assert!(std::env::var("CI").is_err(), "nats-py is not installed; `make nats` installs it");
    eprintln!("skipped: nats-py is not installed; `make nats` installs it");
    None
}

fn worker(server: &NatsServer, library: &PathBuf) -> Running {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/workers/nats/worker.py");
    let mut python = Command::new("python3");
    python.args([script, "pay.charge"]).env("PYTHONPATH", library).env("NATS_URL", server.url());
    python.env("WORKER_ACK_WAIT_SECONDS", "1");
    Running(python.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_python_takes_its_commands_from_nats() {
    let (Some(server), Some(library)) = (NatsServer::start(), library()) else { return };
    let folders = Folders::new(&[("pay", "kind = \"nats\"\neffects = [\"pay.charge\"]\n")]);
    let node = node(&server, &folders, Role::Combined, |_| {}).await;
    for number in 0..20 {
        node.pay("acme", &format!("o-{number}"), json!({ "number": number })).await;
    }
    let lives = worker(&server, &library);
    node.end("acme", "o-0").await;
    // One is killed in the middle; another one does what it had in hand.
    drop(lives);
    let mut ends = worker(&server, &library);
    for number in 0..20 {
        assert_eq!(node.end("acme", &format!("o-{number}")).await["status"], "completed");
    }
    assert_eq!(count(&server, "WORKFLOW_EVENTS", "tenant.acme.effect_result.>").await, 20);
    let ended = Command::new("kill").args(["-TERM", &ends.0.id().to_string()]).status().unwrap();
    assert!(ended.success());
    until(async || ends.0.try_wait().unwrap()).await;
    node.app.stop().await.unwrap();
}
