//! Gateway over NATS. The responder implements the protocol itself.

use std::sync::Arc;

use orlog::config::Role;
use orlog_testkit::nats_server::NatsServer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::node;
use crate::effects::node::Dirs;

const ORDER: &str = r"
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { order: =event }
steps:
  - id: reserve
    do: { command: inventory.ReserveStock, id: =vars.order.orderId, data: =vars.order }
    ok: StockReserved
";

type ReceivedCommands = Arc<Mutex<Vec<(String, Value)>>>;

/// Responds to every request under `gateway.>` with the status that its command requests.
async fn gateway(server: &NatsServer, received: ReceivedCommands) {
    let stream = TcpStream::connect(("127.0.0.1", server.port))
        .await
        .unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB gateway.> 1\r\nPING\r\n";
    writer.write_all(hello.as_bytes()).await.unwrap();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let mut ready = Some(ready);
    tokio::spawn(async move {
        let mut line = String::new();
        while reader.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            let fields: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            line.clear();
            match fields.first().map(String::as_str) {
                Some("PING") => writer.write_all(b"PONG\r\n").await.unwrap(),
                Some("PONG") => drop(ready.take().map(|ready| ready.send(()))),
                Some("HMSG") => {
                    let [subject, reply, headers, all] =
                        [1, 3, 4, 5].map(|index| fields[index].clone());
                    let (headers, all): (usize, usize) =
                        (headers.parse().unwrap(), all.parse().unwrap());
                    let mut bytes = vec![0; all + 2];
                    reader.read_exact(&mut bytes).await.unwrap();
                    let command: Value = serde_json::from_slice(&bytes[headers..all]).unwrap();
                    let status = command["payload_json"]["status"].as_u64().unwrap_or(202);
                    received.lock().push((subject, command));
                    let header = format!("NATS/1.0\r\nstatus: {status}\r\n\r\n");
                    let response = format!(
                        "HPUB {reply} {} {}\r\n{header}{{}}\r\n",
                        header.len(),
                        header.len() + 2
                    );
                    writer.write_all(response.as_bytes()).await.unwrap();
                }
                _ => {}
            }
        }
    });
    is_ready.await.unwrap();
}

/// Requirements: R5.
#[tokio::test(flavor = "multi_thread")]
async fn nats_gateway_accepts_rejects_and_retries_without_responders() {
    let server = NatsServer::start();
    let dirs = Dirs::new(&[]);
    std::fs::remove_file(dirs.path("definitions").join("payment.saga.yaml")).unwrap();
    dirs.define("order", ORDER);
    let node = node(&server, &dirs, Role::Combined, |config| {
        let gateway = json!({
            "subject": "gateway.{tenant}.{aggregate_type}",
            "backoff": { "initial": "10ms", "max": "50ms" },
        });
        config.gateway = Some(serde_json::from_value(gateway).unwrap());
    })
    .await;
    let place = async |order: &str, status: u64| {
        let data = json!({ "orderId": order, "status": status });
        let event = json!({
            "specversion": "1.0", "id": format!("e-{order}"), "source": "urn:test", "type": "OrderPlaced", "data": data,
        });
        let (code, response) = node
            .ask(axum::http::Method::POST, "acme", "/v1/events", &event)
            .await;
        assert_eq!(code, axum::http::StatusCode::ACCEPTED, "{response}");
    };
    // No responder is subscribed yet; the request is retried until one is.
    place("o-1", 202).await;
    let is_there = |saga: &Value| saga["status"] == "running";
    node.until("acme", "/v1/sagas/order/o-1", is_there).await;
    let received = ReceivedCommands::default();
    gateway(&server, Arc::clone(&received)).await;
    super::until(async || (!received.lock().is_empty()).then_some(())).await;
    place("o-2", 422).await;
    assert_eq!(
        node.end_of("acme", "order", "o-2").await["status"],
        "failed"
    );
    let received = received.lock().clone();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].0, "gateway.acme.inventory");
    assert_eq!(
        (&received[0].1["command_type"], &received[0].1["tenant_id"]),
        (&json!("ReserveStock"), &json!("acme"))
    );
    node.app.stop().await.unwrap();
}
