//! Effects that leave the process: nodes of different roles, workers of other makes, the gateway asked over NATS.

#[path = "nats/gateway.rs"]
mod gateway;
#[path = "nats/processes.rs"]
mod processes;
#[path = "nats/python.rs"]
mod python;
#[path = "nats/replay.rs"]
mod replay;
#[path = "nats/separate_roles.rs"]
mod separate_roles;

use std::sync::Arc;
use std::time::Duration;

use orlog::config::{Bus, BusKind, Nats, Queue, Role};
use orlog::{App, Config, Seams};
use orlog_bus::Message;
use orlog_bus::nats::{Connection, Options};
use orlog_bus::requests::Requests;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use crate::node::{Folders, Node, PATIENCE};

/// A node in a role that knows these folders. `more` changes the rest of its configuration.
pub(crate) async fn node(
    server: &NatsServer,
    folders: &Folders,
    role: Role,
    more: impl FnOnce(&mut Config),
) -> Node {
    let app = App::start_with(config(server, folders, role, more), Seams::default()).await.unwrap();
    let router = orlog::api::router(Arc::clone(&app));
    Node { app, router, folder: Arc::clone(&folders.0) }
}

pub(crate) fn config(
    server: &NatsServer,
    folders: &Folders,
    role: Role,
    more: impl FnOnce(&mut Config),
) -> Config {
    let mut config = Config {
        node: format!("{}-1", role.as_str()),
        roles: role,
        data: folders.path("data"),
        definitions: Some(folders.path("definitions")),
        effects: Some(folders.path("effects")),
        bus: Bus { kind: BusKind::Nats, ..Bus::default() },
        nats: Nats { servers: vec![server.url()], own_aggregate_stream: true, ..Nats::default() },
        queue: Queue {
            ack_wait: Duration::from_secs(1),
            patience: Duration::from_secs(1),
            ..Queue::default()
        },
        ..Config::default()
    };
    more(&mut config);
    config
}

/// How many messages lie under a filter of a stream; 0 where there is no stream yet.
pub(crate) async fn count(server: &NatsServer, stream: &str, filter: &str) -> u64 {
    let answer = api(server, &format!("STREAM.INFO.{stream}"), &json!({ "subjects_filter": filter })).await;
    let subjects = answer["state"]["subjects"].as_object();
    subjects.into_iter().flat_map(|subjects| subjects.values().filter_map(Value::as_u64)).sum()
}

pub(crate) async fn api(server: &NatsServer, what: &str, body: &Value) -> Value {
    let options = Options { servers: vec![server.url()], name: "test".to_owned(), ..Options::default() };
    let connection = Connection::open(&options).await.unwrap();
    let subject = format!("$JS.API.{what}");
    let question = Message { subject, id: None, headers: Vec::new(), payload: body.to_string().into() };
    let answer = connection.request(question, Duration::from_secs(5)).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

/// Asks again and again, for as long as patience lasts.
pub(crate) async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            if let Some(found) = ask().await {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE * 3, wait).await.expect("it happens in time")
}
