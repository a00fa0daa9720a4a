//! Execution of one job, from the queue to the published result.
//!
//! First, the worker looks up the result: a command may be delivered twice, or another worker may
//! have executed it without being able to acknowledge it. A job is acknowledged only after its
//! result is stored.
//!
//! A job is in doubt if another execution recorded the start of its first attempt (`start.rs`). A
//! delivery is no evidence of an attempt: queues redeliver jobs that were returned, or lost on the
//! path to a worker. Without a probe and with the policy `retry`, a doubt does not decide about the
//! next attempt, and nothing is recorded. Then each delivery that this process has not returned
//! counts as an attempt, so that a step whose effect may have been executed is compensated.

use std::time::{Duration, Instant};

use orlog_bus::Message;
use orlog_bus::effect_queue::{
    self, EffectCommand, EffectResult, Job, ReadConsistency, ResultPublish,
};
use orlog_effect::limits::breaker::BreakerState;
use orlog_effect::{EffectExecutor, ExecutionProgress, ExecutionResult, StartRecorder as _};
use orlog_model::{DeadLetterReason, Effect, TraceParent, Work, WorkItem, WorkOutcome};

use uuid::Uuid;

use super::shared::WorkerPoolState;
use super::start::{JobDispatcher, RETRY_DELAY};
use crate::telemetry::log_instance;
use crate::telemetry::tracer::{ExecutedBy, FinishedWork};

/// Default redelivery delay of a job that cannot be executed now.
const NAK_DELAY: Duration = Duration::from_secs(5);

/// Redelivery delay of a duplicate command; by then its result is published, or soon will be.
const SHORT_NAK_DELAY: Duration = Duration::from_secs(1);

/// Registration of a command as in flight.
struct JobGuard<'a>(&'a WorkerPoolState, Uuid);

impl<'a> JobGuard<'a> {
    fn take(shared: &'a WorkerPoolState, id: Uuid) -> Option<Self> {
        shared.in_flight.insert(id).then(|| Self(shared, id))
    }
}

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        self.0.in_flight.remove(&self.1);
    }
}

/// Executes a job to its end. Meanwhile, the worker extends the acknowledgement deadline of the
/// queue.
pub(super) async fn run_job(shared: &WorkerPoolState, job: Job) {
    let heartbeat = async {
        // Three times in the interval, so that one sign of progress can be lost.
        let mut beat = tokio::time::interval((job.ack_wait / 3).max(Duration::from_millis(1)));
        beat.tick().await;
        loop {
            beat.tick().await;
            job.ack.in_progress().await;
        }
    };
    tokio::select! {
        biased;
        () = handle(shared, &job) => {}
        () = heartbeat => {}
    }
}

async fn handle(shared: &WorkerPoolState, job: &Job) {
    let EffectCommand {
        mut item,
        dispatch_count,
    } = match effect_queue::decode_command(&job.message) {
        Ok(ordered) => ordered,
        Err(error) => return bury(shared, job, &error.to_string()).await,
    };
    if !matches!(item.work, Work::Effect(_)) {
        return bury(shared, job, "the command contains no effect").await;
    }
    let Some(_guard) = JobGuard::take(shared, item.id) else {
        return give_back(shared, job, item.id, 1, SHORT_NAK_DELAY).await;
    };

    let returned = shared.returned.take(item.id, job.sequence);
    let unattempted = returned + 1;
    let is_repeated = job.deliveries > 1 || dispatch_count > 1;
    if is_decided(shared, &item, is_repeated).await {
        return job.ack.ack().await;
    }

    let Some(executor) = shared.catalog.executor_for(&item.destination()) else {
        // Another worker may have an executor for this tenant.
        return give_back(shared, job, item.id, unattempted, NAK_DELAY).await;
    };
    if let Some(after) = is_for_later(shared, &executor, &item) {
        return give_back(shared, job, item.id, unattempted, after).await;
    }

    let above = follow(shared, &mut item).map(|parent| (parent, Instant::now()));

    // A recorded start is better evidence than the number of deliveries, which also counts those
    // without an attempt.
    let is_recorded = executor.upstream().is_doubt_decisive(&item);
    let maybe_attempted = job.deliveries > returned + 1 || dispatch_count > 1;
    let mut done = execute(shared, &mut item, maybe_attempted && !is_recorded).await;

    if let (Some(tracer), Some((parent, started))) = (&shared.tracer, &above) {
        tracer.finished(&FinishedWork {
            item: &item,
            parent,
            executed_by: ExecutedBy::Worker,
            outcome: &done.outcome,
            attempts: done.attempts,
            started: *started,
        });
    }

    item.trace = done.trace.clone().or(item.trace);
    let receipt = done.receipt.take();
    publish_result(shared, &item, done).await;
    // Only now: the worker that reported the result may drop it.
    if let Some(receipt) = receipt {
        receipt.stored();
    }

    // Last: a job that is not acknowledged is delivered again and finds its result.
    job.ack.ack().await;
}

/// Returns a job to the queue without an attempt, with the number of its deliveries to this process
/// that made none.
async fn give_back(
    shared: &WorkerPoolState,
    job: &Job,
    id: Uuid,
    unattempted: u64,
    after: Duration,
) {
    shared.returned.add(id, job.sequence, unattempted);
    job.ack.nak_with_delay(after).await;
}

/// Starts a span for the job; returns the parent span if the job is traced.
fn follow(shared: &WorkerPoolState, item: &mut WorkItem) -> Option<TraceParent> {
    let span = shared.tracer.as_ref()?.received(item)?;
    item.trace.replace(span)
}

/// Returns the effect of the work item.
fn effect(item: &WorkItem) -> &Effect {
    match &item.work {
        Work::Effect(effect) => effect,
        other => unreachable!("{} is not an effect and was dead-lettered", other.label()),
    }
}

/// Returns true if a result exists or the effect must not be executed again (idempotency check).
async fn is_decided(shared: &WorkerPoolState, item: &WorkItem, is_repeated: bool) -> bool {
    let subject = effect_queue::result_subject(item, &effect(item).name);
    // An exact read costs more, and the usual job has no result yet.
    let consistency = if is_repeated {
        ReadConsistency::Linearizable
    } else {
        ReadConsistency::Eventual
    };

    loop {
        match shared.queue.result(&subject, consistency).await {
            Ok(message) => return message.is_some(),
            Err(error) => tracing::debug!(%error, "effect result lookup failed; retrying"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Returns a redelivery delay while the breaker is open. One job waits for the trial call; the
/// others return to the queue, because the breaker of another worker may be closed. Excluded are
/// jobs whose deadline would pass.
fn is_for_later(
    shared: &WorkerPoolState,
    executor: &EffectExecutor,
    item: &WorkItem,
) -> Option<Duration> {
    let condition = executor.status();
    let policy = &executor.upstream().policy;
    let open_duration = policy.breaker.map(|breaker| breaker.open_duration)?;

    let is_open = matches!(
        condition.breaker,
        Some(BreakerState::Open | BreakerState::HalfOpen)
    ) && condition.in_flight > 0;

    let retry_at = shared.clock.now().saturating_add(open_duration);
    let has_time = policy
        .deadline(item)
        .is_none_or(|deadline| retry_at < deadline);
    (is_open && has_time).then_some(open_duration)
}

/// Executes the effect; after a reload, with its new executor.
async fn execute(shared: &WorkerPoolState, item: &mut WorkItem, in_doubt: bool) -> ExecutionResult {
    let started = Instant::now();
    let mut progress = ExecutionProgress {
        in_doubt,
        ..ExecutionProgress::default()
    };
    let dispatcher = JobDispatcher::new(shared);

    loop {
        let Some(executor) = shared.catalog.executor_for(&item.destination()) else {
            progress.in_doubt |= dispatcher.record_start(item).await;
            return shared.catalog.unroutable_result(item, progress);
        };
        match executor.execute_for(item, progress, &dispatcher).await {
            Ok(done) => {
                let outcomes = shared.metrics.effects.outcomes(&executor.upstream().name);
                outcomes.count(&done.outcome, started.elapsed());
                return done;
            }
            Err(updated) => progress = updated,
        }
    }
}

/// Publishes the result until a result is stored.
async fn publish_result(shared: &WorkerPoolState, item: &WorkItem, done: ExecutionResult) {
    let effect = effect(item);
    let ExecutionResult {
        outcome,
        attempts,
        facts,
        trace,
        attempt_log,
        ..
    } = done;

    let command_id = item.id;
    let mut result = EffectResult {
        command_id,
        outcome,
        attempts,
        facts,
        trace,
        attempt_log,
        stored_at: None,
    };
    let mut message = effect_queue::encode_result(item, effect, &result, shared.clock.now());

    loop {
        match shared.queue.publish_result(message.clone()).await {
            Ok(ResultPublish::Published) => return,
            Ok(ResultPublish::AlreadyPublished(_)) => {
                log_instance!(
                    WARN, item.instance, item.trace.as_ref(), id = %item.id, effect = %effect.name,
                    "effect result already published by another worker; using it"
                );
                return;
            }
            Err(error @ orlog_bus::Error::TooLarge { .. }) => {
                // The effect was executed: its saga needs an outcome, even without the data.
                result = too_large(&result, &error.to_string());
                message = effect_queue::encode_result(item, effect, &result, shared.clock.now());
            }
            Err(error) => tracing::debug!(%error, "result publish failed; retrying"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Replaces the result of an executed effect whose data is too large to publish.
fn too_large(result: &EffectResult, reason: &str) -> EffectResult {
    let cut = serde_json::json!({ "truncated": true, "reason": reason });
    let outcome = match result.outcome.clone() {
        WorkOutcome::Succeeded {
            event,
            schema_version,
            ..
        } => WorkOutcome::Succeeded {
            event,
            payload: cut,
            schema_version,
        },
        WorkOutcome::Failed { event, failure, .. } => WorkOutcome::Failed {
            event,
            failure,
            payload: cut,
        },
        other => other,
    };
    EffectResult {
        outcome,
        facts: Vec::new(),
        ..result.clone()
    }
}

async fn bury(shared: &WorkerPoolState, job: &Job, reason: &str) {
    shared
        .metrics
        .count_dead_letter(DeadLetterReason::Undecodable);
    let subject = &job.message.subject;
    tracing::warn!(
        subject,
        reason,
        "no executor for the effect; command dead-lettered"
    );

    let node = &shared.config.node;
    let encode = |message: &Message, reason: &str| {
        effect_queue::encode_dead_letter(message, job.sequence, reason, node, shared.clock.now())
    };

    let mut dead_letter = encode(&job.message, reason);
    while let Err(error) = shared.queue.dead_letter(dead_letter.clone()).await {
        if matches!(error, orlog_bus::Error::TooLarge { .. }) {
            let cut = Message {
                headers: Vec::default(),
                payload: bytes::Bytes::default(),
                ..(*job.message).clone()
            };
            dead_letter = encode(&cut, &format!("{reason}; the command is left out: {error}"));
        }
        tracing::debug!(%error, "dead letter write failed; retrying");
        tokio::time::sleep(RETRY_DELAY).await;
    }
    job.ack.term().await;
}
