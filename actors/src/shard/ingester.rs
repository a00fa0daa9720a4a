//! From the bus to the instances: takes messages, finds out whom they are for, and brings them there.
//!
//! An event is for the instances that the programs in force name; a message under `workflow.<saga>.<correlation>` is for
//! that one instance. A message is acknowledged when the consequences are durable for every instance it is for. What is no
//! event, or lacks its identifier, becomes a dead letter and is acknowledged too. The gapless end of what is acknowledged is
//! kept in the store as a checkpoint; a restart begins there. Where the stream is no longer what it was at the checkpoint,
//! that is an error in the log and counted, and reading goes on where nothing is skipped.
//!
//! Where shards live in several processes, an event of a tenant that is spread comes to one of them, which sends it on to
//! each instance as a signal, and acknowledges it when the bus has those.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_bus::workflow::{self, Word};
use orlog_bus::{Acker, Bus, Consumer, Delivery, Error as BusError, Message as BusMessage, Start, subject};
use orlog_model::{
    Change, DeadLetter, DeadLetterReason, Event, Input, InstanceKey, Original, SagaName, Source,
    StreamPosition, TenantId, TraceParent,
};
use orlog_program::Fault;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::Driver;
use crate::instance::completion::{Ack, Done};
use crate::instance::mailbox::Envelope;
use crate::instance::registry::Directory;
use crate::shard::event_source::EventSource;
use crate::shard::forward::Forward;
use crate::shard::submission::{Submission, Unavailable};
use crate::telemetry::metrics::{ActorKind, Alive};
use crate::telemetry::tracer::Taken;

/// Messages taken at once.
const BATCH: usize = 512;
/// Acknowledged messages after which the checkpoint is stored, when there is no pause before.
const CHECKPOINT_EVERY: u64 = 4096;
/// A pause of this length also stores the checkpoint.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for the consumer of a former life to let go.
const TAKE_OVER_PAUSE: Duration = Duration::from_millis(20);
/// How long to wait before servers that did not answer are asked again.
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// The actor.
pub(crate) struct Ingester;

/// What it needs.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) directory: Arc<Directory>,
    /// Where signals go.
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) source: EventSource,
    /// The durable name of the subscription.
    pub(crate) name: String,
    /// Which slots belong to the shard.
    pub(crate) slots: std::ops::Range<u16>,
}

/// What it is told.
pub(crate) enum Message {
    /// The task that reads the bus ended.
    Ended(String),
}

/// What it holds.
pub(crate) struct State {
    _reading: Driver,
    _alive: Alive,
}

impl Actor for Ingester {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.directory.context.metrics.begin(ActorKind::Ingester);
        let life = arguments.directory.life();
        let reading = async move {
            let Err(why) = read(arguments, life).await;
            why.to_string()
        };
        Ok(State { _reading: Driver::start(&myself, reading, Message::Ended), _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Message::Ended(why) = message;
        Err(why.into())
    }
}

/// Reads until something fails.
async fn read(arguments: Arguments, life: u64) -> Result<Infallible, ActorProcessingErr> {
    let source = Source { stream: arguments.source.name.clone(), consumer: arguments.name.clone() };
    let checkpoint = arguments.directory.context.reader.checkpoint(&source)?;
    let mut consumer = subscribe(&arguments, checkpoint).await?;
    let start = consumer.start().clone();
    tell(&arguments, &start);
    // One that is not there any more holds no new one back.
    let stored = checkpoint.filter(|position| position.stream_id == start.stream_id);
    let stored = stored.map_or(0, |position| position.sequence);
    let stream_id = start.stream_id;
    let acker = consumer.acker();
    arguments.directory.reads(&source.stream, Arc::clone(&acker));
    let mut ingest = Ingest { arguments, life, acker, source, stream_id, stored };
    loop {
        match tokio::time::timeout(CHECKPOINT_PAUSE, consumer.next(BATCH)).await {
            Ok(deliveries) => ingest.take_all(deliveries?).await?,
            Err(_) => ingest.checkpoint(1)?,
        }
    }
}

async fn subscribe(
    arguments: &Arguments,
    after: Option<StreamPosition>,
) -> Result<Box<dyn Consumer>, BusError> {
    let Arguments { directory, source, name, slots, .. } = arguments;
    let bound = directory.context.limits.in_flight_per_ingester;
    let subscription = source.subscription(name, &directory.context.slots, slots, after, bound);
    let mut told = false;
    loop {
        match source.bus.subscribe(subscription.clone()).await {
            Err(BusError::InUse(_)) => tokio::time::sleep(TAKE_OVER_PAUSE).await,
            // Servers that choose a leader come back; a death of this actor would fell the shard, and too many of them the node.
            Err(error @ BusError::Unavailable(_)) if source.sharing.is_some() => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(stream = source.name, shard = name, %error, "cannot read yet; it is tried again");
                }
                tokio::time::sleep(AWAY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Tells operators what was wrong at the checkpoint.
fn tell(arguments: &Arguments, start: &Start) {
    let Some(found) = &start.found else { return };
    let (stream, shard) = (&arguments.source.name, &arguments.name);
    tracing::error!(stream, shard, goes_on_after = start.after, "{found}");
    let label = [("stream", stream.clone()), ("found", found.as_str().to_owned())];
    arguments.directory.context.metrics.stream_breaks.get_or_create(&label).inc();
}

struct Ingest {
    arguments: Arguments,
    /// The life of the shard that it reads for.
    life: u64,
    acker: Arc<dyn Acker>,
    source: Source,
    stream_id: uuid::Uuid,
    /// The checkpoint in the store.
    stored: u64,
}

impl Ingest {
    async fn take_all(&mut self, deliveries: Vec<Delivery>) -> Result<(), Unavailable> {
        let mut forward = Forward::default();
        for delivery in &deliveries {
            self.take(delivery, &mut forward).await?;
        }
        for (sequence, why) in forward.send(&*self.arguments.bus).await {
            if let Some(delivery) = deliveries.iter().find(|delivery| delivery.sequence == sequence) {
                self.set_aside_message(delivery, why)?;
            }
        }
        self.checkpoint(CHECKPOINT_EVERY)
    }

    /// Brings one message to the instances it is for.
    async fn take(&self, delivery: &Delivery, forward: &mut Forward) -> Result<(), Unavailable> {
        let directory = &self.arguments.directory;
        directory.context.metrics.ingested.inc();
        if workflow::is_addressed(&delivery.message.subject) {
            return self.take_addressed(delivery).await;
        }
        let begun = Instant::now();
        let mut event = match orlog_bus::codec::decode(&delivery.message, delivery.published_at) {
            Ok(event) => event,
            Err(error) => return self.set_aside_message(delivery, error.to_string()),
        };
        let mut keys = Vec::new();
        let mut faults = Vec::new();
        for route in directory.context.programs.route(&event) {
            match route {
                Ok(key) => keys.push(key),
                Err(fault) => faults.push(fault),
            }
        }
        if self.sends_on(&event.tenant) {
            self.follow(&mut event, delivery, keys.len(), begun);
            let ack = Ack::new(Arc::clone(&self.acker), delivery.sequence, faults.len() + 1);
            for (saga, fault) in faults {
                self.set_aside_event(&event, &saga, &fault, Done::Ack(Arc::clone(&ack)))?;
            }
            let signals = keys.iter().map(|key| self.signal(&event, key, delivery.sequence));
            forward.add(delivery.sequence, signals, Done::Ack(ack));
            return Ok(());
        }
        keys.retain(|key| self.owns(key));
        if !self.owns_tenant(&event.tenant) {
            faults.clear();
        }
        if keys.is_empty() && faults.is_empty() {
            self.acker.ack(delivery.sequence);
            return Ok(());
        }
        self.follow(&mut event, delivery, keys.len(), begun);
        let ack = Ack::new(Arc::clone(&self.acker), delivery.sequence, keys.len() + faults.len());
        for (saga, fault) in faults {
            self.set_aside_event(&event, &saga, &fault, Done::Ack(Arc::clone(&ack)))?;
        }
        for key in keys {
            directory.room(&key).await;
            let envelope = Envelope::new(Input::Event(event.clone()), Done::Ack(Arc::clone(&ack)));
            directory.dispatch_in(self.life, &key, envelope)?;
        }
        Ok(())
    }

    /// Brings a message to the one instance that its subject names.
    async fn take_addressed(&self, delivery: &Delivery) -> Result<(), Unavailable> {
        let key = match workflow::address(&delivery.message.subject) {
            Ok(key) => key,
            Err(error) => return self.set_aside_message(delivery, error.to_string()),
        };
        if !self.owns(&key) {
            self.acker.ack(delivery.sequence);
            return Ok(());
        }
        let begun = Instant::now();
        let input = match workflow::decode(&delivery.message, delivery.published_at) {
            Ok(Word::Order(command)) => Input::Workflow(command),
            Ok(Word::Signal(mut event)) => {
                self.follow(&mut event, delivery, 1, begun);
                Input::Event(event)
            }
            Err(error) => return self.set_aside_message(delivery, error.to_string()),
        };
        let ack = Ack::new(Arc::clone(&self.acker), delivery.sequence, 1);
        self.arguments.directory.room(&key).await;
        self.arguments.directory.dispatch_in(self.life, &key, Envelope::new(input, Done::Ack(ack)))
    }

    /// What comes of the event goes on from the span in which it was taken.
    fn follow(&self, event: &mut Event, delivery: &Delivery, instances: usize, begun: Instant) {
        let Some(tracer) = &self.arguments.directory.context.tracer else { return };
        let taken = Taken {
            tenant: &event.tenant,
            id: &event.id,
            kind: &event.kind,
            source: &event.source,
            time: event.time,
            trace: event.trace.as_ref(),
            place: (&self.arguments.source.name, delivery.sequence),
            instances,
            begun,
        };
        if let Some(span) = tracer.ingested(&taken) {
            event.trace = Some(span);
        }
    }

    fn owns(&self, key: &InstanceKey) -> bool {
        self.arguments.slots.contains(&self.arguments.directory.context.slots.of(key).0)
    }

    /// Whether what belongs to no instance is this shard's business.
    fn owns_tenant(&self, tenant: &TenantId) -> bool {
        self.arguments.slots.contains(&self.arguments.directory.context.slots.home(tenant).0)
    }

    /// Whether the instances of a tenant may live in other processes.
    fn sends_on(&self, tenant: &TenantId) -> bool {
        self.arguments.source.sharing.is_some() && self.arguments.directory.context.slots.spreads(tenant)
    }

    /// An event for one instance. Its id is made of where the event lies, so that it is sent once.
    fn signal(&self, event: &Event, key: &InstanceKey, sequence: u64) -> BusMessage {
        let id = format!("{}:{}:{sequence}", key.saga, self.arguments.source.name);
        BusMessage { id: Some(id), ..workflow::signal(key, event) }
    }

    fn set_aside_message(&self, delivery: &Delivery, why: String) -> Result<(), Unavailable> {
        let tenant = subject::tenant_of(&delivery.message.subject).unwrap_or_default();
        if !self.owns_tenant(&tenant) {
            self.acker.ack(delivery.sequence);
            return Ok(());
        }
        let original = Original::Message {
            subject: delivery.message.subject.clone(),
            headers: delivery.message.headers.clone(),
            payload: delivery.message.payload.to_vec(),
        };
        let letter = orlog_engine::dead_letter(
            tenant,
            original,
            DeadLetterReason::Undecodable,
            why,
            &self.arguments.directory.context.node,
            delivery.published_at,
        );
        self.keep(letter, Done::Ack(Ack::new(Arc::clone(&self.acker), delivery.sequence, 1)))
    }

    fn set_aside_event(
        &self,
        event: &Event,
        saga: &SagaName,
        fault: &Fault,
        done: Done,
    ) -> Result<(), Unavailable> {
        let letter = orlog_engine::dead_letter(
            event.tenant.clone(),
            Original::Input(Box::new(Input::Event(event.clone()))),
            DeadLetterReason::SchemaMismatch,
            format!("saga {saga}: {fault}"),
            &self.arguments.directory.context.node,
            event.time,
        );
        self.keep(letter, done)
    }

    fn keep(&self, letter: DeadLetter, done: Done) -> Result<(), Unavailable> {
        let trace_id = match &letter.original {
            Original::Input(input) => input.trace().map(TraceParent::trace_id),
            Original::Message { .. } => None,
        };
        let (tenant, reason, why) = (&letter.tenant, letter.reason.as_str(), &letter.message);
        tracing::warn!(%tenant, trace_id, reason, why, "dead letter");
        let metrics = &self.arguments.directory.context.metrics;
        metrics.count_letter(letter.reason);
        metrics.tenants.of(&letter.tenant).dead_letters.inc();
        // Retention counts from here, however old the message is.
        let at = self.arguments.directory.context.clock.now();
        let change = Change::PutDeadLetter(Box::new(DeadLetter { at, ..letter }));
        self.arguments.directory.committer()?.submit(Submission::of(change, done))
    }

    /// Stores the checkpoint when it is at least `step` ahead of the stored one.
    fn checkpoint(&mut self, step: u64) -> Result<(), Unavailable> {
        let mark = self.acker.mark();
        if mark.sequence <= self.stored || mark.sequence - self.stored < step {
            return Ok(());
        }
        self.stored = mark.sequence;
        let position = StreamPosition { stream_id: self.stream_id, sequence: mark.sequence, at: mark.at };
        let change = Change::Checkpoint(self.source.clone(), position);
        self.arguments.directory.committer()?.submit(Submission::of(change, Done::Nothing))
    }
}
