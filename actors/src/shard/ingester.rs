//! Ingester: reads messages from the bus, resolves their instances, and delivers them.
//!
//! An event goes to the instances that the active programs select; a message under
//! `workflow.<saga>.<correlation>` goes to that instance only. A message is acknowledged when its
//! consequences are durable for every instance. A message that is not an event or lacks its identifier
//! becomes a dead letter and is acknowledged; dead letters of effect workers are stored with the others. An
//! event whose type no program consumes is acknowledged without being decoded: facts are mostly such events.
//!
//! Each group commit contains the checkpoint (see `stream_progress.rs`); a restart resumes there. If the
//! stream lost messages since its checkpoint, the ingester logs an error, counts a stream anomaly, and does
//! not read until the stream is restored or the loss is accepted.
//!
//! If shards run in several processes, one shard receives an event of a key-sharded tenant. It forwards
//! the event to each instance as a signal and acknowledges the event when the bus has stored the
//! signals.

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_bus::workflow::{self, WorkflowMessage};
use orlog_bus::{Bus, Delivery, Error as BusError, Message as BusMessage, codec, subject};
use orlog_model::{
    CheckpointKey, Clock, ControlAction, DeadLetter, DeadLetterOriginal, DeadLetterReason, Event, EventType,
    Input, InstanceKey, SagaName, TenantId, WorkflowAction,
};
use orlog_program::ProgramError;
use orlog_store::Reader;
use ractor::ActorProcessingErr;

use crate::instance::InstanceRegistry;
use crate::instance::completion::{Completion, SharedAck};
use crate::instance::mailbox::Envelope;
use crate::instance::program_registry::ProgramRegistry;
use crate::publish::publish_batch;
use crate::shard::stream_progress::{ShardStreams, StreamProgress};
use crate::shard::submission::{ShardUnavailable, Submission};
use crate::shard::subscribe::{SubscriptionArguments, subscribe_verified};
use crate::shard::worker_dead_letter;
use crate::supervision::TaskKind;
use crate::telemetry::metrics::ActorKind;
use crate::telemetry::tracer::{IngestedEvent, Tracer};

/// Label for log records.
const LOG_LABEL: &str = "events forwarded to instances";
/// Maximum number of messages per batch.
const BATCH: usize = 512;
/// Delay before a failed subscription is renewed.
const BUS_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Ingester actor.
pub(crate) struct Ingester;

impl TaskKind for Ingester {
    const KIND: ActorKind = ActorKind::Ingester;
}

/// Arguments of the ingester.
pub(crate) struct Arguments {
    pub(crate) subscription: SubscriptionArguments,
    pub(crate) registry: Arc<InstanceRegistry>,
    pub(crate) incarnation_number: u64,
    /// Streams of the incarnation.
    pub(crate) streams: Arc<ShardStreams>,
    /// Bus to which signals are published.
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) reader: Reader,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: String,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

/// Reads until an error of the shard occurs. After an error of a bus that other processes share it
/// subscribes again: the error concerns every shard, and their restarts would not help. Messages that are
/// delivered again are duplicates.
pub(crate) async fn ingest(arguments: Arguments) -> Result<(), String> {
    loop {
        let error = match read_subscription(&arguments).await {
            Ok(error) => error,
            Err(error) => return Err(error.to_string()),
        };
        let SubscriptionArguments { source, name, .. } = &arguments.subscription;
        if source.sharing.is_none() {
            return Err(error.to_string());
        }
        tracing::warn!(stream = source.name, shard = name, %error, "subscription ended; subscribing again");
        tokio::time::sleep(BUS_RETRY_DELAY).await;
    }
}

/// Reads one subscription until the bus fails, and returns its error.
async fn read_subscription(arguments: &Arguments) -> Result<BusError, ActorProcessingErr> {
    let SubscriptionArguments { source, name, .. } = &arguments.subscription;
    let key = CheckpointKey { stream: source.name.clone(), consumer: name.clone() };
    let checkpoint = arguments.reader.checkpoint(&key)?;
    let mut consumer = match subscribe_verified(&arguments.subscription, checkpoint).await {
        Ok(consumer) => consumer,
        Err(error) => return Ok(error),
    };
    let progress = StreamProgress::new(key, checkpoint, &*consumer);
    arguments.streams.register(Arc::clone(&progress));
    let ingest = IngestLoop { arguments, progress };
    loop {
        match consumer.next(BATCH).await {
            Ok(deliveries) => ingest.ingest_all(deliveries).await?,
            Err(error) => return Ok(error),
        }
    }
}

/// Messages to forward to the instances of one delivery.
struct ForwardedDelivery {
    sequence: u64,
    messages: Vec<Arc<BusMessage>>,
    done: Completion,
}

struct IngestLoop<'a> {
    arguments: &'a Arguments,
    progress: Arc<StreamProgress>,
}

impl IngestLoop<'_> {
    async fn ingest_all(&self, deliveries: Vec<Delivery>) -> Result<(), ShardUnavailable> {
        let mut forward = Vec::new();
        for delivery in &deliveries {
            self.take(delivery, &mut forward)?;
        }
        for (sequence, error) in self.forward(forward).await {
            if let Some(delivery) = deliveries.iter().find(|delivery| delivery.sequence == sequence) {
                self.dead_letter_message(delivery, error)?;
            }
        }
        Ok(())
    }

    /// Publishes messages with retries and completes the deliveries that the bus accepted. Returns the
    /// deliveries whose messages the bus rejects permanently, with the reason.
    async fn forward(&self, mut batch: Vec<ForwardedDelivery>) -> Vec<(u64, String)> {
        let mut rejected = Vec::new();
        let done = |ForwardedDelivery { sequence, done, .. }, result: Result<(), BusError>| {
            match result {
                Ok(()) => done.complete(),
                Err(error) => rejected.push((sequence, format!("cannot forward the event: {error}"))),
            }
            None
        };
        publish_batch(&*self.arguments.bus, LOG_LABEL, &mut batch, |delivery| &delivery.messages, done).await;
        rejected
    }

    /// Delivers one message to its instances.
    fn take(
        &self,
        delivery: &Delivery,
        forward: &mut Vec<ForwardedDelivery>,
    ) -> Result<(), ShardUnavailable> {
        let Arguments { subscription, registry, incarnation_number, programs, .. } = self.arguments;
        subscription.metrics.ingested.inc();
        if !self.may_concern(&delivery.message.subject) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        if let Some(ingested) = self.ingest_unrouted(delivery) {
            return ingested;
        }
        if let Some(kind) = codec::event_type(&delivery.message).filter(|kind| programs.consumers(kind) == 0)
        {
            self.count_unmatched(delivery, &kind);
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        let started = self.trace_start();
        let mut event = match codec::decode(&delivery.message, delivery.published_at) {
            Ok(event) => event,
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };
        let mut keys = Vec::new();
        let mut errors = Vec::new();
        for route in programs.route(&event) {
            match route {
                Ok(key) => keys.push(key),
                Err(error) => errors.push(error),
            }
        }
        if keys.is_empty() && errors.is_empty() {
            self.count_unmatched(delivery, &event.kind);
        }
        if self.sends_on(&event.tenant) {
            self.follow(&mut event, delivery, keys.len(), started);
            let ack = SharedAck::new(Arc::clone(&self.progress), delivery.sequence, errors.len() + 1);
            for (saga, error) in errors {
                self.dead_letter_event(&event, &saga, &error, Completion::Ack(Arc::clone(&ack)))?;
            }
            let messages =
                keys.iter().map(|key| Arc::new(self.signal(&event, key, delivery.sequence))).collect();
            let (sequence, done) = (delivery.sequence, Completion::Ack(ack));
            forward.push(ForwardedDelivery { sequence, messages, done });
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
        let count = keys.len();
        for (key, event) in keys.into_iter().zip(repeat_n(event, count)) {
            self.count_own_input(&key, event.source.strip_prefix("orlog:"));
            let envelope = Envelope::new(Input::Event(event), Completion::Ack(Arc::clone(&ack)));
            registry.deliver_in_incarnation(*incarnation_number, &key, envelope)?;
        }
        Ok(())
    }

    /// Counts an event whose type no definition consumes, in one shard. Facts are mostly such events.
    fn count_unmatched(&self, delivery: &Delivery, kind: &EventType) {
        let subject = delivery.message.subject.as_str();
        let is_ours = subject::tenant_of(subject).is_ok_and(|tenant| self.owns_tenant(&tenant));
        if is_ours && !subject::is_fact(subject) {
            self.arguments.subscription.metrics.unmatched.inc();
            tracing::debug!(%kind, subject, "event ignored: no active definition consumes its type");
        }
    }

    /// Counts a fact or a start command that an instance of the same saga sent.
    fn count_own_input(&self, key: &InstanceKey, sender: Option<&str>) {
        if sender == Some(key.saga.as_str()) {
            self.arguments.subscription.metrics.count_own_input(&key.saga);
        }
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
                if let Some(reason) = self.arguments.subscription.source.bus.rejection(&delivery.message) {
                    return self.dead_letter_message(delivery, reason);
                }
                if let WorkflowAction::Start { parent, .. } = &command.action {
                    self.count_own_input(&key, Some(parent.key.saga.as_str()));
                }
                Input::Workflow(command)
            }
            Ok(WorkflowMessage::Signal(mut event)) => {
                self.count_own_input(&key, event.source.strip_prefix("orlog:"));
                self.follow(&mut event, delivery, 1, started);
                Input::Event(event)
            }
            Ok(WorkflowMessage::ConditionalSignal(mut request)) => {
                if let ControlAction::Deliver { event, .. } = &mut request.action {
                    self.count_own_input(&key, event.source.strip_prefix("orlog:"));
                    self.follow(event, delivery, 1, started);
                    request.trace.clone_from(&event.trace);
                }
                Input::Control(request)
            }
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };
        let ack = SharedAck::new(Arc::clone(&self.progress), delivery.sequence, 1);
        let envelope = Envelope::new(input, Completion::Ack(ack));
        self.arguments.registry.deliver_in_incarnation(self.arguments.incarnation_number, &key, envelope)
    }

    /// Ingests a message that programs do not route; `None`: it is an event.
    fn ingest_unrouted(&self, delivery: &Delivery) -> Option<Result<(), ShardUnavailable>> {
        if self.arguments.subscription.source.has_dead_letters() {
            return Some(self.ingest_dead_letter(delivery));
        }
        workflow::is_instance_subject(&delivery.message.subject).then(|| self.ingest_addressed(delivery))
    }

    /// Stores the dead letter of an effect worker.
    fn ingest_dead_letter(&self, delivery: &Delivery) -> Result<(), ShardUnavailable> {
        match worker_dead_letter::decode(delivery) {
            Ok(dead_letter) => {
                let done = Completion::Ack(SharedAck::new(Arc::clone(&self.progress), delivery.sequence, 1));
                self.store(dead_letter, done)
            }
            Err(error) => self.dead_letter_message(delivery, error.to_string()),
        }
    }

    /// Returns the current time if tracing is enabled.
    fn trace_start(&self) -> Option<Instant> {
        self.arguments.tracer.as_ref().map(|_| Instant::now())
    }

    /// Sets the ingest span as the parent of the consequences of the event.
    fn follow(&self, event: &mut Event, delivery: &Delivery, instances: usize, started: Option<Instant>) {
        let (Some(tracer), Some(started)) = (&self.arguments.tracer, started) else {
            return;
        };
        let ingested = IngestedEvent {
            tenant: &event.tenant,
            id: &event.id,
            kind: &event.kind,
            source: &event.source,
            time: event.time,
            trace: event.trace.as_ref(),
            stream_position: (&self.arguments.subscription.source.name, delivery.sequence),
            instances,
            started,
        };
        if let Some(span) = tracer.ingested(&ingested) {
            event.trace = Some(span);
        }
    }

    /// Returns false if a message with this subject belongs to another shard: that of its tenant.
    fn may_concern(&self, subject: &str) -> bool {
        let tenant = subject::tenant_of(subject).unwrap_or_default();
        self.arguments.subscription.slot_assigner.is_key_sharded(&tenant) || self.owns_tenant(&tenant)
    }

    fn owns(&self, key: &InstanceKey) -> bool {
        self.arguments.subscription.owns_slot(self.arguments.subscription.slot_assigner.slot_of(key))
    }

    /// Returns true if this shard handles data of the tenant that belongs to no instance.
    fn owns_tenant(&self, tenant: &TenantId) -> bool {
        self.arguments.subscription.owns_slot(self.arguments.subscription.slot_assigner.home_slot(tenant))
    }

    /// Returns true if instances of a tenant may run in other processes.
    fn sends_on(&self, tenant: &TenantId) -> bool {
        self.arguments.subscription.source.sharing.is_some()
            && self.arguments.subscription.slot_assigner.is_key_sharded(tenant)
    }

    /// Creates the signal of an event for one instance. Its id is derived from the stream position, so that
    /// it is sent once.
    fn signal(&self, event: &Event, key: &InstanceKey, sequence: u64) -> BusMessage {
        let id = format!("{}:{}:{sequence}", key.saga, self.arguments.subscription.source.name);
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
            &self.arguments.node,
            delivery.published_at,
        );
        let done = Completion::Ack(SharedAck::new(Arc::clone(&self.progress), delivery.sequence, 1));
        self.store(dead_letter, done)
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
            &self.arguments.node,
            event.time,
        );
        self.store(dead_letter, done)
    }

    fn store(&self, dead_letter: DeadLetter, done: Completion) -> Result<(), ShardUnavailable> {
        let Arguments { registry, clock, subscription, .. } = self.arguments;
        registry.submit(Submission::dead_letter(dead_letter, clock.now(), &subscription.metrics, done))
    }
}
