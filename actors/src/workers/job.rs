//! One job, from the queue to the word on it.
//!
//! First the word is looked up: a command may come twice, and may have been performed by somebody who could not say so any
//! more to the queue. What was in other hands before counts as in doubt. The job is done with only after its word lies where
//! everybody finds it.

use std::time::{Duration, Instant};

use orlog_bus::effect_queue::{self, FirstWord, Job, Look, Ordered, Said};
use orlog_effect::limits::breaker::State;
use orlog_effect::{Done, Performer, Progress};
use orlog_model::{DeadLetterReason, Effect, InDoubt, TraceParent, Verdict, Work, WorkItem};

use uuid::Uuid;

use super::shared::Shared;
use crate::telemetry::about;
use crate::telemetry::tracer::{Concluded, Hands};

/// Between two tries while the queue cannot be reached.
const PAUSE: Duration = Duration::from_millis(250);
/// After this a job that cannot be done now comes again, where nothing else says when.
const LATER: Duration = Duration::from_secs(5);

/// A command that came twice comes again after this, and then its word is there, or soon will be.
const SOON: Duration = Duration::from_secs(1);

/// The place of a command among those in hand.
struct Place<'a>(&'a Shared, Uuid);

impl<'a> Place<'a> {
    fn take(shared: &'a Shared, id: Uuid) -> Option<Self> {
        shared.under_way.insert(id).then(|| Self(shared, id))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.under_way.remove(&self.1);
    }
}

/// Sees a job through. While that lasts, the queue hears that somebody is at it.
pub(super) async fn see_through(shared: &Shared, job: Job) {
    let heartbeat = async {
        let mut beat = tokio::time::interval((shared.config.ack_wait / 3).max(Duration::from_millis(1)));
        beat.tick().await;
        loop {
            beat.tick().await;
            job.receipt.alive().await;
        }
    };
    tokio::select! {
        biased;
        () = handle(shared, &job) => {}
        () = heartbeat => {}
    }
}

async fn handle(shared: &Shared, job: &Job) {
    let Ordered { mut item, offer } = match effect_queue::decode_command(&job.message) {
        Ok(ordered) => ordered,
        Err(error) => return bury(shared, job, &error.to_string()).await,
    };
    if !matches!(item.work, Work::Effect(_)) {
        return bury(shared, job, "it orders no effect").await;
    }
    let Some(_place) = Place::take(shared, item.id) else { return job.receipt.later(SOON).await };
    let in_doubt = job.deliveries > 1 || offer > 1;
    if is_decided(shared, &item, in_doubt).await {
        return job.receipt.done().await;
    }
    let Some(performer) = shared.catalog.performer_of(&item) else {
        // Another worker may know who performs it for this tenant.
        return job.receipt.later(LATER).await;
    };
    if let Some(after) = is_for_later(shared, &performer, &item) {
        return job.receipt.later(after).await;
    }
    let begun = Instant::now();
    let above = follow(shared, &mut item);
    let done = perform(shared, &mut item, in_doubt).await;
    if let (Some(tracer), Some(parent)) = (&shared.tracer, &above) {
        let (hands, verdict, attempts) = (Hands::Worker, &done.verdict, done.attempts);
        tracer.concluded(&Concluded { item: &item, parent, hands, verdict, attempts, begun });
    }
    item.trace = done.trace.clone().or(item.trace);
    tell(shared, &item, done).await;
    job.receipt.done().await;
}

/// Gives the job a span of its own; returns the one above, where somebody follows it.
fn follow(shared: &Shared, item: &mut WorkItem) -> Option<TraceParent> {
    let span = shared.tracer.as_ref()?.received(item)?;
    item.trace.replace(span)
}

/// What it orders.
fn effect(item: &WorkItem) -> &Effect {
    match &item.work {
        Work::Effect(effect) => effect,
        other => unreachable!("{} is no effect, and was buried", other.label()),
    }
}

/// The idempotency gate.
async fn is_decided(shared: &Shared, item: &WorkItem, in_doubt: bool) -> bool {
    let subject = effect_queue::result_subject(item, &effect(item).name);
    let look = if in_doubt { Look::Sure } else { Look::Quick };
    loop {
        match shared.queue.word(&subject, look).await {
            Ok(word) => return word.is_some(),
            Err(error) => tracing::debug!(%error, "results cannot be looked up; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// While the breaker is open one job waits there to try, and the others go back: elsewhere it may be closed. Not those that
/// must not be tried twice, nor those whose time would be over: coming again looks like having been tried.
fn is_for_later(shared: &Shared, performer: &Performer, item: &WorkItem) -> Option<Duration> {
    let condition = performer.condition();
    let policy = &performer.upstream().policy;
    let open_for = policy.breaker.map(|breaker| breaker.open_for)?;
    let is_open = matches!(condition.breaker, Some(State::Open | State::HalfOpen)) && condition.in_flight > 0;
    let again = shared.clock.now().after(open_for);
    let has_time = policy.limits(item).deadline.is_none_or(|deadline| again < deadline);
    let may_come_again = effect(item).in_doubt.unwrap_or(policy.in_doubt) == InDoubt::Retry;
    (is_open && has_time && may_come_again).then_some(open_for)
}

/// Performs it, whoever does after a reload.
async fn perform(shared: &Shared, item: &mut WorkItem, in_doubt: bool) -> Done {
    let (begun, mut progress) = (Instant::now(), Progress { attempts: 0, in_doubt });
    loop {
        let Some(performer) = shared.catalog.performer_of(item) else {
            return Done::nothing(shared.catalog.nobody(item));
        };
        match performer.go_on(item, progress).await {
            Ok(done) => {
                let verdicts = shared.metrics.effects.verdicts(&performer.upstream().name);
                verdicts.count(&done.verdict, begun.elapsed());
                return done;
            }
            Err(so_far) => progress = so_far,
        }
    }
}

/// Says what became of it until it is known that a word lies there.
async fn tell(shared: &Shared, item: &WorkItem, done: Done) {
    let effect = effect(item);
    let Done { verdict, attempts, facts, trace } = done;
    let mut said = Said { command_id: item.id, verdict, attempts, facts, trace };
    let mut word = effect_queue::encode_result(item, effect, &said, shared.clock.now());
    loop {
        match shared.queue.say(word.clone()).await {
            Ok(FirstWord::Ours) => return,
            Ok(FirstWord::Theirs(_)) => {
                let (id, effect, key) = (item.id, &effect.name, &item.instance);
                about!(WARN, key, item.trace.as_ref(), %id, %effect, "somebody else said first what became of an effect; that counts");
                return;
            }
            Err(error @ orlog_bus::Error::TooLarge { .. }) => {
                said = too_large(&said, &error.to_string());
                word = effect_queue::encode_result(item, effect, &said, shared.clock.now());
            }
            Err(error) => tracing::debug!(%error, "a result cannot be said; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The act is done, only its answer cannot travel.
fn too_large(said: &Said, why: &str) -> Said {
    let cut = serde_json::json!({ "truncated": true, "reason": why });
    let verdict = match said.verdict.clone() {
        Verdict::Succeeded { event, .. } => Verdict::Succeeded { event, payload: cut },
        Verdict::Failed { event, failure, .. } => Verdict::Failed { event, failure, payload: cut },
        other => other,
    };
    Said { verdict, facts: Vec::new(), ..said.clone() }
}

async fn bury(shared: &Shared, job: &Job, reason: &str) {
    shared.metrics.count_letter(DeadLetterReason::Undecodable);
    let subject = &job.message.subject;
    tracing::warn!(subject, reason, "a command that nobody can perform becomes a dead letter");
    let node = &shared.config.node;
    let letter =
        effect_queue::encode_dead_letter(&job.message, job.sequence, reason, node, shared.clock.now());
    while let Err(error) = shared.queue.bury(letter.clone()).await {
        tracing::debug!(%error, "a dead letter cannot be put down; trying again");
        tokio::time::sleep(PAUSE).await;
    }
    job.receipt.never().await;
}
