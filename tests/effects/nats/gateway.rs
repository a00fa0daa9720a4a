//! The gateway, asked over NATS. Whoever answers speaks the protocol itself.

use std::sync::{Arc, Mutex};

use orlog::config::Role;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::node;
use crate::node::Folders;

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

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers every question under `gateway.>` with the status that its command asks for.
async fn gateway(server: &NatsServer, asked: Asked) {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB gateway.> 1\r\nPING\r\n";
    writer.write_all(hello.as_bytes()).await.unwrap();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let mut ready = Some(ready);
    tokio::spawn(async move {
        let mut line = String::new();
        while reader.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            line.clear();
            match words.first().map(String::as_str) {
                Some("PING") => writer.write_all(b"PONG\r\n").await.unwrap(),
                Some("PONG") => drop(ready.take().map(|ready| ready.send(()))),
                Some("HMSG") => {
                    let [subject, reply, headers, all] = [1, 3, 4, 5].map(|index| words[index].clone());
                    let (headers, all): (usize, usize) = (headers.parse().unwrap(), all.parse().unwrap());
                    let mut bytes = vec![0; all + 2];
                    reader.read_exact(&mut bytes).await.unwrap();
                    let command: Value = serde_json::from_slice(&bytes[headers..all]).unwrap();
                    let status = command["payload_json"]["status"].as_u64().unwrap_or(202);
                    asked.lock().unwrap().push((subject, command));
                    let head = format!("NATS/1.0\r\nstatus: {status}\r\n\r\n");
                    let answer = format!("HPUB {reply} {} {}\r\n{head}{{}}\r\n", head.len(), head.len() + 2);
                    writer.write_all(answer.as_bytes()).await.unwrap();
                }
                _ => {}
            }
        }
    });
    is_ready.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_accepted_and_refused_over_nats_and_wait_for_somebody_to_listen() {
    let Some(server) = NatsServer::start() else { return };
    let folders = Folders::new(&[]);
    std::fs::remove_file(folders.path("definitions").join("payment.saga.yaml")).unwrap();
    folders.define("order", ORDER);
    let node = node(&server, &folders, Role::Combined, |config| {
        let gateway = json!({
            "subject": "gateway.{tenant}.{aggregate_type}",
            "backoff": { "first": "10ms", "max": "50ms" },
        });
        config.gateway = Some(serde_json::from_value(gateway).unwrap());
    })
    .await;
    let place = async |order: &str, status: u64| {
        let data = json!({ "orderId": order, "status": status });
        let event = json!({
            "specversion": "1.0", "id": format!("e-{order}"), "source": "urn:test", "type": "OrderPlaced", "data": data,
        });
        let (code, answer) = node.ask(axum::http::Method::POST, "acme", "/v1/events", &event).await;
        assert_eq!(code, axum::http::StatusCode::ACCEPTED, "{answer}");
    };
    // Nobody listens yet: it is tried again until somebody does.
    place("o-1", 202).await;
    let is_there = |saga: &Value| saga["status"] == "running";
    node.until("acme", "/v1/sagas/order/o-1", is_there).await;
    let asked = Asked::default();
    gateway(&server, Arc::clone(&asked)).await;
    super::until(async || (!asked.lock().unwrap().is_empty()).then_some(())).await;
    place("o-2", 422).await;
    assert_eq!(node.end_of("acme", "order", "o-2").await["status"], "failed");
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].0, "gateway.acme.inventory");
    assert_eq!(
        (&asked[0].1["command_type"], &asked[0].1["tenant_id"]),
        (&json!("ReserveStock"), &json!("acme"))
    );
    node.app.stop().await.unwrap();
}
