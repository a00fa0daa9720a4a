//! Servers with the streams, and what the tests have in common.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::effect_queue::{EffectQueue, Look, encode_command};
use orlog_bus::nats::{Connection, NatsEffects, Options};
use orlog_bus::requests::Requests;
use orlog_bus::{Message, effect_queue};
use orlog_model::{
    Clock, CorrelationId, Effect, EffectName, EventId, InstanceKey, Name, SagaName, TenantId, Work, WorkItem,
};
use orlog_testkit::WallClock;
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use serde_json::{Value, json};
use uuid::Uuid;

/// What does not happen within this does not happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) enum Servers {
    One(NatsServer),
    Three(NatsCluster),
}

/// Servers, and a queue on them.
pub(crate) struct Ground {
    pub(crate) servers: Servers,
    pub(crate) connection: Connection,
    pub(crate) queue: Arc<dyn EffectQueue>,
}

impl Ground {
    /// One server. `None`: it is not installed.
    pub(crate) async fn one() -> Option<Self> {
        let server = NatsServer::start()?;
        let urls = vec![server.url()];
        Some(Self::on(Servers::One(server), urls, 1).await)
    }

    /// Three servers with three copies of everything.
    pub(crate) async fn three() -> Option<Self> {
        let cluster = NatsCluster::start(3)?;
        let urls = cluster.urls();
        Some(Self::on(Servers::Three(cluster), urls, 3).await)
    }

    async fn on(servers: Servers, urls: Vec<String>, replicas: usize) -> Self {
        let connection = connect(&urls).await;
        for (name, kinds) in [
            ("WORKFLOW_COMMANDS", ["effect", "workflow"]),
            ("WORKFLOW_EVENTS", ["effect_result", "workflow_event"]),
            ("WORKFLOW_DEADLETTERS", ["deadletter", "deadletter_none"]),
        ] {
            let subjects: Vec<String> =
                kinds.iter().flat_map(|kind| [format!("{kind}.>"), format!("tenant.*.{kind}.>")]).collect();
            let config = json!({
                "name": name, "subjects": subjects, "num_replicas": replicas, "storage": "file",
                "retention": "limits", "discard": "old", "max_age": 0, "max_bytes": -1, "max_msgs": -1,
                "max_consumers": -1, "allow_direct": true, "duplicate_window": 120_000_000_000_u64,
            });
            until(async || api(&connection, &format!("STREAM.CREATE.{name}"), config.clone()).await).await;
        }
        let queue = Arc::new(NatsEffects::new(connection.clone()));
        Self { servers, connection, queue }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        match &self.servers {
            Servers::One(server) => vec![server.url()],
            Servers::Three(cluster) => cluster.urls(),
        }
    }

    /// Kills the only server and starts it again.
    pub(crate) fn restart(&mut self) {
        let Servers::One(server) = &mut self.servers else { panic!("it is a cluster") };
        server.kill();
        server.restart();
    }

    /// Loses what a stream holds, as if nobody had ever published it.
    pub(crate) async fn purge(&self, stream: &str) {
        until(async || api(&self.connection, &format!("STREAM.PURGE.{stream}"), json!({})).await).await;
    }

    /// Messages under a filter of a stream.
    pub(crate) async fn count(&self, stream: &str, filter: &str) -> usize {
        let wanted = json!({ "subjects_filter": filter });
        let info =
            until(async || api(&self.connection, &format!("STREAM.INFO.{stream}"), wanted.clone()).await)
                .await;
        let subjects = info["state"]["subjects"].as_object();
        let counts = subjects.into_iter().flat_map(|subjects| subjects.values().filter_map(Value::as_u64));
        usize::try_from(counts.sum::<u64>()).unwrap()
    }

    /// The word on a command, once there is one.
    pub(crate) async fn word(&self, item: &WorkItem) -> Message {
        let subject = effect_queue::result_subject(item, &effect_of(item).name);
        until(async || self.queue.word(&subject, Look::Sure).await.ok().flatten()).await
    }

    /// The JSON of the word on a command.
    pub(crate) async fn said(&self, item: &WorkItem) -> Value {
        serde_json::from_slice(&self.word(item).await.payload).unwrap()
    }
}

pub(crate) async fn connect(urls: &[String]) -> Connection {
    let options = Options { servers: urls.to_vec(), name: "test".to_owned(), ..Options::default() };
    until(async || Connection::open(&options).await.ok()).await
}

async fn api(connection: &Connection, what: &str, body: Value) -> Option<Value> {
    let message = Message {
        subject: format!("$JS.API.{what}"),
        id: None,
        headers: Vec::new(),
        payload: body.to_string().into(),
    };
    let answer = connection.request(message, Duration::from_secs(5)).await.ok()?;
    let answer: Value = serde_json::from_slice(&answer.payload).ok()?;
    answer.get("error").is_none().then_some(answer)
}

/// Asks again and again, for as long as patience lasts.
pub(crate) async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        loop {
            looks.tick().await;
            if let Some(found) = ask().await {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it happens in time")
}

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(WallClock)
}

/// A command to an effect, of the default tenant.
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
            tag: Name::new("do").unwrap(),
            name: EffectName::new(effect).unwrap(),
            payload: json!({ "number": number.to_string() }),
            timeout: None,
            retry: None,
            in_doubt: None,
        }),
        deadline: None,
        causation: EventId::new("e-1").unwrap(),
        trace: None,
        created_at: clock().now(),
    }
}

pub(crate) fn effect_of(item: &WorkItem) -> &Effect {
    let Work::Effect(effect) = &item.work else { panic!("it is an effect") };
    effect
}

pub(crate) fn effect_mut(item: &mut WorkItem) -> &mut Effect {
    let Work::Effect(effect) = &mut item.work else { panic!("it is an effect") };
    effect
}

pub(crate) fn command(item: &WorkItem, offer: u32) -> Message {
    encode_command(item, effect_of(item), offer)
}
