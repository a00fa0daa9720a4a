//! Jobs of an effect: a durable pull consumer that all workers share, with one acknowledgement per
//! job. Jobs are returned to other workers without an attempt: those that arrive after a worker has
//! ended its subscription, and those whose signature no key of this worker verifies, because
//! another worker can have the key. A job without a signature, or that was returned often, is
//! terminated; its sender dispatches it again if it is the owner of the work item.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::Batch;
use async_nats::jetstream::message::{AckKind, Acker};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::consumers::{self, OpenConsumer, Opened};
use crate::Error;
use crate::effect_queue::{Job, JobAck, JobStream, JobSubscription, SubscriptionState};
use crate::nats::WORKFLOW_COMMANDS;
use crate::nats::connection::{Connection, chain, unavailable};
use crate::nats::message::from_nats;
use crate::nats::read_failures::ReadFailure;
use crate::retry_log::RetryLog;
use crate::signature::SignatureError;

/// Expiry of a fetch request for jobs, with or without jobs. No heartbeats: the client's `Batch`
/// does not wake its waiting task after a heartbeat.
const EXPIRES: Duration = Duration::from_secs(3);
/// Delay after the expiry; then the request is lost because the server has disconnected.
const EXPIRY_GRACE: Duration = Duration::from_secs(1);
/// Delay after a failed request.
const PAUSE: Duration = Duration::from_millis(200);
/// Delay before a conflict is checked again.
const CONFLICT_PAUSE: Duration = Duration::from_secs(2);
/// Interval in which the consumers are compared with the subscription.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Number of deliveries after which a job without a valid signature is terminated.
const MAX_UNVERIFIED: u64 = 10;
/// Redelivery delay of a job without a valid signature; it doubles with each delivery.
const UNVERIFIED_DELAY: Duration = Duration::from_secs(1);
/// Maximum of this delay.
const MAX_UNVERIFIED_DELAY: Duration = Duration::from_mins(1);

pub(super) struct NatsJobStream {
    connection: Connection,
    subscription: JobSubscription,
    consumer: Option<OpenConsumer>,
    checked_at: Instant,
    batch: Option<OpenBatch>,
    state: watch::Sender<SubscriptionState>,
    retries: RetryLog,
    failure: ReadFailure,
}

/// Fetch request whose jobs may still arrive.
struct OpenBatch {
    messages: Batch,
    /// Time after which the request is lost.
    until: Instant,
    ack_wait: Duration,
}

impl NatsJobStream {
    /// Creates the stream. Its consumer is opened with the first request for jobs.
    pub(super) fn new(connection: Connection, subscription: JobSubscription) -> Self {
        // Each tenant can have a stream of its own.
        let reader = format!("jobs-{}", Uuid::new_v4().simple());
        Self {
            failure: ReadFailure::new(&connection.read_failures, &reader),
            connection,
            subscription,
            consumer: None,
            checked_at: Instant::now(),
            batch: None,
            state: watch::Sender::new(SubscriptionState::Opening(None)),
            retries: RetryLog::default(),
        }
    }

    /// Opens the consumer; an error is the delay before the next attempt.
    async fn open(&mut self) -> Result<(), Duration> {
        let effect = self.subscription.effect.clone();
        let opened = match self.find_consumer().await {
            Ok(opened) => opened,
            Err(error) => {
                self.failed(&error.to_string());
                return Err(PAUSE);
            }
        };

        self.checked_at = Instant::now();
        let state = match &opened {
            Opened::Conflict(reason) => SubscriptionState::Conflict(reason.clone()),
            Opened::Consumer(open) => SubscriptionState::Open {
                consumer: open.name.clone(),
                difference: open.difference.clone(),
            },
        };

        // The consumers are compared every 30 seconds; only a change is logged.
        let is_new = *self.state.borrow() != state;
        if is_new {
            match &state {
                SubscriptionState::Conflict(reason) => {
                    tracing::error!(%effect, reason, "no jobs are fetched: conflict of consumers");
                }
                SubscriptionState::Open {
                    difference: Some(difference),
                    consumer,
                } => {
                    tracing::warn!(
                        %effect, consumer, difference,
                        "consumer of jobs has other settings"
                    );
                }
                SubscriptionState::Open { .. } | SubscriptionState::Opening(_) => {}
            }
            self.state.send_replace(state);
        }

        match opened {
            Opened::Consumer(open) => {
                self.consumer = Some(*open);
                Ok(())
            }
            Opened::Conflict(_) => Err(CONFLICT_PAUSE),
        }
    }

    async fn find_consumer(&self) -> Result<Opened, Error> {
        let stream = self
            .connection
            .jetstream
            .get_stream_no_info(WORKFLOW_COMMANDS)
            .await
            .map_err(unavailable)?;
        consumers::open(&stream, &self.subscription).await
    }

    /// Records a failed request. An outage after the start is a state of the bus, not of the
    /// subscription.
    fn failed(&mut self, error: &str) {
        let effect = &self.subscription.effect;
        self.retries.failed(|count| {
            tracing::warn!(error, %effect, failures = count, "job fetch failed; retrying");
        });
        let reason = match &self.subscription.tenant {
            Some(tenant) => {
                format!("jobs of {effect} of tenant {tenant} are not received: {error}")
            }
            None => format!("jobs of {effect} are not received: {error}"),
        };
        self.failure.set(reason);

        // The next request opens the consumer again: it may have been deleted.
        self.consumer = None;
        self.state.send_if_modified(|state| {
            let is_opening = matches!(state, SubscriptionState::Opening(_));
            if is_opening {
                *state = SubscriptionState::Opening(Some(error.to_owned()));
            }
            is_opening
        });
    }

    /// Ends a series of failures: the servers have answered a request.
    fn works(&mut self) {
        self.failure.clear();
        let effect = &self.subscription.effect;
        self.retries.succeeded(|failures| {
            tracing::info!(%effect, failures, "jobs are fetched again");
        });
    }

    /// Requests jobs; an error is the delay before the next attempt.
    async fn request_batch(&mut self, max: usize) -> Result<(), Duration> {
        // An operator or a node may have replaced or created consumers meanwhile.
        if self.checked_at.elapsed() > CHECK_INTERVAL {
            self.consumer = None;
        }
        if self.consumer.is_none() {
            self.open().await?;
        }

        let open = self.consumer.as_ref().expect("it was opened before");
        let max = open.max_batch.map_or(max, |limit| max.min(limit));
        let expires = open.max_expires.map_or(EXPIRES, |limit| EXPIRES.min(limit));
        let until = Instant::now() + expires + EXPIRY_GRACE;
        let ack_wait = open.ack_wait;
        let request = open.consumer.batch().max_messages(max).expires(expires);

        match request.messages().await {
            // A rejection by the servers arrives in the batch.
            Ok(messages) => {
                self.batch = Some(OpenBatch {
                    messages,
                    until,
                    ack_wait,
                });
                Ok(())
            }
            Err(error) => {
                self.failed(&chain(&error));
                Err(PAUSE)
            }
        }
    }

    /// Returns the next authentic job of the current fetch; `None` if the fetch has ended.
    async fn one(&mut self) -> Option<Job> {
        loop {
            let job = self.any().await?;
            match self.connection.signer.verify(&job.message) {
                Ok(()) => return Some(job),
                Err(SignatureError::Invalid) if job.deliveries < MAX_UNVERIFIED => {
                    job.ack
                        .nak_with_delay(unverified_delay(job.deliveries))
                        .await;
                }
                // No worker accepts a job without a signature. One with an invalid signature was
                // offered to other workers often enough.
                Err(SignatureError::Invalid | SignatureError::Missing) => job.ack.term().await,
            }
        }
    }

    async fn any(&mut self) -> Option<Job> {
        let batch = self.batch.as_mut()?;
        let ack_wait = batch.ack_wait;
        let next = batch.messages.next();

        let message = match tokio::time::timeout_at(batch.until, next).await.ok()? {
            Some(Ok(message)) => {
                self.works();
                message
            }
            // The request has expired.
            None => {
                self.works();
                return None;
            }
            Some(Err(error)) => {
                self.batch = None;
                self.failed(&chain(error.as_ref()));
                tokio::time::sleep(PAUSE).await;
                return None;
            }
        };

        let (sequence, deliveries) = message
            .info()
            .map(|info| (info.stream_sequence, info.delivered))
            .ok()?;

        let (message, acker) = message.split();
        Some(Job {
            message: from_nats(message),
            sequence,
            deliveries: u64::try_from(deliveries).unwrap_or(1),
            ack_wait,
            ack: Arc::new(NatsJobAck(acker)),
        })
    }

    /// Returns the jobs of the current fetch that have arrived, at most this number; waits for the
    /// first. Empty: it has ended.
    async fn arrived(&mut self, max: usize) -> Vec<Job> {
        let mut jobs = Vec::new();
        match self.one().await {
            Some(job) => jobs.push(job),
            None => self.batch = None,
        }

        // Those that have arrived too, without waiting.
        while jobs.len() < max
            && let Some(Some(job)) = self.one().now_or_never()
        {
            jobs.push(job);
        }
        jobs
    }
}

/// Returns the redelivery delay of a job without a valid signature after this number of deliveries.
fn unverified_delay(deliveries: u64) -> Duration {
    let doublings = u32::try_from(deliveries.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    UNVERIFIED_DELAY
        .saturating_mul(factor)
        .min(MAX_UNVERIFIED_DELAY)
}

#[async_trait]
impl JobStream for NatsJobStream {
    fn state(&self) -> watch::Receiver<SubscriptionState> {
        self.state.subscribe()
    }

    async fn next(&mut self, max: usize) -> Vec<Job> {
        loop {
            if self.batch.is_none()
                && let Err(delay) = self.request_batch(max).await
            {
                tokio::time::sleep(delay).await;
                continue;
            }
            let jobs = self.arrived(max).await;
            if !jobs.is_empty() {
                return jobs;
            }
        }
    }

    async fn remaining(&mut self) -> Vec<Job> {
        // Jobs that arrive after the end of the subscription would otherwise wait for their
        // `ack_wait`.
        while self.batch.is_some() {
            let jobs = self.arrived(usize::MAX).await;
            if !jobs.is_empty() {
                return jobs;
            }
        }
        Vec::new()
    }
}

struct NatsJobAck(Acker);

impl NatsJobAck {
    async fn send_ack(&self, kind: AckKind) {
        // After a lost report the queue delivers the job again. A job with a result is then only
        // acknowledged.
        if let Err(error) = self.0.ack_with(kind).await {
            tracing::debug!(?kind, %error, "job acknowledgement failed");
        }
    }
}

#[async_trait]
impl JobAck for NatsJobAck {
    async fn in_progress(&self) {
        self.send_ack(AckKind::Progress).await;
    }

    async fn ack(&self) {
        self.send_ack(AckKind::Ack).await;
    }

    async fn nak_with_delay(&self, after: Duration) {
        self.send_ack(AckKind::Nak(Some(after))).await;
    }

    async fn term(&self) {
        self.send_ack(AckKind::Term).await;
    }
}
