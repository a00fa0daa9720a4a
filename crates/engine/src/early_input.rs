//! Early inputs: inputs that arrive before their instance exists.
//!
//! An early input is buffered and applied right after the first transition. It is deleted if the
//! instance does not start in time. Each buffered input has its own row with its expiry time. One
//! timer, armed for the missing instance, is due when the oldest input expires. Its token is 0;
//! those of other timers are hashes of the inputs that arm them. The first transition cancels the
//! timer.

use std::time::Duration;

use orlog_model::{
    Commit, DeadLetterReason, EarlyInput, Event, Input, InstanceKey, TimerFired, Timestamp,
};

use crate::context::{BufferedInputRef, DecisionContext, expiry_timer, expiry_timer_at};
use crate::dead_letter::{DeadLetterCause, dead_letter_input};
use crate::decision::{Decision, ignore, ignore_with_cleanup};

/// Maximum number of inputs buffered for one missing instance. Further inputs are dead-lettered.
pub const MAX_EARLY_INPUTS: usize = 100;
/// Time for which a cancel command is buffered, for a saga that buffers no early events.
const CANCEL_TTL: Duration = Duration::from_hours(24);

/// Buffers an event that is not a start event and whose instance does not exist.
pub(crate) fn buffer_event(
    context: &DecisionContext<'_>,
    input: &Input,
    event: &Event,
) -> Decision {
    let manifest = context.program.manifest();
    let is_subscribed = manifest
        .subscriptions
        .iter()
        .any(|trigger| trigger.kind == event.kind);
    if manifest.early_event_ttl.is_zero() || !is_subscribed {
        return ignore("no instance waits for this event");
    }

    buffer_early_input(context, input, manifest.early_event_ttl)
}

/// Buffers a cancel command that arrives before the start command.
pub(crate) fn buffer_cancel(context: &DecisionContext<'_>, input: &Input) -> Decision {
    let early_event_ttl = context.program.manifest().early_event_ttl;
    let ttl = if early_event_ttl.is_zero() {
        CANCEL_TTL
    } else {
        early_event_ttl
    };
    buffer_early_input(context, input, ttl)
}

fn buffer_early_input(context: &DecisionContext<'_>, input: &Input, ttl: Duration) -> Decision {
    let key = input.identity();
    // The dedupe keys of a missing instance are not stored, so the buffer itself detects a second
    // delivery.
    if context.buffered.iter().any(|buffered| buffered.key == key) {
        return ignore("already buffered until its instance starts");
    }

    if context.buffered.len() >= MAX_EARLY_INPUTS {
        let message = format!(
            "its instance has not started and {MAX_EARLY_INPUTS} inputs are already buffered for it"
        );
        let cause = DeadLetterCause {
            reason: DeadLetterReason::EarlyBufferFull,
            message,
            attempts: 1,
        };
        let commit = dead_letter_input(context.key, input, cause, context.now, context.node);
        return Decision::Commit(Box::new(commit));
    }

    let until = context.now.saturating_add(ttl);
    let mut commit = Commit::empty(context.key.clone(), context.now);
    let early = EarlyInput {
        input: Box::new(input.clone()),
        expires_at: until,
    };
    commit.buffer = Some(Box::new(Input::Early(early)));

    // One timer serves all buffered inputs: it is due when the oldest one expires, and arms the
    // next.
    if context.buffered.is_empty() {
        commit.arm.push(expiry_timer_at(until));
    }

    Decision::Commit(Box::new(commit))
}

/// Handles a timer of a missing instance: deletes the expired inputs.
pub(crate) fn expire(
    key: &InstanceKey,
    early: &[BufferedInputRef],
    input: &Input,
    fired: &TimerFired,
    now: Timestamp,
) -> Decision {
    // Only the timer of the oldest input counts. A timer of an input that was deleted meanwhile is
    // stale.
    let is_armed = expiry_timer(early).is_some_and(|timer| {
        (timer.due, &timer.name, timer.token) == (fired.due, &fired.name, fired.token)
    });
    if !is_armed {
        return ignore_with_cleanup(key, input, now, "the timer is stale");
    }

    // The wall clock can be behind the due time of a timer that the steady clock fired (ADR 0026).
    let expired_at = now.max(fired.due);
    let expired_count = early
        .iter()
        .take_while(|buffered| buffered.expires_at <= expired_at)
        .count();
    let (expired, rest) = early.split_at(expired_count);

    let mut commit = Commit::empty(key.clone(), now);
    commit.disarm.push(expiry_timer_at(fired.due));
    commit.arm.extend(expiry_timer(rest));
    commit.unbuffer = expired.iter().map(|buffered| buffered.number).collect();
    Decision::Commit(Box::new(commit))
}
