//! Collection: a step that waits for several events keeps them, and completes with the last one.

use orlog_model::{Event, Failure};
use serde_json::Value;

use super::execution::{Execution, NoTransition};
use super::state::StepIndex;
use super::step_input::StepInput;
use crate::contract::ProgramError;
use crate::limits::{MAX_COLLECTED_BYTES, MAX_COLLECTED_EVENTS, check_payload_within};
use crate::steps::CompiledCollection;

/// Result of one more event.
pub(super) enum CollectOutcome {
    /// The step waits for further events.
    Waiting,
    /// The step completes with this event.
    Complete,
    /// The events cannot be collected.
    Failed(Failure),
}

/// Returns the key by which duplicates of an event are recognized; it is never 0.
pub(super) fn event_key(event: &Event) -> u64 {
    event.dedupe_key().hash_with(b"event").max(1)
}

/// Returns whether the event is the one that started the instance, delivered again.
pub(super) fn starts_again(run: &Execution<'_>, event: &Event) -> bool {
    let started_by = run.state.run.events.started_by;
    started_by != 0 && run.saga.start.contains(&event.kind) && started_by == event_key(event)
}

/// Adds an event to those of a step.
pub(super) fn collect(
    run: &mut Execution<'_>,
    at: StepIndex,
    collection: &CompiledCollection,
    step_input: &StepInput<'_>,
) -> Result<CollectOutcome, NoTransition> {
    let tag = run.tag_of(at, false);
    let id = &run.step(at).id;
    let collected = run.state.run.events.collected_mut(tag);

    let key = step_input.event_key;
    // Key 0 is no identity: an early event that was stored without its key has it.
    if key != 0 && collected.keys.contains(&key) {
        return Err(NoTransition::Ignored(
            "the step has already counted this event",
        ));
    }

    collected.keys.push(key);

    // The payloads are stored only if an expression reads them.
    if collection.keeps_data
        && let Value::Array(list) = &mut collected.data
    {
        list.push(step_input.event.data.clone());
    }

    let count = collected.keys.len();
    let failed = |code: &str, message| {
        CollectOutcome::Failed(Failure {
            code: code.to_owned(),
            message,
        })
    };

    // The list is a part of the state, which has a limit of its own for all its parts.
    if check_payload_within(&collected.data, &mut { MAX_COLLECTED_BYTES }).is_err() {
        let message = format!("{id}: the collected events exceed {MAX_COLLECTED_BYTES} bytes");
        return Ok(failed("events_too_large", message));
    }

    // Evaluated after the event is added, so that `events` contains it.
    let is_complete = match &collection.until {
        Some(until) => until.holds(&run.bindings(at).event(step_input.event)),
        None => Ok(collection.count.is_some_and(|required| count >= required)),
    };

    match is_complete {
        Ok(true) => Ok(CollectOutcome::Complete),
        // Only `until` gets here: the compiler bounds `count` by the same number.
        Ok(false) if count >= MAX_COLLECTED_EVENTS => {
            let message =
                format!("{id}: `until` does not hold after {MAX_COLLECTED_EVENTS} events");
            Ok(failed("too_many_events", message))
        }
        Ok(false) => {
            let of = collection
                .count
                .map(|count| format!(" of {count}"))
                .unwrap_or_default();
            run.add_step_note(at, &format!("event {count}{of}"));
            Ok(CollectOutcome::Waiting)
        }
        // The event matched, so its `until` had a value with the same state.
        Err(error) => Err(ProgramError::Evaluation(format!("{id}: {error}")).into()),
    }
}
