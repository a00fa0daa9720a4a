//! Effects outside the process: nodes of different roles, external workers, the gateway over NATS.

mod consumers;
mod dead_letters;
mod gateway;
mod processes;
mod python;
mod replay;
mod separate_roles;
mod signing;

use std::time::Duration;

use orlog::Config;
use orlog::config::{BusConfig, BusKind, NatsConfig, QueueConfig, Role};
use orlog_bus::Message;
use orlog_bus::nats::{Connection, Options};
use orlog_bus::requests::RequestClient;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use crate::effects::node::{Dirs, Node};

/// Starts a node of a role with these directories. `more` changes other settings of its configuration.
pub(crate) async fn node(
    server: &NatsServer,
    dirs: &Dirs,
    role: Role,
    more: impl FnOnce(&mut Config),
) -> Node {
    dirs.start_with(|settings| *settings = config(server, dirs, role, more))
        .await
}

pub(crate) fn config(
    server: &NatsServer,
    dirs: &Dirs,
    role: Role,
    more: impl FnOnce(&mut Config),
) -> Config {
    let mut config = Config {
        node_name: format!("{}-1", role.as_str()),
        role,
        data_dir: dirs.path("data"),
        definitions_dir: Some(dirs.path("definitions")),
        upstreams_dir: Some(dirs.path("effects")),
        bus: BusConfig {
            kind: BusKind::Nats,
            ..BusConfig::default()
        },
        nats: NatsConfig {
            servers: vec![server.url()],
            manage_aggregate_stream: true,
            ..NatsConfig::default()
        },
        queue: QueueConfig {
            ack_wait: Duration::from_secs(1),
            redispatch_after: Duration::from_secs(1),
            ..QueueConfig::default()
        },
        ..Config::default()
    };
    more(&mut config);
    config
}

/// Returns the number of messages under a filter of a stream; 0 if the stream does not exist.
pub(crate) async fn count(server: &NatsServer, stream: &str, filter: &str) -> u64 {
    let response = api(
        server,
        &format!("STREAM.INFO.{stream}"),
        &json!({ "subjects_filter": filter }),
    )
    .await;
    let subjects = response["state"]["subjects"].as_object();
    subjects
        .into_iter()
        .flat_map(|subjects| subjects.values().filter_map(Value::as_u64))
        .sum()
}

pub(crate) async fn api(server: &NatsServer, operation: &str, body: &Value) -> Value {
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        ..Options::default()
    };
    let connection = Connection::open(&options).await.unwrap();
    let subject = format!("$JS.API.{operation}");
    let question = Message {
        subject,
        id: None,
        headers: Vec::new(),
        payload: body.to_string().into(),
    };
    let response = connection
        .request(question, Duration::from_secs(5))
        .await
        .unwrap();
    serde_json::from_slice(&response.payload).unwrap()
}

/// Repeats a call until it returns a value.
#[track_caller]
pub(crate) fn until<T, F: Future<Output = Option<T>>>(
    poll: impl FnMut() -> F,
) -> impl Future<Output = T> {
    orlog_testkit::wait::until("the condition", poll)
}
