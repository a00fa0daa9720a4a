//! Roles as processes of the real binary; one is killed under load.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use orlog::config::Role;
use orlog_testkit::host::free_port;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use super::{count, node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;
use crate::harness::http::{HttpResponse, client, send};
use crate::harness::process::{Killed, orlog};

/// Node of a role that is ready; killed on drop.
struct Process {
    child: Killed,
    url: String,
    client: reqwest::Client,
}

impl Process {
    async fn start(server: &NatsServer, dirs: &Dirs, role: &str, name: &str) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let text = |path: &Path| path.display().to_string();
        let mut command = orlog(&["run"]);
        command.envs([
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
        let child = Killed::start(command.stderr(Stdio::null()));
        let process = Self {
            child,
            url: format!("http://{listen}"),
            client: client(),
        };
        until(async || {
            let response = process
                .client
                .get(format!("{}/ready", process.url))
                .send()
                .await
                .ok()?;
            (response.status() == 200).then_some(())
        })
        .await;
        process
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> HttpResponse {
        send(
            &self.client,
            method,
            format!("{}{path}", self.url),
            &[],
            body,
        )
        .await
    }

    fn terminate(&mut self) -> Option<i32> {
        self.child.signal("TERM");
        self.child.wait()
    }
}

fn pay(shop: &HttpUpstream) -> String {
    format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_of_a_killed_worker_are_reassigned() {
    const ORDERS: usize = 60;
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    let killed = Process::start(&server, &dirs, "effect", "dies").await;
    shop.permits.forget_permits(usize::MAX);
    for number in 0..ORDERS {
        sagas.pay("", &format!("o-{number}"), json!({})).await;
    }
    // The maximum number of calls is in flight, and none has a response.
    shop.wait_for_requests(8).await;
    drop(killed);
    shop.permits.add_permits(1_000_000);
    let mut survivor = Process::start(&server, &dirs, "effect", "lives").await;
    for number in 0..ORDERS {
        assert_eq!(
            sagas.end("", &format!("o-{number}")).await["status"],
            "completed"
        );
    }
    let received = shop.received();
    let keys: std::collections::BTreeSet<_> = received
        .iter()
        .map(|received| received.header("idempotency-key"))
        .collect();
    assert_eq!(keys.len(), ORDERS, "one key an order");
    assert_eq!(
        received.len(),
        ORDERS + 8,
        "those that it had in hand were asked for twice"
    );
    assert_eq!(
        count(&server, "WORKFLOW_EVENTS", "effect_result.>").await,
        ORDERS as u64
    );
    assert_eq!(survivor.terminate(), Some(0));
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_effect_processes_share_the_work() {
    let server = NatsServer::start();
    let shop: Arc<HttpUpstream> = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let mut sagas = Process::start(&server, &dirs, "saga", "sagas").await;
    let mut effects = Process::start(&server, &dirs, "effect", "effects").await;
    assert_eq!(
        effects.send("GET", "/info", None).await.ok()["roles"],
        json!(["effect"])
    );
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "urn:test", "type": "PaymentAsked", "data": { "orderId": "o-1" },
    });
    assert_eq!(
        sagas.send("POST", "/v1/events", Some(&event)).await.status,
        202
    );
    until(async || {
        let saga = sagas
            .send("GET", "/v1/sagas/payment/o-1", None)
            .await
            .json();
        (saga["status"] == "completed").then_some(())
    })
    .await;
    assert_eq!(shop.received().len(), 1);
    assert_eq!((effects.terminate(), sagas.terminate()), (Some(0), Some(0)));
}
