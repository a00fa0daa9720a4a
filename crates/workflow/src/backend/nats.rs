//! Backend in NATS JetStream: one stream with the last row of each instance, mirrored in the memory
//! of each process.
//!
//! | subject | message |
//! |---|---|
//! | `<stream>.row.<id>` | last row of an instance; empty after a purge |
//! | `<stream>.signal.<id>.<unique>` | signal, until it is consumed |
//! | `<stream>.graph.<hash>` | graph of a workflow |
//!
//! A process changes a row with the sequence of the row that it has read; the server rejects the
//! change if another process was faster. Ids are encoded as hexadecimal numbers.

mod mirror;

use std::fmt::Display;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RawMessageErrorKind, Stream};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::task::JoinSet;
use tracing::warn;

use self::mirror::{Mirror, Mirrored};
use super::table::Row;
use super::{
    Backend, BackendError, Claim, Fetched, Hub, InstanceId, NewInstance, Save, Signal,
    StoredInstance,
};

/// Maximum number of concurrent requests of one call.
const CONCURRENCY: usize = 256;
/// Maximum time until the reader reaches an own signal.
const READ_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// Delay before the mirror connects again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Backend in a stream of NATS JetStream. Processes that use the same stream share its instances.
///
/// Each process has all instances in memory. Ended instances remain until they are purged
/// ([`Backend::purge`]).
#[derive(Debug)]
pub struct NatsBackend {
    jetstream: Context,
    stream: Stream<()>,
    name: String,
    mirror: Mirror,
    hub: Hub,
    /// Reader of the stream; dropping it stops the reader.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it is dropped with the backend")
    )]
    reader: JoinSet<()>,
}

impl NatsBackend {
    /// Connects to a server, for example `nats://localhost:4222`, and uses the stream `name`.
    ///
    /// # Errors
    /// The errors of [`NatsBackend::new`].
    pub async fn connect(url: &str, name: &str) -> Result<Self, BackendError> {
        let client = async_nats::connect(url)
            .await
            .map_err(|error| unavailable("connect to NATS", error))?;
        Self::new(client, name).await
    }

    /// Uses the stream `name`. If it is missing, it is created with one replica; create it before
    /// with more replicas for a cluster: subjects `<name>.>`, one message for each subject, direct
    /// access allowed.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the server does not respond, or has no JetStream.
    pub async fn new(client: async_nats::Client, name: &str) -> Result<Self, BackendError> {
        let jetstream = async_nats::jetstream::new(client);
        jetstream
            .get_or_create_stream(config(name))
            .await
            .map_err(|error| unavailable("create its stream", error))?;
        let stream = jetstream
            .get_stream_no_info(name)
            .await
            .map_err(|error| unavailable("open its stream", error))?;

        let hub = Hub::default();
        let mirror = Mirror::new(name, hub.clone());

        let mut tasks = JoinSet::new();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tasks.spawn(read_all(
            stream.clone(),
            format!("{name}.>"),
            mirror.clone(),
            ready,
        ));

        // Until the mirror is complete, instances would seem to be missing.
        is_ready
            .await
            .unwrap_or_else(|_| Err("the reader has stopped".to_owned()))
            .map_err(|reason| unavailable("read its stream", reason))?;

        Ok(Self {
            jetstream,
            stream,
            name: name.to_owned(),
            mirror,
            hub,
            reader: tasks,
        })
    }

    /// Applies a change to a row until it is stored, or until it does not apply. Another process
    /// may change the row meanwhile.
    async fn change<T>(
        &self,
        action: &'static str,
        id: &str,
        change: impl Fn(&mut Row) -> Option<T> + Send + Sync,
    ) -> Result<Option<T>, BackendError> {
        let mut is_fresh = false;
        loop {
            let mirrored = self.mirror.row(id);
            let changed = mirrored.as_ref().and_then(|Mirrored { row, sequence }| {
                let mut row = row.clone();
                change(&mut row).map(|result| (row, *sequence, result))
            });
            let Some((row, sequence, result)) = changed else {
                if is_fresh {
                    return Ok(None);
                }
                // The mirror may be behind.
                self.refresh(action, id).await?;
                is_fresh = true;
                continue;
            };

            if self.store(action, row, sequence).await? {
                return Ok(Some(result));
            }

            // Another process has changed the row: the change is applied to the new one.
            self.refresh(action, id).await?;
            is_fresh = true;
        }
    }

    /// Stores a row, unless its subject has another sequence; returns whether it is stored.
    async fn store(
        &self,
        action: &'static str,
        row: Row,
        sequence: u64,
    ) -> Result<bool, BackendError> {
        // Signals are messages of their own, which any process can send.
        let payload = rmp_serde::to_vec(&row.without_signals())
            .map_err(|error| unavailable(action, error))?;

        let stored = self
            .replace(
                action,
                self.mirror.row_subject(&row.id),
                payload.into(),
                sequence,
            )
            .await?;

        if let Some(sequence) = stored {
            self.mirror.put(row, sequence);
        }
        Ok(stored.is_some())
    }

    /// Replaces the last message of a subject, unless the subject has another sequence; returns the
    /// sequence of the new message.
    async fn replace(
        &self,
        action: &'static str,
        subject: String,
        payload: Bytes,
        sequence: u64,
    ) -> Result<Option<u64>, BackendError> {
        let message = PublishMessage::build()
            .payload(payload)
            .expected_last_subject_sequence(sequence);

        let sent = self.jetstream.send_publish(subject, message).await;

        match async { sent?.await }.await {
            Ok(ack) => Ok(Some(ack.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(None),
            // In a cluster, a second message in flight is rejected with another code (10164).
            Err(error) if chain(&error).contains("wrong last sequence") => Ok(None),
            Err(error) => Err(unavailable(action, error)),
        }
    }

    /// Reads the last row of an instance from the stream.
    async fn refresh(&self, action: &'static str, id: &str) -> Result<(), BackendError> {
        match self
            .stream
            .get_last_raw_message_by_subject(&self.mirror.row_subject(id))
            .await
        {
            Ok(message) => {
                self.mirror
                    .apply(&message.subject, &message.payload, message.sequence);
                Ok(())
            }
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(()),
            Err(error) => Err(unavailable(action, error)),
        }
    }

    async fn publish(
        &self,
        action: &'static str,
        subject: String,
        payload: Bytes,
    ) -> Result<u64, BackendError> {
        let sent = self.jetstream.publish(subject, payload).await;
        let ack = async { sent?.await }
            .await
            .map_err(|error| unavailable(action, error))?;
        Ok(ack.sequence)
    }

    /// Deletes the signals that a snapshot contains.
    async fn delete_signals(&self, numbers: Vec<u64>) {
        for number in numbers {
            if let Err(error) = self.stream.delete_message(number).await {
                // A signal that remains is ignored: the row states that it is consumed.
                warn!(%error, number, "consumed signal not deleted");
            }
        }
    }
}

/// Receives whether the mirror contains the stream.
type Ready = tokio::sync::oneshot::Sender<Result<(), String>>;

/// Reads the stream into the mirror, from the last message of each subject on.
async fn read_all(stream: Stream<()>, filter: String, mirror: Mirror, ready: Ready) {
    let mut ready = Some(ready);
    loop {
        if let Err(error) = read(&stream, &filter, &mirror, &mut ready).await {
            warn!(error, "stream of the workflows not readable");
            if let Some(ready) = ready.take() {
                // The opener may have stopped to wait.
                ready.send(Err(error)).ok();
                return;
            }
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

async fn read(
    stream: &Stream<()>,
    filter: &str,
    mirror: &Mirror,
    ready: &mut Option<Ready>,
) -> Result<(), String> {
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::LastPerSubject,
        filter_subject: filter.to_owned(),
        ..OrderedConfig::default()
    };

    let consumer = stream
        .create_consumer(config)
        .await
        .map_err(|error| error.to_string())?;

    // An empty stream delivers no message that could state that it is read.
    let mut pending = consumer.cached_info().num_pending;
    let mut messages = consumer
        .messages()
        .await
        .map_err(|error| error.to_string())?;
    loop {
        if pending == 0
            && let Some(ready) = ready.take()
        {
            // The opener may have stopped to wait.
            ready.send(Ok(())).ok();
        }
        // The subscription has ended: the caller reads the stream again.
        let Some(message) = messages.next().await else {
            return Ok(());
        };

        let message = message.map_err(|error| error.to_string())?;
        let info = message.info().map_err(|error| error.to_string())?;

        pending = info.pending;
        mirror.apply(&message.subject, &message.payload, info.stream_sequence);
        // After the message is applied: `read_until` states that it is visible.
        mirror.set_read(info.stream_sequence);
    }
}

#[async_trait]
impl Backend for NatsBackend {
    async fn create(&self, instance: NewInstance) -> Result<bool, BackendError> {
        let action = "store an instance";
        let row = Row::new(instance);

        while self.mirror.row(&row.id).is_none() {
            if self
                .store(action, row.clone(), self.mirror.sequence(&row.id))
                .await?
            {
                return Ok(true);
            }
            // Another process has created the instance, or purged an earlier one.
            self.refresh(action, &row.id).await?;
        }
        Ok(false)
    }

    async fn load(&self, id: &str) -> Result<Option<StoredInstance>, BackendError> {
        if let Some(stored) = self.mirror.load(id) {
            return Ok(Some(stored));
        }

        // A new instance of another process may not be in the mirror yet.
        self.refresh("read an instance", id).await?;
        Ok(self.mirror.load(id))
    }

    async fn save(&self, save: Save) -> Result<(), BackendError> {
        // Read before the change, which removes the signals from the mirror.
        let consumed = self.mirror.consumed(&save.id, save.last_signal);

        let saved = self
            .change("store a snapshot", &save.id, |row| {
                row.save(save.clone()).then_some(())
            })
            .await?;

        saved.ok_or_else(|| BackendError::Fenced {
            id: InstanceId::clone(&save.id),
        })?;

        // The row is stored, and states which signals are consumed. If the process stops here, they
        // remain without effect.
        self.delete_signals(consumed).await;
        Ok(())
    }

    async fn fetch(&self, limit: usize, now_ms: u64) -> Result<Fetched, BackendError> {
        Ok(self.mirror.fetch(limit, now_ms))
    }

    async fn claim(
        &self,
        ids: &[InstanceId],
        claim: &Claim,
    ) -> Result<Vec<StoredInstance>, BackendError> {
        // One round trip for each instance: they are independent of each other, so they are in
        // flight together.
        let claims: Vec<_> = ids
            .iter()
            .map(|id| self.change("claim an instance", id, |row| row.claim(claim)))
            .collect();

        let claimed: Vec<_> = futures::stream::iter(claims)
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;

        Ok(claimed.into_iter().flatten().collect())
    }

    async fn take_over(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<StoredInstance>, BackendError> {
        self.change("claim an instance", id, |row| row.take_over(holder))
            .await
    }

    async fn extend(
        &self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Result<Vec<InstanceId>, BackendError> {
        let mut extends = Vec::with_capacity(claims.len());
        for (id, epoch) in claims {
            let id = InstanceId::clone(id);
            let epoch = *epoch;
            extends.push(async move {
                let extended = self.change("extend a claim", &id, |row| {
                    row.extend(epoch, until_ms).then_some(())
                });
                Ok::<_, BackendError>(extended.await?.is_none().then_some(id))
            });
        }

        let lost: Vec<_> = futures::stream::iter(extends)
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(lost.into_iter().flatten().collect())
    }

    async fn send_signal(
        &self,
        id: &str,
        name: &str,
        payload: Bytes,
    ) -> Result<bool, BackendError> {
        let action = "store a signal";
        // The mirror may not have the new instance of another process yet.
        if self.mirror.row(id).is_none() {
            self.refresh(action, id).await?;
        }

        if self
            .mirror
            .row(id)
            .is_none_or(|mirrored| mirrored.row.has_ended())
        {
            return Ok(false);
        }

        let signal = Signal {
            // The number is the sequence of the message, which is not known yet.
            number: 0,
            name: name.to_owned(),
            payload,
        };
        let payload = rmp_serde::to_vec(&signal).map_err(|error| unavailable(action, error))?;

        let subject = self.mirror.signal_subject(id);
        let number = self.publish(action, subject, payload.into()).await?;

        // Not applied here: an earlier signal of another process may not be in the mirror yet, and
        // an instance that receives a signal has no earlier one. The signal is durable, also if the
        // reader does not reach it in time.
        tokio::time::timeout(READ_TIMEOUT, self.mirror.read_until(number))
            .await
            .ok();
        Ok(true)
    }

    async fn signals(&self, id: &str, after: u64) -> Result<Vec<Signal>, BackendError> {
        Ok(self.mirror.signals(id, after))
    }

    async fn unended(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, BackendError> {
        Ok(self.mirror.unended(after, limit))
    }

    async fn put_graph(&self, hash: &str, graph: Bytes) -> Result<(), BackendError> {
        self.publish(
            "store a graph",
            format!("{}.graph.{hash}", self.name),
            graph,
        )
        .await
        .map(drop)
    }

    async fn graph(&self, hash: &str) -> Result<Option<Bytes>, BackendError> {
        match self
            .stream
            .get_last_raw_message_by_subject(&format!("{}.graph.{hash}", self.name))
            .await
        {
            Ok(message) => Ok(Some(message.payload)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable("read a graph", error)),
        }
    }

    async fn purge(&self, ended_before_ms: u64) -> Result<u64, BackendError> {
        let action = "purge instances";
        let ended = self.mirror.ended_before(ended_before_ms);
        for id in &ended {
            // The signals first: without its row, an instance is not found again.
            let filter = self.mirror.signal_subjects(id);
            self.stream
                .purge()
                .filter(filter)
                .await
                .map_err(|error| unavailable(action, error))?;

            // An empty message deletes the row in the other processes, unless one of them has
            // purged the instance before.
            let subject = self.mirror.row_subject(id);
            let sequence = self.mirror.sequence(id);
            if let Some(sequence) = self
                .replace(action, subject.clone(), Bytes::new(), sequence)
                .await?
            {
                // The reader applies it later. Calls from now on must not find the instance.
                self.mirror.apply(&subject, &[], sequence);
            }
        }
        Ok(ended.len() as u64)
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}

/// Returns the configuration of a stream of the backend.
fn config(name: &str) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        // Only the last row of an instance counts.
        max_messages_per_subject: 1,
        allow_direct: true,
        // A purge of instances deletes their signals by subject.
        deny_purge: false,
        description: Some("Workflow instances of orlog-workflow".to_owned()),
        ..Config::default()
    }
}

fn unavailable(action: &'static str, error: impl Display) -> BackendError {
    BackendError::Unavailable {
        action,
        reason: format!("{error}"),
    }
}

/// Returns the messages of an error and its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();

    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use orlog_testkit::nats_server::NatsServer;

    use super::*;
    use crate::backend::NEVER_MS;

    #[tokio::test]
    async fn own_signal_is_not_visible_before_an_earlier_one_of_another_process() {
        let server = NatsServer::start();
        let open = || async {
            NatsBackend::connect(&server.url(), "w")
                .await
                .expect("the server responds")
        };
        let (mut backend, other) = (open().await, open().await);
        let (workflow, hash, state) = ("order".into(), "h".into(), Bytes::new());
        let new = NewInstance {
            id: "a".into(),
            workflow,
            hash,
            state,
            wake_ms: NEVER_MS,
            holder: None,
        };
        assert!(backend.create(new).await.expect("stores"));
        // As if the reader were slow: the signal of the other process does not arrive.
        backend.reader.shutdown().await;
        assert!(
            other
                .send_signal("a", "first", Bytes::new())
                .await
                .expect("stores")
        );
        assert!(
            backend
                .send_signal("a", "second", Bytes::new())
                .await
                .expect("stores")
        );
        assert_eq!(backend.signals("a", 0).await.expect("reads"), []);
        let all = other.signals("a", 0).await.expect("reads");
        assert_eq!(all[0].name, "first");
    }
}
