//! Roles as processes of the real binary; one is killed under load.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use orlog::config::Role;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{count, node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

/// Process of the binary; killed on drop.
struct Process {
    child: Child,
    address: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Process {
    async fn start(server: &NatsServer, dirs: &Dirs, role: &str, name: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlog"));
        let text = |path: &Path| path.display().to_string();
        let listen = format!("127.0.0.1:{port}");
        for name in ["ORLOG_CONFIG", "ORLOG_NATS_SERVER"] {
            command.env_remove(name);
        }
        command.arg("run").envs([
            ("ORLOG_ROLE", role),
            ("ORLOG_NODE_NAME", name),
            ("ORLOG_LISTEN", &listen),
            ("ORLOG_DATA_DIR", &text(&dirs.path(&format!("data-{name}")))),
            ("ORLOG_DEFINITIONS_DIR", &text(&dirs.path("definitions"))),
            ("ORLOG_UPSTREAMS_DIR", &text(&dirs.path("effects"))),
            ("ORLOG_BUS__KIND", "nats"),
            ("ORLOG_NATS__SERVERS", &server.url()),
            ("ORLOG_NATS__MANAGE_AGGREGATE_STREAM", "true"),
            ("ORLOG_QUEUE__ACK_WAIT", "1s"),
            ("ORLOG_QUEUE__MAX_IN_FLIGHT", "8"),
        ]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let process = Self { child, address: listen };
        until(async || process.request("GET", "/ready", "").await.ok().filter(|response| response.0 == 200))
            .await;
        process
    }

    /// Sends a request; returns the status and the body of the response.
    async fn request(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/cloudevents+json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or_default();
        Ok((status, body.to_owned()))
    }

    async fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.request("GET", path, "").await.unwrap().1).unwrap()
    }

    fn terminate(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

fn pay(shop: &HttpUpstream) -> String {
    format!("base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n", shop.url)
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_of_a_killed_worker_are_reassigned() {
    const ORDERS: usize = 60;
    let Some(server) = NatsServer::start() else { return };
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    let mut killed = Process::start(&server, &dirs, "effect", "dies").await;
    shop.permits.forget_permits(usize::MAX);
    for number in 0..ORDERS {
        sagas.pay("", &format!("o-{number}"), json!({})).await;
    }
    // The maximum number of calls is in flight, and none has a response.
    shop.wait_for_requests(8).await;
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    shop.permits.add_permits(1_000_000);
    let mut survivor = Process::start(&server, &dirs, "effect", "lives").await;
    for number in 0..ORDERS {
        assert_eq!(sagas.end("", &format!("o-{number}")).await["status"], "completed");
    }
    let received = shop.received();
    let keys: std::collections::BTreeSet<_> =
        received.iter().map(|received| received.header("idempotency-key")).collect();
    assert_eq!(keys.len(), ORDERS, "one key an order");
    assert_eq!(received.len(), ORDERS + 8, "those that it had in hand were asked for twice");
    assert_eq!(count(&server, "WORKFLOW_EVENTS", "effect_result.>").await, ORDERS as u64);
    assert_eq!(survivor.terminate(), Some(0));
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_effect_processes_share_the_work() {
    let Some(server) = NatsServer::start() else { return };
    let shop: Arc<HttpUpstream> = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let mut sagas = Process::start(&server, &dirs, "saga", "sagas").await;
    let mut effects = Process::start(&server, &dirs, "effect", "effects").await;
    assert_eq!(effects.get("/info").await["roles"], json!(["effect"]));
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "urn:test", "type": "PaymentAsked", "data": { "orderId": "o-1" },
    });
    assert_eq!(sagas.request("POST", "/v1/events", &event.to_string()).await.unwrap().0, 202);
    until(async || {
        let saga = sagas.get("/v1/sagas/payment/o-1").await;
        (saga["status"] == "completed").then_some(())
    })
    .await;
    assert_eq!(shop.received().len(), 1);
    assert_eq!((effects.terminate(), sagas.terminate()), (Some(0), Some(0)));
}
