//! Ingester: reads messages from the bus, resolves their instances, and delivers them.
//!
//! An event goes to the instances that the active programs select; a message under
//! `workflow.<saga>.<correlation>` goes to that instance only. A message is acknowledged when its
//! consequences are durable for every instance. A message that is not an event or lacks its identifier
//! becomes a dead letter and is acknowledged. Each group commit contains the checkpoint (see
//! `stream_progress.rs`); a restart resumes there. If the stream lost messages since its checkpoint, the
//! ingester logs an error, counts a stream anomaly, and does not read until the stream is restored or the
//! loss is accepted.
//!
//! If shards run in several processes, one shard receives an event of a key-sharded tenant. It forwards
//! the event to each instance as a signal and acknowledges the event when the bus has stored the
//! signals.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_bus::workflow::{self, WorkflowMessage};
use orlog_bus::{Delivery, Error as BusError, Message as BusMessage, subject};
use orlog_model::{
    CheckpointKey, DeadLetterOriginal, DeadLetterReason, Event, Input, InstanceKey, SagaName, TenantId,
};
use orlog_program::ProgramError;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::AbortOnDrop;
use crate::instance::completion::{Completion, SharedAck};
use crate::instance::mailbox::Envelope;
use crate::shard::event_forwarder::ForwardBatch;
use crate::shard::stream_progress::StreamProgress;
use crate::shard::submission::ShardUnavailable;
pub(crate) use crate::shard::subscribe::Arguments;
use crate::shard::subscribe::subscribe_verified;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};
use crate::telemetry::tracer::IngestedEvent;

/// Maximum number of messages per batch.
const BATCH: usize = 512;
/// Delay before a failed subscription is renewed.
const BUS_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Ingester actor.
pub(crate) struct IngesterActor;

/// Messages of the ingester.
pub(crate) enum Message {
    /// The task that reads the bus ended.
    Ended(String),
}

/// State of the ingester.
pub(crate) struct State {
    _reading: AbortOnDrop,
    _alive: LiveActorGuard,
}

impl Actor for IngesterActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.instances.context.metrics.actor_started(ActorKind::Ingester);
        let incarnation_number = arguments.instances.incarnation_number();
        let reading = async move {
            let Err(error) = read(arguments, incarnation_number).await;
            error.to_string()
        };
        Ok(State { _reading: AbortOnDrop::spawn(&myself, reading, Message::Ended), _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Message::Ended(error) = message;
        Err(error.into())
    }
}

/// Reads until an error of the shard occurs. After an error of a bus that other processes share it
/// subscribes again: the error concerns every shard, and their restarts would not help. Messages that are
/// delivered again are duplicates.
async fn read(arguments: Arguments, incarnation_number: u64) -> Result<Infallible, ActorProcessingErr> {
    loop {
        let error = read_subscription(&arguments, incarnation_number).await?;
        if arguments.source.sharing.is_none() {
            return Err(error.into());
        }
        let Arguments { source, name, .. } = &arguments;
        tracing::warn!(stream = source.name, shard = name, %error, "subscription ended; subscribing again");
        tokio::time::sleep(BUS_RETRY_DELAY).await;
    }
}

/// Reads one subscription until the bus fails, and returns its error.
async fn read_subscription(
    arguments: &Arguments,
    incarnation_number: u64,
) -> Result<BusError, ActorProcessingErr> {
    let source = CheckpointKey { stream: arguments.source.name.clone(), consumer: arguments.name.clone() };
    let checkpoint = arguments.instances.context.reader.checkpoint(&source)?;
    let mut consumer = match subscribe_verified(arguments, checkpoint).await {
        Ok(consumer) => consumer,
        Err(error) => return Ok(error),
    };
    let progress = StreamProgress::new(incarnation_number, source, checkpoint, &*consumer);
    arguments.instances.register_stream(Arc::clone(&progress));
    let ingest = IngestLoop { arguments: arguments.clone(), progress };
    loop {
        match consumer.next(BATCH).await {
            Ok(deliveries) => ingest.ingest_all(deliveries).await?,
            Err(error) => return Ok(error),
        }
    }
}

struct IngestLoop {
    arguments: Arguments,
    progress: Arc<StreamProgress>,
}

impl IngestLoop {
    async fn ingest_all(&self, deliveries: Vec<Delivery>) -> Result<(), ShardUnavailable> {
        let mut forward = ForwardBatch::default();
        for delivery in &deliveries {
            self.take(delivery, &mut forward)?;
        }
        for (sequence, error) in forward.send(&*self.arguments.bus).await {
            if let Some(delivery) = deliveries.iter().find(|delivery| delivery.sequence == sequence) {
                self.dead_letter_message(delivery, error)?;
            }
        }
        Ok(())
    }

    /// Delivers one message to its instances.
    fn take(&self, delivery: &Delivery, forward: &mut ForwardBatch) -> Result<(), ShardUnavailable> {
        let instances = &self.arguments.instances;
        instances.context.metrics.ingested.inc();
        if workflow::is_instance_subject(&delivery.message.subject) {
            return self.ingest_addressed(delivery);
        }
        let started = self.trace_start();
        let mut event = match orlog_bus::codec::decode(&delivery.message, delivery.published_at) {
            Ok(event) => event,
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };
        let mut keys = Vec::new();
        let mut errors = Vec::new();
        for route in instances.context.programs.route(&event) {
            match route {
                Ok(key) => keys.push(key),
                Err(error) => errors.push(error),
            }
        }
        if self.sends_on(&event.tenant) {
            self.follow(&mut event, delivery, keys.len(), started);
            let ack = SharedAck::new(Arc::clone(&self.progress), delivery.sequence, errors.len() + 1);
            for (saga, error) in errors {
                self.dead_letter_event(&event, &saga, &error, Completion::Ack(Arc::clone(&ack)))?;
            }
            let signals = keys.iter().map(|key| self.signal(&event, key, delivery.sequence));
            forward.add(delivery.sequence, signals, Completion::Ack(ack));
            return Ok(());
        }
        keys.retain(|key| self.owns(key));
        if !self.owns_tenant(&event.tenant) {
            errors.clear();
        }
        if keys.is_empty() && errors.is_empty() {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        self.follow(&mut event, delivery, keys.len(), started);
        let ack = SharedAck::new(Arc::clone(&self.progress), delivery.sequence, keys.len() + errors.len());
        for (saga, error) in errors {
            self.dead_letter_event(&event, &saga, &error, Completion::Ack(Arc::clone(&ack)))?;
        }
        for key in keys {
            let envelope = Envelope::new(Input::Event(event.clone()), Completion::Ack(Arc::clone(&ack)));
            instances.deliver_in_incarnation(self.progress.incarnation_number, &key, envelope)?;
        }
        Ok(())
    }

    /// Delivers a message to the instance in its subject.
    fn ingest_addressed(&self, delivery: &Delivery) -> Result<(), ShardUnavailable> {
        let key = match workflow::instance_of(&delivery.message.subject) {
            Ok(key) => key,
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };
        if !self.owns(&key) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        let started = self.trace_start();
        let input = match workflow::decode(&delivery.message, delivery.published_at) {
            Ok(WorkflowMessage::Command(command)) => {
                if let Some(reason) = self.arguments.source.bus.rejection(&delivery.message) {
                    return self.dead_letter_message(delivery, reason);
                }
                Input::Workflow(command)
            }
            Ok(WorkflowMessage::Signal(mut event)) => {
                self.follow(&mut event, delivery, 1, started);
                Input::Event(event)
            }
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };
        let ack = SharedAck::new(Arc::clone(&self.progress), delivery.sequence, 1);
        self.arguments.instances.deliver_in_incarnation(
            self.progress.incarnation_number,
            &key,
            Envelope::new(input, Completion::Ack(ack)),
        )
    }

    /// Returns the current time if tracing is enabled.
    fn trace_start(&self) -> Option<Instant> {
        self.arguments.instances.context.tracer.as_ref().map(|_| Instant::now())
    }

    /// Sets the ingest span as the parent of the consequences of the event.
    fn follow(&self, event: &mut Event, delivery: &Delivery, instances: usize, started: Option<Instant>) {
        let (Some(tracer), Some(started)) = (&self.arguments.instances.context.tracer, started) else {
            return;
        };
        let ingested = IngestedEvent {
            tenant: &event.tenant,
            id: &event.id,
            kind: &event.kind,
            source: &event.source,
            time: event.time,
            trace: event.trace.as_ref(),
            stream_position: (&self.arguments.source.name, delivery.sequence),
            instances,
            started,
        };
        if let Some(span) = tracer.ingested(&ingested) {
            event.trace = Some(span);
        }
    }

    fn owns(&self, key: &InstanceKey) -> bool {
        self.arguments.slots.contains(&self.arguments.instances.context.slots.slot_of(key).0)
    }

    /// Returns true if this shard handles data of the tenant that belongs to no instance.
    fn owns_tenant(&self, tenant: &TenantId) -> bool {
        self.arguments.slots.contains(&self.arguments.instances.context.slots.home_slot(tenant).0)
    }

    /// Returns true if instances of a tenant may run in other processes.
    fn sends_on(&self, tenant: &TenantId) -> bool {
        self.arguments.source.sharing.is_some()
            && self.arguments.instances.context.slots.is_key_sharded(tenant)
    }

    /// Creates the signal of an event for one instance. Its id is derived from the stream position, so that
    /// it is sent once.
    fn signal(&self, event: &Event, key: &InstanceKey, sequence: u64) -> BusMessage {
        let id = format!("{}:{}:{sequence}", key.saga, self.arguments.source.name);
        BusMessage { id: Some(id), ..workflow::encode_signal(key, event) }
    }

    fn dead_letter_message(&self, delivery: &Delivery, error: String) -> Result<(), ShardUnavailable> {
        let tenant = subject::tenant_of(&delivery.message.subject).unwrap_or_default();
        if !self.owns_tenant(&tenant) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        let original = DeadLetterOriginal::Message {
            subject: delivery.message.subject.clone(),
            headers: delivery.message.headers.clone(),
            payload: delivery.message.payload.to_vec(),
        };
        let dead_letter = orlog_engine::dead_letter_message(
            tenant,
            original,
            DeadLetterReason::Undecodable,
            error,
            &self.arguments.instances.context.node,
            delivery.published_at,
        );
        let done = Completion::Ack(SharedAck::new(Arc::clone(&self.progress), delivery.sequence, 1));
        self.arguments.instances.store_dead_letter(dead_letter, None, done)
    }

    fn dead_letter_event(
        &self,
        event: &Event,
        saga: &SagaName,
        error: &ProgramError,
        done: Completion,
    ) -> Result<(), ShardUnavailable> {
        let dead_letter = orlog_engine::dead_letter_message(
            event.tenant.clone(),
            DeadLetterOriginal::Input(Box::new(Input::Event(event.clone()))),
            DeadLetterReason::SchemaMismatch,
            format!("saga {saga}: {error}"),
            &self.arguments.instances.context.node,
            event.time,
        );
        self.arguments.instances.store_dead_letter(dead_letter, None, done)
    }
}
