//! Queue of effects between processes: senders enqueue commands, and workers execute them over the
//! bus.
//!
//! Guarantees of a queue:
//! - An enqueued command is delivered to one subscriber of the jobs of its effect. If the
//!   subscriber sends nothing for [`JobSubscription::ack_wait`], the command is redelivered to
//!   another one, until one of them acknowledges it.
//! - The start of the first attempt of a command can be recorded once. Workers record it if a doubt
//!   about the attempt would decide about the next one; a delivery is no evidence of an attempt.
//! - A command has exactly one result, the first one. A later result is rejected and receives the
//!   first one.
//! - Every listener that subscribed earlier receives a result live. Results can be read at any
//!   time.
//! - An acknowledgement does not prove durability: a queue may lose commands and results. The
//!   sender keeps the command in its outbox and enqueues it again.

mod carried;
mod command;
mod dead_letter;
mod headers;
mod result;
mod start;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EffectName, TenantId, Timestamp, WorkItem};
use tokio::sync::watch;
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
pub use start::encode as encode_start;

/// Interface of a queue for senders and workers.
#[async_trait]
pub trait EffectQueue: Send + Sync + 'static {
    /// Stores a command under its subject; the first time only if the subject is empty. A repeated
    /// call with the same id is idempotent.
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

    /// Records that an execution of a command starts its first attempt: only the first execution is
    /// recorded. A repeated call with the same message is idempotent.
    ///
    /// # Errors
    /// If it is unknown whether the start is recorded.
    async fn record_start(&self, start: Message) -> Result<StartRecord, Error>;

    /// Subscribes to all results from now on.
    ///
    /// # Errors
    /// If the queue is unavailable.
    async fn subscribe_results(&self) -> Result<Box<dyn ResultStream>, Error>;

    /// Subscribes to the jobs of an effect, which all its subscribers share. The stream requests
    /// nothing before its first call, and retries failed requests.
    fn subscribe_jobs(&self, subscription: JobSubscription) -> Box<dyn JobStream>;

    /// Returns the backlog of a consumer of jobs.
    ///
    /// # Errors
    /// If the state cannot be read.
    async fn backlog(&self, consumer: &str) -> Result<JobBacklog, Error>;

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

/// Record of the first attempt of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartRecord {
    /// The start of this execution is recorded.
    Recorded,
    /// Another execution recorded its start before: its attempt is in doubt unless it has a result.
    AlreadyRecorded,
}

/// Subscription of a worker to jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSubscription {
    /// Name of the effect.
    pub effect: EffectName,
    /// Tenant whose jobs are delivered; `None`: all tenants.
    pub tenant: Option<TenantId>,
    /// All tenants that the subscriber serves, if it does not serve all: it can also execute a job
    /// of another of them.
    pub served: Arc<BTreeSet<TenantId>>,
    /// A job is redelivered to another subscriber if its subscriber sends nothing for this
    /// duration.
    pub ack_wait: Duration,
}

/// Jobs of a consumer that no worker has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobBacklog {
    /// Jobs that no worker has received.
    pub waiting: u64,
    /// Jobs that workers have received.
    pub in_flight: u64,
    /// Time of the oldest of them; `None`: there is none, or the account has no permission to read
    /// it.
    pub oldest: Option<Timestamp>,
}

/// State of a subscription to jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionState {
    /// No job was requested yet; the reason is that of the last failed request.
    Opening(Option<String>),
    /// Jobs are delivered.
    Open {
        /// Consumer that delivers them.
        consumer: String,
        /// Settings of the consumer that differ from the subscription; `None`: none.
        difference: Option<String>,
    },
    /// Another consumer delivers jobs of the subscription to others; none are requested.
    Conflict(String),
}

/// Stream of results as they are published.
#[async_trait]
pub trait ResultStream: Send {
    /// Waits for results and returns at least one. Cancel safe: dropping the future loses no
    /// result.
    async fn next(&mut self) -> Vec<Message>;
}

/// Stream of the jobs of an effect.
#[async_trait]
pub trait JobStream: Send {
    /// Returns the state of the subscription.
    fn state(&self) -> watch::Receiver<SubscriptionState>;

    /// Waits for jobs and returns between one and `max` of them. At most `max` requested jobs are
    /// in flight to this consumer at a time. Cancel safe: dropping the future loses no job.
    async fn next(&mut self, max: usize) -> Vec<Job>;

    /// Requests no more jobs, and returns those that an earlier request still delivers; empty: none
    /// will arrive.
    async fn remaining(&mut self) -> Vec<Job>;
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
    /// The job is redelivered after this time without a sign of progress. Nodes can have different
    /// values; this is the value in the queue.
    pub ack_wait: Duration,
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
