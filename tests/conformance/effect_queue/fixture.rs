//! Servers with the streams, and shared helpers of the tests.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::effect_queue::{EffectQueue, ReadConsistency, encode_command};
use orlog_bus::nats::{Connection, NatsEffectQueue, Options};
use orlog_bus::requests::RequestClient;
use orlog_bus::{Message, effect_queue};
use orlog_model::{
    Clock, CorrelationId, Effect, EffectName, EventId, InstanceKey, Name, SagaName, TenantId, Work,
    WorkItem,
};
use orlog_testkit::WallClock;
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::wait;
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) enum Servers {
    One(NatsServer),
    Three(NatsCluster),
}

/// Stream of the queue.
pub(crate) struct QueueStream {
    name: &'static str,
    kinds: [&'static str; 2],
}

pub(crate) const COMMANDS: QueueStream = QueueStream {
    name: "WORKFLOW_COMMANDS",
    kinds: ["effect", "workflow"],
};

const STREAMS: [QueueStream; 3] = [
    COMMANDS,
    QueueStream {
        name: "WORKFLOW_EVENTS",
        kinds: ["effect_result", "workflow_event"],
    },
    QueueStream {
        name: "WORKFLOW_DEADLETTERS",
        kinds: ["deadletter", "deadletter_none"],
    },
];

/// Creates a stream of the queue.
pub(crate) async fn create_stream(connection: &Connection, stream: &QueueStream, replicas: usize) {
    let QueueStream { name, kinds } = stream;
    let subjects: Vec<String> = kinds
        .iter()
        .flat_map(|kind| [format!("{kind}.>"), format!("tenant.*.{kind}.>")])
        .collect();
    let config = json!({
        "name": name, "subjects": subjects, "num_replicas": replicas, "storage": "file",
        "retention": "limits", "discard": "old", "max_age": 0, "max_bytes": -1, "max_msgs": -1,
        "max_consumers": -1, "allow_direct": true, "duplicate_window": 120_000_000_000_u64,
    });
    let operation = format!("STREAM.CREATE.{name}");
    until(async || api(connection, &operation, config.clone()).await).await;
}

/// Servers and a queue on them.
pub(crate) struct QueueFixture {
    pub(crate) servers: Servers,
    pub(crate) connection: Connection,
    pub(crate) queue: Arc<dyn EffectQueue>,
}

impl QueueFixture {
    /// Starts one server.
    pub(crate) async fn one() -> Self {
        let server = NatsServer::start();
        let urls = vec![server.url()];
        Self::on(Servers::One(server), urls, 1).await
    }

    /// Starts three servers with three replicas of each stream.
    pub(crate) async fn three() -> Self {
        let cluster = NatsCluster::start(3);
        let urls = cluster.urls();
        Self::on(Servers::Three(cluster), urls, 3).await
    }

    async fn on(servers: Servers, urls: Vec<String>, replicas: usize) -> Self {
        let connection = connect(&urls).await;
        for stream in STREAMS {
            create_stream(&connection, &stream, replicas).await;
        }
        let queue = Arc::new(NatsEffectQueue::new(connection.clone()));
        Self {
            servers,
            connection,
            queue,
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        match &self.servers {
            Servers::One(server) => vec![server.url()],
            Servers::Three(cluster) => cluster.urls(),
        }
    }

    /// Kills and restarts the only server.
    pub(crate) fn restart(&mut self) {
        let Servers::One(server) = &mut self.servers else {
            panic!("it is a cluster")
        };
        server.kill();
        server.restart();
    }

    /// Deletes all messages of a stream, as if they had never been published.
    pub(crate) async fn purge(&self, stream: &str) {
        until(async || {
            api(
                &self.connection,
                &format!("STREAM.PURGE.{stream}"),
                json!({}),
            )
            .await
        })
        .await;
    }

    /// Returns the number of messages under a filter of a stream.
    pub(crate) async fn count(&self, stream: &str, filter: &str) -> usize {
        let query = json!({ "subjects_filter": filter });
        let info = until(async || {
            api(
                &self.connection,
                &format!("STREAM.INFO.{stream}"),
                query.clone(),
            )
            .await
        })
        .await;
        let subjects = info["state"]["subjects"].as_object();
        let counts = subjects
            .into_iter()
            .flat_map(|subjects| subjects.values().filter_map(Value::as_u64));
        usize::try_from(counts.sum::<u64>()).unwrap()
    }

    /// Waits for the result of a command.
    pub(crate) async fn result_message(&self, item: &WorkItem) -> Message {
        let subject = effect_queue::result_subject(item, &effect_of(item).name);
        until(async || {
            self.queue
                .result(&subject, ReadConsistency::Linearizable)
                .await
                .ok()
                .flatten()
        })
        .await
    }

    /// Returns the JSON of the result of a command.
    pub(crate) async fn result_json(&self, item: &WorkItem) -> Value {
        serde_json::from_slice(&self.result_message(item).await.payload).unwrap()
    }
}

pub(crate) async fn connect(urls: &[String]) -> Connection {
    let options = Options {
        servers: urls.to_vec(),
        name: "test".to_owned(),
        ..Options::default()
    };
    until(async || Connection::open(&options).await.ok()).await
}

pub(crate) async fn api(connection: &Connection, operation: &str, body: Value) -> Option<Value> {
    let message = Message {
        subject: format!("$JS.API.{operation}"),
        id: None,
        headers: Vec::new(),
        payload: body.to_string().into(),
    };
    let response = connection
        .request(message, Duration::from_secs(5))
        .await
        .ok()?;
    let response: Value = serde_json::from_slice(&response.payload).ok()?;
    response.get("error").is_none().then_some(response)
}

/// Repeats a call until it returns a value.
#[track_caller]
pub(crate) fn until<T, F: Future<Output = Option<T>>>(
    poll: impl FnMut() -> F,
) -> impl Future<Output = T> {
    wait::until("the condition", poll)
}

#[track_caller]
pub(crate) fn in_time<T>(operation: impl Future<Output = T>) -> impl Future<Output = T> {
    wait::within("the operation", operation)
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(WallClock)
}

/// Returns a command to an effect, of the default tenant.
pub(crate) fn item(effect: &str, number: u128) -> WorkItem {
    item_of("", effect, number)
}

pub(crate) fn item_of(tenant: &str, effect: &str, number: u128) -> WorkItem {
    WorkItem {
        id: Uuid::from_u128(number),
        instance: InstanceKey {
            tenant: TenantId::new(tenant).unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(format!("o-{number}")).unwrap(),
        },
        work: Work::Effect(Effect {
            round: 0,
            tag: Name::new("do").unwrap(),
            name: EffectName::new(effect).unwrap(),
            payload: json!({ "number": number.to_string() }),
            timeout: None,
            retry: None,
            schema_version: 1,
            in_doubt: None,
            priority: orlog_model::Priority::Normal,
        }),
        deadline: None,
        causation: EventId::new("e-1").unwrap(),
        trace: None,
        created_at: clock().now(),
        priority: orlog_model::Priority::Normal,
    }
}

pub(crate) fn effect_of(item: &WorkItem) -> &Effect {
    let Work::Effect(effect) = &item.work else {
        panic!("it is an effect")
    };
    effect
}

pub(crate) fn effect_mut(item: &mut WorkItem) -> &mut Effect {
    let Work::Effect(effect) = &mut item.work else {
        panic!("it is an effect")
    };
    effect
}

pub(crate) fn command(item: &WorkItem, offer: u32) -> Message {
    encode_command(item, effect_of(item), offer)
}
