//! Jobs of an effect: a durable pull consumer that all workers share, with one acknowledgement per job. A job that is not
//! authentic is terminated; its sender dispatches it again if it is the owner of the work item.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{self, Batch};
use async_nats::jetstream::consumer::{AckPolicy, Consumer};
use async_nats::jetstream::message::{AckKind, Acker};
use async_nats::jetstream::stream::Stream as StreamHandle;
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use orlog_model::EffectName;
use tokio::time::Instant;

use crate::Error;
use crate::effect_queue::{Job, JobAck, JobStream, JobSubscription};
use crate::nats::connection::{chain, unavailable};
use crate::nats::message::from_nats;
use crate::signature::Signer;
use crate::subject::{self, SubjectKind, encode_token};

/// Expiry of a fetch request for jobs, with or without jobs. No heartbeats: the client's `Batch` does
/// not wake its waiting task after a heartbeat.
const EXPIRES: Duration = Duration::from_secs(3);
/// Delay after the expiry; then the request is lost because the server has disconnected.
const EXPIRY_GRACE: Duration = Duration::from_secs(1);
/// Delay after a failed request.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of unacknowledged jobs of all workers together.
const MAX_ACK_PENDING: i64 = 65_536;

/// Returns the name of the durable consumer that all workers of an effect share.
#[must_use]
pub fn consumer_name(effect: &EffectName) -> String {
    format!("effect-{}", encode_token(effect.as_str()))
}

pub(super) struct NatsJobStream {
    stream: StreamHandle<()>,
    subscription: JobSubscription,
    consumer: Option<Consumer<pull::Config>>,
    batch: Option<(Batch, Instant)>,
    signer: Arc<Signer>,
}

impl NatsJobStream {
    pub(super) async fn open(
        stream: StreamHandle<()>,
        signer: Arc<Signer>,
        subscription: JobSubscription,
    ) -> Result<Self, Error> {
        let mut jobs = Self {
            stream,
            subscription,
            consumer: None,
            batch: None,
            signer,
        };
        jobs.consumer = Some(jobs.make().await?);
        Ok(jobs)
    }

    async fn make(&self) -> Result<Consumer<pull::Config>, Error> {
        let JobSubscription {
            effect,
            tenants,
            ack_wait,
        } = &self.subscription;
        let of = |tenant| subject::filters(tenant, SubjectKind::Effect, Some(effect.as_str()));
        let filters = match tenants {
            Some(tenants) => tenants.iter().flat_map(|tenant| of(Some(tenant))).collect(),
            None => of(None),
        };
        let config = pull::Config {
            durable_name: Some(consumer_name(effect)),
            description: Some(format!("jobs of {effect}")),
            filter_subjects: filters,
            ack_policy: AckPolicy::Explicit,
            ack_wait: *ack_wait,
            max_deliver: -1,
            max_ack_pending: MAX_ACK_PENDING,
            ..Default::default()
        };
        self.stream
            .create_consumer(config)
            .await
            .map_err(unavailable)
    }

    /// Returns the next authentic job of the current fetch; `None` if the fetch has ended.
    async fn one(&mut self) -> Option<Job> {
        loop {
            let job = self.any().await?;
            if self.signer.verify(&job.message).is_ok() {
                return Some(job);
            }
            job.ack.term().await;
        }
    }

    async fn any(&mut self) -> Option<Job> {
        let (batch, until) = self.batch.as_mut()?;
        let message = match tokio::time::timeout_at(*until, batch.next()).await.ok()?? {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(%error, effect = %self.subscription.effect, "job fetch ended early");
                self.consumer = None;
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
            ack: Arc::new(NatsJobAck(acker)),
        })
    }

    async fn request_batch(&mut self, max: usize) -> Result<(), String> {
        if self.consumer.is_none() {
            self.consumer = Some(self.make().await.map_err(|error| error.to_string())?);
        }
        let consumer = self.consumer.as_ref().ok_or("no consumer exists")?;
        let until = Instant::now() + EXPIRES + EXPIRY_GRACE;
        let batch = consumer
            .batch()
            .max_messages(max)
            .expires(EXPIRES)
            .messages()
            .await;
        self.batch = Some((batch.map_err(|error| chain(&error))?, until));
        Ok(())
    }
}

#[async_trait]
impl JobStream for NatsJobStream {
    async fn next(&mut self, max: usize) -> Vec<Job> {
        let mut jobs = Vec::new();
        loop {
            if self.batch.is_none()
                && let Err(error) = self.request_batch(max).await
            {
                tracing::warn!(error, effect = %self.subscription.effect, "job fetch failed; retrying");
                self.consumer = None;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            match self.one().await {
                Some(job) => jobs.push(job),
                None => self.batch = None,
            }
            while jobs.len() < max
                && let Some(Some(job)) = self.one().now_or_never()
            {
                jobs.push(job);
            }
            if !jobs.is_empty() {
                return jobs;
            }
        }
    }
}

struct NatsJobAck(Acker);

impl NatsJobAck {
    async fn send_ack(&self, kind: AckKind) {
        if let Err(error) = self.0.ack_with(kind).await {
            tracing::debug!(%error, "in-progress ack failed");
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
