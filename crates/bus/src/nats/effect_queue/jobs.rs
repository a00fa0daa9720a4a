//! The jobs of an effect: a durable pull consumer that all takers share, with an acknowledgement for each job.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{self, Batch};
use async_nats::jetstream::consumer::{AckPolicy, Consumer};
use async_nats::jetstream::message::{AckKind, Acker};
use async_nats::jetstream::stream::Stream as StreamHandle;
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::consumer_name::{consumer_name, unavailable};
use crate::Error;
use crate::effect_queue::{Job, JobReceipt, Jobs, Wanted};
use crate::nats::connection::chain;
use crate::nats::message::from_nats;
use crate::subject::{self, Kind};

/// A request for jobs is answered by then, with or without any. No heartbeats: the client's `Batch` forgets to wake whoever
/// waits when one comes.
const EXPIRES: Duration = Duration::from_secs(3);
/// After this a request that was to be answered never will be: the server has gone meanwhile.
const GRACE: Duration = Duration::from_secs(1);
/// After a request that went wrong.
const PAUSE: Duration = Duration::from_millis(200);
/// Jobs that all takers together have at once, at most.
const MOST_IN_HANDS: i64 = 65_536;

pub(super) struct NatsJobs {
    stream: StreamHandle<()>,
    wanted: Wanted,
    consumer: Option<Consumer<pull::Config>>,
    batch: Option<(Batch, Instant)>,
}

impl NatsJobs {
    pub(super) async fn open(stream: StreamHandle<()>, wanted: Wanted) -> Result<Self, Error> {
        let mut jobs = Self { stream, wanted, consumer: None, batch: None };
        jobs.consumer = Some(jobs.make().await?);
        Ok(jobs)
    }

    async fn make(&self) -> Result<Consumer<pull::Config>, Error> {
        let Wanted { effect, tenants, ack_wait } = &self.wanted;
        let of = |tenant| subject::filters(tenant, Kind::Effect, Some(effect.as_str()));
        let filters = match tenants {
            Some(tenants) => tenants.iter().flat_map(|tenant| of(Some(tenant))).collect(),
            None => of(None),
        };
        let config = pull::Config {
            durable_name: Some(consumer_name(effect)),
            description: Some(format!("the jobs of {effect}")),
            filter_subjects: filters,
            ack_policy: AckPolicy::Explicit,
            ack_wait: *ack_wait,
            max_deliver: -1,
            max_ack_pending: MOST_IN_HANDS,
            ..Default::default()
        };
        self.stream.create_consumer(config).await.map_err(|error| unavailable(&error))
    }

    /// The next job of what was asked for; `None` when nothing more comes of that.
    async fn one(&mut self) -> Option<Job> {
        let (batch, until) = self.batch.as_mut()?;
        let message = match tokio::time::timeout_at(*until, batch.next()).await.ok()?? {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(%error, effect = %self.wanted.effect, "a request for jobs ended early");
                self.consumer = None;
                return None;
            }
        };
        let (sequence, deliveries) =
            message.info().map(|info| (info.stream_sequence, info.delivered)).ok()?;
        let (message, acker) = message.split();
        Some(Job {
            message: from_nats(message),
            sequence,
            deliveries: u64::try_from(deliveries).unwrap_or(1),
            receipt: Arc::new(Receipt(acker)),
        })
    }

    async fn ask(&mut self, max: usize) -> Result<(), String> {
        if self.consumer.is_none() {
            self.consumer = Some(self.make().await.map_err(|error| error.to_string())?);
        }
        let consumer = self.consumer.as_ref().ok_or("there is no consumer")?;
        let until = Instant::now() + EXPIRES + GRACE;
        let batch = consumer.batch().max_messages(max).expires(EXPIRES).messages().await;
        self.batch = Some((batch.map_err(|error| chain(&error))?, until));
        Ok(())
    }
}

#[async_trait]
impl Jobs for NatsJobs {
    async fn next(&mut self, max: usize) -> Vec<Job> {
        let mut jobs = Vec::new();
        loop {
            if self.batch.is_none()
                && let Err(error) = self.ask(max).await
            {
                tracing::warn!(error, effect = %self.wanted.effect, "jobs cannot be asked for; trying again");
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

struct Receipt(Acker);

impl Receipt {
    async fn say(&self, kind: AckKind) {
        if let Err(error) = self.0.ack_with(kind).await {
            tracing::debug!(%error, "how a job goes could not be said");
        }
    }
}

#[async_trait]
impl JobReceipt for Receipt {
    async fn alive(&self) {
        self.say(AckKind::Progress).await;
    }

    async fn done(&self) {
        self.say(AckKind::Ack).await;
    }

    async fn later(&self, after: Duration) {
        self.say(AckKind::Nak(Some(after))).await;
    }

    async fn never(&self) {
        self.say(AckKind::Term).await;
    }
}
