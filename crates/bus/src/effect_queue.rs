//! Queue of effects between processes: senders enqueue commands, and workers execute them over the bus.
//!
//! Guarantees of a queue:
//! - An enqueued command is delivered to one subscriber of the jobs of its effect. If the subscriber
//!   sends nothing for [`JobSubscription::ack_wait`], the command is redelivered to another one, until
//!   one of them acknowledges it.
//! - A command has exactly one result, the first one. A later result is rejected and receives the first
//!   one.
//! - Every listener that subscribed earlier receives a result live. Results can be read at any time.
//! - An acknowledgement does not prove durability: a queue may lose commands and results. The sender
//!   keeps the command in its outbox and enqueues it again.

mod carried;
mod command;
mod dead_letter;
mod headers;
mod result;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EffectName, TenantId, WorkItem};
use uuid::Uuid;

use crate::subject::{SubjectKind, format_subject};
use crate::{Error, Message};

pub use carried::{carry, decode_carried};
pub use command::{EffectCommand, decode as decode_command, encode as encode_command};
pub use dead_letter::{
    DEAD_LETTER_NAME, EffectDeadLetter, decode as decode_dead_letter, encode as encode_dead_letter,
};
pub use result::{
    EffectResult, ResultRef, decode as decode_result, encode as encode_result,
    encode_event as encode_result_event,
};

/// Interface of a queue for senders and workers.
#[async_trait]
pub trait EffectQueue: Send + Sync + 'static {
    /// Stores a command under its subject; the first time only if the subject is empty. A repeated call
    /// with the same id is idempotent.
    ///
    /// # Errors
    /// If the queue did not confirm the command; it may be stored nevertheless.
    async fn enqueue(&self, command: Message, first: bool) -> Result<EnqueuedCommand, Error>;

    /// Returns whether an enqueued command is still stored and not yet acknowledged.
    ///
    /// # Errors
    /// If the state cannot be read.
    async fn is_pending(
        &self,
        effect: &EffectName,
        enqueued: &EnqueuedCommand,
    ) -> Result<bool, Error>;

    /// Returns the result under a subject.
    ///
    /// # Errors
    /// If the state cannot be read.
    async fn result(
        &self,
        subject: &str,
        consistency: ReadConsistency,
    ) -> Result<Option<Message>, Error>;

    /// Publishes a result of a command: only the first one is stored.
    ///
    /// # Errors
    /// If it is unknown whether it was the first; a retry is idempotent.
    async fn publish_result(&self, result: Message) -> Result<ResultPublish, Error>;

    /// Subscribes to all results from now on.
    ///
    /// # Errors
    /// If the queue is unavailable.
    async fn subscribe_results(&self) -> Result<Box<dyn ResultStream>, Error>;

    /// Subscribes to the jobs of an effect, which all its subscribers share.
    ///
    /// # Errors
    /// If the queue is unavailable or rejects the subscription.
    async fn subscribe_jobs(
        &self,
        subscription: JobSubscription,
    ) -> Result<Box<dyn JobStream>, Error>;

    /// Stores a dead letter for operators.
    ///
    /// # Errors
    /// If the dead letter was not accepted.
    async fn dead_letter(&self, message: Message) -> Result<(), Error>;
}

/// Command that is stored in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnqueuedCommand {
    /// Subject of the command.
    pub subject: String,
    /// Sequence of the command.
    pub sequence: u64,
    /// Whether the command was already stored.
    pub already_queued: bool,
}

/// Consistency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadConsistency {
    /// Reads from the nearest replica; a very recent result may be missing.
    Eventual,
    /// Reads from the leader.
    Linearizable,
}

/// Result that the queue stores for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultPublish {
    /// The published result was stored.
    Published,
    /// This earlier result is stored.
    AlreadyPublished(Message),
}

/// Subscription of a worker to jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSubscription {
    /// Name of the effect.
    pub effect: EffectName,
    /// Tenants whose jobs are delivered; `None`: all tenants.
    pub tenants: Option<BTreeSet<TenantId>>,
    /// A job is redelivered to another subscriber if its subscriber sends nothing for this duration.
    pub ack_wait: Duration,
}

/// Stream of results as they are published.
#[async_trait]
pub trait ResultStream: Send {
    /// Waits for results and returns at least one. Cancel safe: dropping the future loses no result.
    async fn next(&mut self) -> Vec<Message>;
}

/// Stream of the jobs of an effect.
#[async_trait]
pub trait JobStream: Send {
    /// Waits for jobs and returns between one and `max` of them. At most `max` requested jobs are in flight
    /// to this consumer at a time. Cancel safe: dropping the future loses no job.
    async fn next(&mut self, max: usize) -> Vec<Job>;
}

/// Job delivered to a worker.
#[derive(Clone)]
pub struct Job {
    /// Command of the job.
    pub message: Arc<Message>,
    /// Sequence of the command.
    pub sequence: u64,
    /// Number of this delivery; 1 for the first delivery.
    pub deliveries: u64,
    /// Handle that acknowledges the job.
    pub ack: Arc<dyn JobAck>,
}

/// Handle that reports the progress of a job. If a report is lost, the queue redelivers the job.
#[async_trait]
pub trait JobAck: Send + Sync + 'static {
    /// Reports that the job is in progress.
    async fn in_progress(&self);

    /// Reports that the job is processed.
    async fn ack(&self);

    /// Requests redelivery after this delay.
    async fn nak_with_delay(&self, after: Duration);

    /// Reports that the job cannot be executed: it is never redelivered.
    async fn term(&self);
}

/// Returns the subject of the command of an effect.
#[must_use]
pub fn command_subject(item: &WorkItem, effect: &EffectName) -> String {
    subject(&item.instance.tenant, SubjectKind::Effect, effect, item.id)
}

/// Returns the subject of the result of an effect.
#[must_use]
pub fn result_subject(item: &WorkItem, effect: &EffectName) -> String {
    subject_of_result(&item.instance.tenant, effect, item.id)
}

fn subject_of_result(tenant: &TenantId, effect: &EffectName, command_id: Uuid) -> String {
    subject(tenant, SubjectKind::EffectResult, effect, command_id)
}

fn subject(tenant: &TenantId, kind: SubjectKind, effect: &EffectName, command_id: Uuid) -> String {
    let mut buffer = Uuid::encode_buffer();
    let id = command_id.hyphenated().encode_lower(&mut buffer);
    format_subject(tenant, kind, effect.as_str(), id)
}
