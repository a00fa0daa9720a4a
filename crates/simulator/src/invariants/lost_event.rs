//! Invariant of events: an event is not lost while a step that waits for its type can still start.

use std::time::Duration;

use orlog_engine::Decision;
use orlog_model::{Event, EventType, Input, Status};
use orlog_program::{Action, CompiledDefinition, Definition, Step};
use serde_json::Value;

use super::invariant::{Invariant, Violation};
use crate::simulator::ObservedDecision;

/// Checks that an event that a later step waits for is consumed, kept for this step, or becomes a
/// dead letter.
pub(super) fn check_event_kept(seen: &ObservedDecision<'_>, violations: &mut Vec<Violation>) {
    let Some(event) = event_of(seen.input) else {
        return;
    };
    let program = seen.context.program;
    let Some(definition) = program.as_compiled().map(CompiledDefinition::definition) else {
        return;
    };
    let Some(before) = seen.context.instance else {
        return;
    };

    // A definition can switch early events off, and ignore versions of an event.
    let keeps_none = definition.early_event_ttl == Some(Duration::ZERO);
    if keeps_none || definition.events.contains_key(&event.kind) {
        return;
    }

    // Most events have no such step; the views of the states are large.
    let is_awaited = definition
        .steps
        .iter()
        .any(|step| awaits(step, &event.kind));
    if !is_awaited {
        return;
    }

    let view = |state| program.view_state(state).unwrap_or_default();
    let current = match seen.decision {
        Decision::Ignore { .. } if before.status == Status::Running => view(&before.state),
        Decision::Commit(commit) => {
            // A dead letter can be redriven, and a paused instance applies the event later.
            let after = commit.instance.as_ref().filter(|after| {
                // The next run of a saga has other steps of the same names.
                commit.dead_letter.is_none()
                    && after.status == Status::Running
                    && after.run_id == before.run_id
            });
            let Some(after) = after else { return };

            let after = view(&after.state);
            if after["steps"] != view(&before.state)["steps"] || keeps(&after, &event.kind) {
                return;
            }
            after
        }
        Decision::Ignore { .. } | Decision::Reject(_) => return,
    };

    if let Some(step) = waiting_later(definition, &current, &event.kind) {
        let message = format!(
            "{} was not kept, although {} waits for it later",
            event.kind, step.id
        );
        violations.push(Violation {
            rule: Invariant::EventKept,
            message,
        });
    }
}

/// Returns the event of an input, also of one that was buffered.
fn event_of(input: &Input) -> Option<&Event> {
    match input {
        Input::Event(event) => Some(event),
        Input::Early(early) => event_of(&early.input),
        Input::WorkResult(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => None,
    }
}

/// Returns whether an event of a type is kept for its step.
fn keeps(view: &Value, kind: &EventType) -> bool {
    let mut kinds = view["early_events"].as_array().into_iter().flatten();
    kinds.any(|kept| *kept == kind.as_str())
}

/// Returns a step that has not started and waits for events of the type.
fn waiting_later<'d>(
    definition: &'d Definition,
    view: &Value,
    kind: &EventType,
) -> Option<&'d Step> {
    let states = view["steps"].as_array().into_iter().flatten();
    let pending: Vec<_> = states
        .filter(|step| step["state"] == "pending")
        .filter_map(|step| step["id"].as_str())
        .collect();

    definition
        .steps
        .iter()
        .find(|step| awaits(step, kind) && pending.contains(&step.id.as_str()))
}

/// Returns whether a step is a wait for events of the type.
fn awaits(step: &Step, kind: &EventType) -> bool {
    matches!(&step.action, Action::Event(awaited) if awaited.events.contains(kind))
}
