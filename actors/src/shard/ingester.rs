//! Ingester: reads messages from the bus, resolves their instances, and delivers them.
//!
//! An event goes to the instances that the active programs select; a message under
//! `workflow.<saga>.<correlation>` goes to that instance only. A message is acknowledged when its
//! consequences are committed for every instance. A message that is not an event or lacks its
//! identifier becomes a dead letter and is acknowledged; so does one that its context rejects, or
//! whose tenant this node does not accept (`event_admission.rs`). Dead letters of effect workers
//! are stored with the others. An event whose type no program consumes is acknowledged without
//! being decoded: facts are mostly such events.
//!
//! Each group commit contains the checkpoint (see `stream_progress.rs`); a restart resumes there.
//! If the stream lost messages since its checkpoint, the ingester logs an error, counts a stream
//! anomaly, and does not read until the stream is restored or the loss is accepted.
//!
//! If shards run in several processes, one shard receives an event of a key-sharded tenant. It
//! forwards the event to each instance as a signal and acknowledges the event when the bus has
//! stored the signals.

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_bus::workflow::{self, WorkflowMessage};
use orlog_bus::{
    Bus, Delivery, Error as BusError, Message as BusMessage, RetryLog, codec, subject,
};
use orlog_model::{
    CheckpointKey, Clock, ControlAction, DeadLetter, DeadLetterReason, Event, EventType, Input,
    InstanceKey, SagaName, TenantId, Timestamp, WorkflowAction,
};
use orlog_program::ProgramError;
use orlog_store::Reader;
use ractor::ActorProcessingErr;

use crate::instance::InstanceRegistry;
use crate::instance::completion::{Completion, SharedAck};
use crate::instance::mailbox::Envelope;
use crate::instance::program_registry::ProgramRegistry;
use crate::publish::publish_batch;
use crate::shard::event_admission::EventAdmission;
use crate::shard::stream_progress::{ShardStreams, StreamProgress};
use crate::shard::submission::{ShardUnavailable, Submission};
use crate::shard::subscribe::{SubscriptionArguments, subscribe_verified};
use crate::shard::{undeliverable, worker_dead_letter};
use crate::supervision::TaskKind;
use crate::telemetry::metrics::ActorKind;
use crate::telemetry::tracer::{IngestedEvent, Tracer};

/// Label for log records.
const LOG_LABEL: &str = "events forwarded to instances";
/// Maximum number of messages per batch.
const BATCH: usize = 512;
/// Delay before a failed subscription is renewed.
const BUS_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Time after which a subscription that ends counts as one that has worked, although it may have
/// had no messages. A reader that cannot read its stream ends earlier.
const MIN_STABLE_TIME: Duration = Duration::from_mins(2);

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
/// subscribes again: the error concerns every shard, and their restarts would not help. Messages
/// that are delivered again are duplicates.
pub(crate) async fn ingest(arguments: Arguments) -> Result<(), String> {
    let mut retries = RetryLog::default();
    loop {
        let error = match read_subscription(&arguments, &mut retries).await {
            Ok(error) => error,
            Err(error) => return Err(error.to_string()),
        };

        // A bus that only this process uses fails with its shard: its restart subscribes again,
        // within the limit of restarts.
        let SubscriptionArguments { source, name, .. } = &arguments.subscription;
        if source.sharing.is_none() {
            return Err(error.to_string());
        }
        retries.failed(|failures| {
            tracing::warn!(
                stream = source.name, shard = name, %error, failures,
                "subscription ended; subscribing again"
            );
        });
        tokio::time::sleep(BUS_RETRY_DELAY).await;
    }
}

/// Reads one subscription until the bus fails, and returns its error.
async fn read_subscription(
    arguments: &Arguments,
    retries: &mut RetryLog,
) -> Result<BusError, ActorProcessingErr> {
    let SubscriptionArguments { source, name, .. } = &arguments.subscription;
    let key = CheckpointKey {
        stream: source.name.clone(),
        consumer: name.clone(),
    };

    // The commits contain the checkpoint, so the store is the only authority on what was applied.
    let checkpoint = arguments.reader.checkpoint(&key)?;
    let mut consumer = match subscribe_verified(&arguments.subscription, checkpoint).await {
        Ok(consumer) => consumer,
        Err(error) => return Ok(error),
    };

    let started = Instant::now();
    let progress = StreamProgress::new(key, checkpoint, &*consumer);
    arguments.streams.register(Arc::clone(&progress));
    let ingest = IngestLoop {
        arguments,
        progress,
        admission: EventAdmission::default(),
    };

    loop {
        match consumer.next(BATCH).await {
            Ok(deliveries) => {
                retries.succeeded(|failures| {
                    tracing::info!(
                        stream = source.name,
                        shard = name,
                        failures,
                        "subscription works again"
                    );
                });
                ingest.ingest_all(deliveries).await?;
            }
            Err(error) => {
                // A quiet subscription that lasted has worked: its end is another failure.
                if started.elapsed() >= MIN_STABLE_TIME {
                    *retries = RetryLog::default();
                }
                return Ok(error);
            }
        }
    }
}

/// Messages to forward to the instances of one delivery.
struct ForwardedDelivery {
    sequence: u64,
    messages: Vec<Arc<BusMessage>>,
    done: Completion,
}

/// State of the deliveries that were read together.
#[derive(Default)]
struct ReadBatch {
    forward: Vec<ForwardedDelivery>,
    /// Whether the records of the authority were refreshed after the deliveries were read.
    is_refreshed: bool,
}

struct IngestLoop<'a> {
    arguments: &'a Arguments,
    progress: Arc<StreamProgress>,
    admission: EventAdmission,
}

impl IngestLoop<'_> {
    async fn ingest_all(&self, deliveries: Vec<Delivery>) -> Result<(), ShardUnavailable> {
        let mut batch = ReadBatch::default();
        for delivery in &deliveries {
            self.take(delivery, &mut batch).await?;
        }

        // A permanent rejection concerns one event; without a dead letter it would stop the stream.
        for (sequence, error) in self.forward(batch.forward).await {
            if let Some(delivery) = deliveries
                .iter()
                .find(|delivery| delivery.sequence == sequence)
            {
                self.dead_letter_message(delivery, error)?;
            }
        }
        Ok(())
    }

    /// Publishes messages with retries and completes the deliveries that the bus accepted. Returns
    /// the deliveries whose messages the bus rejects permanently, with the reason.
    async fn forward(&self, mut batch: Vec<ForwardedDelivery>) -> Vec<(u64, String)> {
        let mut rejected = Vec::new();

        publish_batch(
            &*self.arguments.bus,
            LOG_LABEL,
            &mut batch,
            |delivery| &delivery.messages,
            |delivery, result| {
                match result {
                    Ok(()) => delivery.done.complete(),
                    Err(error) => {
                        let reason = format!("cannot forward the event: {error}");
                        rejected.push((delivery.sequence, reason));
                    }
                }
                None
            },
        )
        .await;
        rejected
    }

    /// Delivers one message to its instances.
    async fn take(
        &self,
        delivery: &Delivery,
        batch: &mut ReadBatch,
    ) -> Result<(), ShardUnavailable> {
        let Arguments {
            subscription,
            programs,
            ..
        } = self.arguments;
        subscription.metrics.ingested.inc();

        // If no other process shares the stream, each shard of this one reads all of it. Most
        // messages belong to other shards, and their subject tells so without decoding them.
        if !subscription.may_concern(&delivery.message.subject) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        if let Some(defect) = &delivery.defect {
            return self.ingest_defective(delivery, defect);
        }
        if subscription.source.has_dead_letters() {
            return self.ingest_dead_letter(delivery);
        }
        if workflow::is_instance_subject(&delivery.message.subject) {
            return self.ingest_addressed(delivery, batch).await;
        }

        // Facts are mostly events that no program consumes. Their type is in the header, so they
        // need not be decoded.
        if let Some(kind) =
            codec::event_type(&delivery.message).filter(|kind| !programs.is_consumed(kind))
        {
            self.count_unmatched(delivery, &kind);
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }

        self.ingest_event(delivery, batch).await
    }

    /// Delivers an event to the instances that the active programs select.
    async fn ingest_event(
        &self,
        delivery: &Delivery,
        batch: &mut ReadBatch,
    ) -> Result<(), ShardUnavailable> {
        let Arguments {
            subscription,
            registry,
            incarnation_number,
            programs,
            ..
        } = self.arguments;
        let started = self.arguments.tracer.as_ref().map(|_| Instant::now());

        let mut event = match codec::decode(&delivery.message, delivery.published_at) {
            Ok(event) => event,
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };
        if let Err(reason) = self.check(delivery, &mut event, batch).await {
            return self.reject(delivery, reason);
        }

        let mut keys = Vec::new();
        let mut errors = Vec::new();
        for route in programs.route(&event) {
            match route {
                Ok(key) => keys.push(key),
                Err(error) => errors.push(error),
            }
        }

        // Only an event with consequences needs a tenant that this node accepts: the others would
        // fill the dead letters with events that no definition consumes.
        if keys.is_empty() && errors.is_empty() {
            self.count_unmatched(delivery, &event.kind);
        } else if let Some(rejected) = self.reject_tenant(delivery, &event.tenant) {
            return rejected;
        }

        if subscription.sends_on(&event.tenant) {
            let forwarded = self.signals(delivery, event, &keys, &errors, started)?;
            batch.forward.push(forwarded);
            return Ok(());
        }

        // Each shard reads the event and delivers it to its own instances only.
        keys.retain(|key| subscription.owns(key));
        if !subscription.owns_tenant(&event.tenant) {
            errors.clear();
        }
        if keys.is_empty() && errors.is_empty() {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }

        self.follow(&mut event, delivery, keys.len(), started);
        let ack = SharedAck::new(
            Arc::clone(&self.progress),
            delivery.sequence,
            keys.len() + errors.len(),
        );
        self.dead_letter_event(&event, delivery.published_at, &errors, &ack)?;

        // The last instance takes the event itself, so that the usual event of one instance is not
        // cloned.
        let count = keys.len();
        for (key, event) in keys.into_iter().zip(repeat_n(event, count)) {
            self.count_own_input(&key, event.source.strip_prefix("orlog:"));
            let envelope = Envelope::new(Input::Event(event), Completion::Ack(Arc::clone(&ack)));
            registry.deliver_in_incarnation(*incarnation_number, &key, envelope)?;
        }
        Ok(())
    }

    /// Returns the signals that forward an event to its instances, which other shards can own.
    fn signals(
        &self,
        delivery: &Delivery,
        mut event: Event,
        keys: &[InstanceKey],
        errors: &[(SagaName, ProgramError)],
        started: Option<Instant>,
    ) -> Result<ForwardedDelivery, ShardUnavailable> {
        self.follow(&mut event, delivery, keys.len(), started);

        // One consequence more than dead letters: the bus has stored all signals.
        let ack = SharedAck::new(
            Arc::clone(&self.progress),
            delivery.sequence,
            errors.len() + 1,
        );
        self.dead_letter_event(&event, delivery.published_at, errors, &ack)?;

        let messages = keys
            .iter()
            .map(|key| Arc::new(self.signal(&event, key, delivery.sequence)))
            .collect();
        Ok(ForwardedDelivery {
            sequence: delivery.sequence,
            messages,
            done: Completion::Ack(ack),
        })
    }

    /// Counts an event whose type no definition consumes, in one shard. Facts are mostly such
    /// events.
    fn count_unmatched(&self, delivery: &Delivery, kind: &EventType) {
        let subject = delivery.message.subject.as_str();
        let is_ours = subject::tenant_of(subject)
            .is_ok_and(|tenant| self.arguments.subscription.owns_tenant(&tenant));

        // A fact without a consumer is normal; any other event suggests a missing or misspelled
        // definition.
        if is_ours && !subject::is_fact(subject) {
            self.arguments.subscription.metrics.unmatched.inc();
            tracing::debug!(
                %kind, subject,
                "event ignored: no active definition consumes its type"
            );
        }
    }

    /// Counts a fact or a start command that an instance of the same saga sent.
    fn count_own_input(&self, key: &InstanceKey, sender: Option<&str>) {
        if sender == Some(key.saga.as_str()) {
            self.arguments
                .subscription
                .metrics
                .count_own_input(&key.saga);
        }
    }

    /// Delivers a message to the instance in its subject.
    async fn ingest_addressed(
        &self,
        delivery: &Delivery,
        batch: &mut ReadBatch,
    ) -> Result<(), ShardUnavailable> {
        let key = match workflow::instance_of(&delivery.message.subject) {
            Ok(key) => key,
            Err(error) => return self.dead_letter_message(delivery, error.to_string()),
        };

        if !self.arguments.subscription.owns(&key) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        // Before the message is decoded: the tenant is in its subject.
        if let Some(rejected) = self.reject_tenant(delivery, &key.tenant) {
            return rejected;
        }

        let started = self.arguments.tracer.as_ref().map(|_| Instant::now());
        let input = match workflow::decode(&delivery.message, delivery.published_at) {
            Ok(WorkflowMessage::Command(command)) => {
                // Only nodes send commands. With signing keys, one from another sender is rejected.
                if let Some(reason) = self
                    .arguments
                    .subscription
                    .source
                    .bus
                    .rejection(&delivery.message)
                {
                    return self.store_undecodable(delivery, reason);
                }
                if let WorkflowAction::Start { parent, .. } = &command.action {
                    self.count_own_input(&key, Some(parent.key.saga.as_str()));
                }
                Input::Workflow(command)
            }
            Ok(WorkflowMessage::Signal(mut event)) => {
                if let Err(reason) = self.check(delivery, &mut event, batch).await {
                    return self.reject(delivery, reason);
                }
                self.count_own_input(&key, event.source.strip_prefix("orlog:"));
                self.follow(&mut event, delivery, 1, started);
                Input::Event(event)
            }
            Ok(WorkflowMessage::ConditionalSignal(mut request)) => {
                if let ControlAction::Deliver { event, .. } = &mut request.action {
                    if let Err(reason) = self.check(delivery, event, batch).await {
                        return self.reject(delivery, reason);
                    }
                    self.count_own_input(&key, event.source.strip_prefix("orlog:"));
                    self.follow(event, delivery, 1, started);
                    request.trace.clone_from(&event.trace);
                }
                Input::Control(request)
            }
            Err(error) => return self.store_undecodable(delivery, error.to_string()),
        };

        // Inputs of a stopped incarnation would overtake those that the next one receives again.
        let envelope = Envelope::new(input, self.ack_of(delivery));
        self.arguments.registry.deliver_in_incarnation(
            self.arguments.incarnation_number,
            &key,
            envelope,
        )
    }

    /// Checks the event of a message, and sets its user to the actor that signed it.
    async fn check(
        &self,
        delivery: &Delivery,
        event: &mut Event,
        batch: &mut ReadBatch,
    ) -> Result<(), String> {
        let source = &self.arguments.subscription.source;
        EventAdmission::check(source, delivery, event, &mut batch.is_refreshed).await
    }

    /// Rejects a message that the authority of its stream does not accept. Only one shard reads
    /// such a message.
    fn reject(&self, delivery: &Delivery, reason: String) -> Result<(), ShardUnavailable> {
        let Arguments {
            subscription,
            clock,
            node,
            ..
        } = self.arguments;
        let tenant = subject::tenant_of(&delivery.message.subject).unwrap_or_default();

        // A flood of forged messages must not fill the store: only some of them are stored.
        if !self
            .admission
            .reject(&tenant, &reason, clock.now(), &subscription.metrics)
        {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }

        let dead_letter =
            undeliverable::of_message(delivery, DeadLetterReason::Unauthenticated, reason, node);
        self.store(dead_letter, self.ack_of(delivery))
    }

    /// Rejects a message if this node does not accept its tenant. Its dead letter can be redriven
    /// after a node accepts it.
    fn reject_tenant(
        &self,
        delivery: &Delivery,
        tenant: &TenantId,
    ) -> Option<Result<(), ShardUnavailable>> {
        let Arguments {
            subscription, node, ..
        } = self.arguments;
        let reason =
            self.admission
                .reject_tenant(&subscription.source, tenant, &subscription.metrics)?;

        let dead_letter =
            undeliverable::of_message(delivery, DeadLetterReason::TenantNotAllowed, reason, node);
        Some(self.store(dead_letter, self.ack_of(delivery)))
    }

    /// Stores a message that the bus cannot read completely as a dead letter, in the shard of its
    /// instance or tenant.
    fn ingest_defective(&self, delivery: &Delivery, defect: &str) -> Result<(), ShardUnavailable> {
        let Ok(key) = workflow::instance_of(&delivery.message.subject) else {
            return self.dead_letter_message(delivery, defect.to_owned());
        };

        // Each shard receives the message, and one of them stores it.
        if !self.arguments.subscription.owns(&key) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        self.store_undecodable(delivery, defect.to_owned())
    }

    /// Stores the dead letter of an effect worker.
    fn ingest_dead_letter(&self, delivery: &Delivery) -> Result<(), ShardUnavailable> {
        match worker_dead_letter::decode(delivery) {
            Ok(dead_letter) => self.store(dead_letter, self.ack_of(delivery)),
            Err(error) => self.dead_letter_message(delivery, error.to_string()),
        }
    }

    /// Sets the ingest span as the parent of the consequences of the event.
    fn follow(
        &self,
        event: &mut Event,
        delivery: &Delivery,
        instances: usize,
        started: Option<Instant>,
    ) {
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

    /// Creates the signal of an event for one instance. Its id is derived from the stream position,
    /// so that it is sent once.
    fn signal(&self, event: &Event, key: &InstanceKey, sequence: u64) -> BusMessage {
        let id = format!(
            "{}:{}:{sequence}",
            key.saga, self.arguments.subscription.source.name
        );
        let signal = BusMessage {
            id: Some(id),
            ..workflow::encode_signal(key, event)
        };

        // Without a key of the nodes, an unchanged signal. The signature of an actor does not cover
        // the new subject.
        self.arguments.bus.vouch(signal, self.arguments.clock.now())
    }

    /// Stores a message that names no instance as a dead letter, in one shard of its tenant.
    fn dead_letter_message(
        &self,
        delivery: &Delivery,
        error: String,
    ) -> Result<(), ShardUnavailable> {
        let tenant = subject::tenant_of(&delivery.message.subject).unwrap_or_default();
        if !self.arguments.subscription.owns_tenant(&tenant) {
            self.progress.acker.ack(delivery.sequence);
            return Ok(());
        }
        self.store_undecodable(delivery, error)
    }

    fn store_undecodable(
        &self,
        delivery: &Delivery,
        error: String,
    ) -> Result<(), ShardUnavailable> {
        let dead_letter = undeliverable::of_message(
            delivery,
            DeadLetterReason::Undecodable,
            error,
            &self.arguments.node,
        );
        self.store(dead_letter, self.ack_of(delivery))
    }

    fn dead_letter_event(
        &self,
        event: &Event,
        published_at: Timestamp,
        errors: &[(SagaName, ProgramError)],
        ack: &Arc<SharedAck>,
    ) -> Result<(), ShardUnavailable> {
        let node = &self.arguments.node;
        for (saga, error) in errors {
            let dead_letter = undeliverable::of_event(event, published_at, saga, error, node);
            self.store(dead_letter, Completion::Ack(Arc::clone(ack)))?;
        }
        Ok(())
    }

    /// Returns the completion that acknowledges a message with one consequence.
    fn ack_of(&self, delivery: &Delivery) -> Completion {
        Completion::Ack(SharedAck::new(
            Arc::clone(&self.progress),
            delivery.sequence,
            1,
        ))
    }

    fn store(&self, dead_letter: DeadLetter, done: Completion) -> Result<(), ShardUnavailable> {
        let Arguments {
            registry,
            clock,
            subscription,
            ..
        } = self.arguments;
        registry.lifecycle.submit(Submission::dead_letter(
            dead_letter,
            clock.now(),
            &subscription.metrics,
            done,
        ))
    }
}
