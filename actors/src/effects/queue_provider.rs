//! Provider of effects that other processes execute: publishes commands to a queue and receives the
//! results from it.
//!
//! One [`ResultListener`] per process receives all results; it ignores results of commands that
//! this process did not dispatch. If a command has no result for a while, the provider looks it up.
//! If the command is still queued, the provider keeps waiting. If it is gone and has no result, it
//! is dispatched again. The first message under the result subject is the result, regardless of its
//! sender. A missed deadline and a rejected command are therefore also published there, and count
//! only if they are first.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dashmap::DashMap;
use orlog_bus::effect_queue::{
    self, EffectQueue, EffectResult, EnqueuedCommand, ReadConsistency, ResultPublish,
};
use orlog_bus::{Error, Message, RetryLog};
use orlog_effect::{
    Attempt, AttemptStart, ErrorFacts, Probe, ProbeResult, Provider, ProviderError, RejectionScope,
    RemoteProvider, RemoteResult, Reply,
};
use orlog_model::{Clock, Effect, Work, WorkItem, WorkOutcome};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::telemetry::log_instance;

/// Delay between two attempts while the queue is unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of times that the timeout doubles; it doubles with each dispatch.
const MAX_DOUBLINGS: u32 = 6;

/// Commands whose result is pending.
type WaitingCommands = Arc<DashMap<Uuid, oneshot::Sender<EffectResult>>>;

/// Listener for effect results.
pub struct ResultListener {
    queue: Arc<dyn EffectQueue>,
    clock: Arc<dyn Clock>,
    waiting: WaitingCommands,
    /// Dropping it aborts its task.
    _receiving: JoinSet<()>,
}

impl ResultListener {
    /// Subscribes to the results of a queue.
    ///
    /// # Errors
    /// If the queue is unavailable.
    pub async fn subscribe(
        queue: Arc<dyn EffectQueue>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, Error> {
        let mut results = queue.subscribe_results().await?;
        let waiting = WaitingCommands::default();
        let received = Arc::clone(&waiting);
        let mut receiving = JoinSet::new();
        receiving.spawn(async move {
            loop {
                for message in &results.next().await {
                    receive(&received, message);
                }
            }
        });

        Ok(Arc::new(Self {
            queue,
            clock,
            waiting,
            _receiving: receiving,
        }))
    }

    /// Returns the number of commands whose result is pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len()
    }

    /// Registers for the result of a command before it is dispatched. A second registration
    /// replaces the first.
    fn expect(self: &Arc<Self>, id: Uuid) -> PendingResult {
        let (sender, received) = oneshot::channel();
        self.waiting.insert(id, sender);
        PendingResult {
            result_listener: Arc::clone(self),
            id,
            received,
        }
    }

    /// Looks up the result of a command and retries until the queue responds.
    async fn query_result(&self, item: &WorkItem, effect: &Effect) -> Option<EffectResult> {
        let subject = effect_queue::result_subject(item, &effect.name);
        let found = persist(|| self.queue.result(&subject, ReadConsistency::Linearizable)).await;
        found.ok().flatten().map(|message| read(&message))
    }

    async fn enqueue(
        &self,
        item: &WorkItem,
        effect: &Effect,
        dispatch_count: u32,
    ) -> Result<EnqueuedCommand, ProviderError> {
        let command = effect_queue::encode_command(item, effect, dispatch_count);
        let enqueued = persist(|| self.queue.enqueue(command.clone(), dispatch_count == 1)).await;
        enqueued.map_err(|error| ProviderError::permanent("not_enqueued", error.to_string()))
    }

    async fn is_waiting(&self, effect: &Effect, enqueued: &EnqueuedCommand) -> bool {
        persist(|| self.queue.is_pending(&effect.name, enqueued))
            .await
            .unwrap_or(true)
    }

    async fn publish_result(
        &self,
        item: &WorkItem,
        effect: &Effect,
        outcome: &WorkOutcome,
    ) -> Option<EffectResult> {
        let result = EffectResult {
            command_id: item.id,
            outcome: outcome.clone(),
            attempts: 0,
            facts: Vec::new(),
            trace: None,
            attempt_log: None,
            stored_at: None,
        };
        let message = effect_queue::encode_result(item, effect, &result, self.clock.now());
        match persist(|| self.queue.publish_result(message.clone())).await {
            Ok(ResultPublish::AlreadyPublished(message)) => Some(read(&message)),
            Ok(ResultPublish::Published) | Err(_) => None,
        }
    }
}

fn receive(waiting: &WaitingCommands, message: &Message) {
    let subject = orlog_bus::subject::Subject::parse(&message.subject).ok();
    let Some(id) = subject.and_then(|subject| subject.id.parse().ok()) else {
        return;
    };

    if let Some((_, waiting)) = waiting.remove(&id) {
        // An error means that no task waits any more.
        waiting.send(read(message)).ok();
    }
}

/// Registration with the result listener. Dropping it cancels the registration.
struct PendingResult {
    result_listener: Arc<ResultListener>,
    id: Uuid,
    received: oneshot::Receiver<EffectResult>,
}

impl Drop for PendingResult {
    fn drop(&mut self) {
        self.received.close();
        // A replaced registration belongs to the new receiver.
        self.result_listener
            .waiting
            .remove_if(&self.id, |_, sender| sender.is_closed());
    }
}

/// Provider that executes effects of an upstream through the queue.
pub struct QueueProvider {
    result_listener: Arc<ResultListener>,
    timeout: Duration,
}

impl QueueProvider {
    /// Creates a provider that looks up a command if no result arrives within `redispatch_delay`.
    #[must_use]
    pub fn new(result_listener: Arc<ResultListener>, timeout: Duration) -> Self {
        Self {
            result_listener,
            timeout,
        }
    }

    /// Waits for the result of a dispatch; returns `None` if the command is gone without a result.
    async fn result(
        &self,
        item: &WorkItem,
        effect: &Effect,
        expected: &mut PendingResult,
        enqueued: &EnqueuedCommand,
        number: u32,
    ) -> Option<EffectResult> {
        // Longer after each dispatch: a queue under load must not receive more duplicates.
        let redispatch_delay = self
            .timeout
            .saturating_mul(1 << (number - 1).min(MAX_DOUBLINGS));

        loop {
            match tokio::time::timeout(redispatch_delay, &mut expected.received).await {
                Ok(Ok(remote_result)) => return Some(remote_result),
                Ok(Err(_)) => *expected = self.result_listener.expect(item.id),
                Err(_) => {}
            }

            // The response of the listener can be lost with its connection; the queue has the
            // result.
            if let Some(remote_result) = self.result_listener.query_result(item, effect).await {
                return Some(remote_result);
            }
            if !self.result_listener.is_waiting(effect, enqueued).await {
                return None;
            }
        }
    }

    /// Dispatches the command and waits for its result.
    async fn await_result(&self, item: &WorkItem) -> Result<EffectResult, ProviderError> {
        let effect = item.work.effect().ok_or_else(|| {
            ProviderError::permanent(
                "not_an_effect",
                format!("{} is not an effect", item.work.label()),
            )
        })?;

        // Before the dispatch, so that a fast result is received.
        let mut expected = self.result_listener.expect(item.id);
        let mut number = 1;
        loop {
            let enqueued = match self.result_listener.enqueue(item, effect, number).await {
                Ok(enqueued) => enqueued,
                Err(error) => return self.not_enqueued(item, effect, error).await,
            };

            // A command that was queued before may have a result from before the subscription.
            if enqueued.already_queued
                && let Some(result) = self.result_listener.query_result(item, effect).await
            {
                return Ok(result);
            }

            if let Some(result) = self
                .result(item, effect, &mut expected, &enqueued, number)
                .await
            {
                return Ok(result);
            }
            number += 1;

            log_instance!(
                WARN, item.instance, item.trace.as_ref(),
                id = %item.id, effect = %effect.name, number,
                "command lost without a result; dispatching again"
            );
        }
    }
}

impl QueueProvider {
    /// Publishes the failure of a command that the queue rejects permanently. An earlier dispatch
    /// may have a result.
    async fn not_enqueued(
        &self,
        item: &WorkItem,
        effect: &Effect,
        error: ProviderError,
    ) -> Result<EffectResult, ProviderError> {
        let failure = error.failure().clone();
        let outcome = WorkOutcome::Failed {
            event: None,
            failure,
            payload: serde_json::Value::Null,
        };
        self.result_listener
            .publish_result(item, effect, &outcome)
            .await
            .ok_or(error)
    }
}

#[async_trait]
impl RemoteProvider for QueueProvider {
    async fn execute_remotely(
        &self,
        item: &WorkItem,
        _: Attempt,
        start: &AttemptStart,
    ) -> RemoteResult {
        // The time at which a worker starts is unknown, so the timeout of the attempt counts from
        // its dispatch.
        start.start();
        match self.await_result(item).await {
            Ok(mut result) => {
                let trace = result.trace.take();
                let attempt_log = result.attempt_log.take();
                RemoteResult {
                    trace,
                    attempt_log,
                    ..to_reply(result).into()
                }
            }
            Err(error) => Err(error).into(),
        }
    }
}

#[async_trait]
impl Provider for QueueProvider {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        self.execute_remotely(item, attempt, &AttemptStart::default())
            .await
            .result
    }

    fn remote(&self) -> Option<&dyn RemoteProvider> {
        Some(self)
    }

    fn publishes_results(&self) -> bool {
        true
    }

    async fn probe(&self, item: &WorkItem, _probe: Probe) -> ProbeResult {
        let Work::Effect(effect) = &item.work else {
            return ProbeResult::Unknown;
        };
        self.result_listener
            .query_result(item, effect)
            .await
            .map_or(ProbeResult::Pending, probe_result)
    }

    async fn abandon(&self, item: &WorkItem, outcome: &WorkOutcome) -> ProbeResult {
        let Work::Effect(effect) = &item.work else {
            return ProbeResult::Unknown;
        };
        self.result_listener
            .publish_result(item, effect, outcome)
            .await
            .map_or(ProbeResult::Unknown, probe_result)
    }
}

fn probe_result(result: EffectResult) -> ProbeResult {
    to_reply(result).map_or_else(ProbeResult::Failed, ProbeResult::Done)
}

fn to_reply(result: EffectResult) -> Result<Reply, ProviderError> {
    let facts = result.facts;
    match result.outcome {
        WorkOutcome::Succeeded {
            event,
            payload,
            schema_version,
        } => Ok(Reply {
            event,
            payload,
            schema_version,
            facts,
        }),
        WorkOutcome::Accepted => Ok(Reply::default()),
        WorkOutcome::Failed {
            event,
            failure,
            payload,
        } => Err(ProviderError::Permanent {
            failure,
            event,
            payload,
            facts: ErrorFacts::of(facts),
            scope: RejectionScope::Effect,
        }),
        WorkOutcome::TimedOut { failure } => Err(ProviderError::Abandoned { failure }),
    }
}

/// Parses a result. An unreadable message stays under the subject, so the effect has failed.
fn read(message: &Message) -> EffectResult {
    effect_queue::decode_result(message).unwrap_or_else(|error| EffectResult {
        command_id: Uuid::nil(),
        outcome: WorkOutcome::Failed {
            event: None,
            failure: orlog_model::Failure {
                code: "bad_result".to_owned(),
                message: format!(
                    "invalid effect result on subject {}: {error}",
                    message.subject
                ),
            },
            payload: serde_json::Value::Null,
        },
        attempts: 0,
        facts: Vec::new(),
        trace: None,
        attempt_log: None,
        stored_at: None,
    })
}

/// Retries until the queue is available. Returns permanent errors.
async fn persist<T, F>(mut act: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut retries = RetryLog::default();
    loop {
        match act().await {
            Err(Error::Unavailable(error)) => {
                tracing::debug!(error, "effect queue unavailable; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(Error::Full(error)) => {
                retries.failed(|failures| {
                    tracing::warn!(error, failures, "effect queue is full; retrying");
                });
                tokio::time::sleep(RETRY_DELAY).await;
            }
            done => return done,
        }
    }
}
