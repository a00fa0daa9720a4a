//! Early events: events that arrive before the step that awaits them, or its compensation, has
//! started.
//!
//! They are kept in the state, in the order of arrival, and applied when the step starts. A later
//! step, a later round of a loop, and the next run of a saga that restarts all count.
//!
//! | event | a step that has started consumed it before | kept |
//! |---|---|---|
//! | of a step that waits for an event | yes or no | while one may start, also in the next run |
//! | confirmation of a command or a compensation | no | while that step may start |
//! | confirmation of a command or a compensation | yes | no |
//!
//! A confirmation that follows a consumed one repeats it, as far as the machine can know: it must not
//! confirm another command. In a loop, a condition on the round distinguishes those of other rounds.
//!
//! An early confirmation takes the place of the command: the command that its step has just
//! requested is withdrawn (ADR 0106). It was executed before a store lost its commits, or its result
//! exists without it. Sending it would execute a command whose step has ended. Only a compensation
//! is sent although its success is confirmed: what the step has changed since must be compensated.

use std::collections::BTreeMap;

use orlog_model::{Event, EventType, Failure};

use super::apply_outcome::apply_step_input;
use super::collect::event_key;
use super::compiled::EventBinding;
use super::execution::{Execution, NoTransition};
use super::malformed_event::{malformed_event, record_malformed};
use super::match_event::{is_wait, match_event};
use super::outcome_table::StepOutcome;
use super::request::withdraw_request;
use super::state::{EarlyEvent, Flags, StepIndex};
use super::step_input::StepInput;
use super::step_state::StepState;
use crate::contract::ProgramError;
use crate::expression::{EventData, envelope};
use crate::steps::kind::EXPRESSION_ERROR;

/// Maximum number of early events of an instance.
const MAX_EARLY_EVENTS: usize = 100;

/// Keeps an event if a step or a compensation that has not started awaits it. Returns whether it is
/// kept.
pub(super) fn keep_early(run: &mut Execution<'_>, event: &Event) -> Result<bool, ProgramError> {
    let kind = &event.kind;
    let ttl = run.saga.early_event_ttl;
    if ttl.is_zero() || !is_early(run, kind, event.into()) {
        return Ok(false);
    }

    if early(run).len() >= MAX_EARLY_EVENTS {
        // The event becomes a dead letter.
        let message = format!(
            "{kind}: its step has not started, and {MAX_EARLY_EVENTS} events are already kept"
        );
        return Err(ProgramError::Evaluation(message));
    }

    let expires_at = run.context.now.saturating_add(ttl);

    // Only a step that counts events needs their keys.
    let key = if run.saga.collects(kind) {
        event_key(event)
    } else {
        0
    };
    let envelope = run.saga.reads_envelope.then(|| envelope(event));
    let early = EarlyEvent {
        kind: kind.clone(),
        data: event.data.clone(),
        expires_at,
        key,
        envelope,
    };

    run.state.extra_mut().early.push(early);
    run.add_note(&format!("{kind} kept until its step starts"));
    Ok(true)
}

/// Applies the first early event whose step has started. Returns whether there was one.
pub(super) fn apply_early(run: &mut Execution<'_>) -> bool {
    if run.state.flags.has(Flags::FORCED) {
        return false;
    }
    let now = run.context.now;
    // Expired events are dropped after this loop, so they can still be in the list.
    let position = early(run).iter().position(|event| {
        event.expires_at > now && match_event(run, &event.kind, event.event()).is_ok()
    });
    let Some(position) = position else {
        return false;
    };

    let early = run.state.extra_mut().early.remove(position);
    // Matched again, because the first match borrowed the event that is removed from the state now.
    let Ok(step_input) = match_event(run, &early.kind, early.event()) else {
        return false;
    };

    let step_input = StepInput {
        event_key: early.key,
        ..step_input
    };
    // A compensation is sent all the same: its confirmation can be older than the step.
    if step_input.result != StepOutcome::Compensated {
        let is_compensation = run.state.entry(step_input.at).state.is_compensation();
        withdraw_request(run, step_input.at, is_compensation);
    }

    if let Err(NoTransition::Error(error)) = apply_step_input(run, &step_input) {
        // The input of this transition is another one: the step fails, not the input.
        let failure = Failure {
            code: EXPRESSION_ERROR.to_owned(),
            message: error.to_string(),
        };
        let failed = step_input.failed(failure);
        // A failure saves nothing, so it has no error of its own that could be lost.
        drop(apply_step_input(run, &failed));
    }
    true
}

/// Drops the early events whose steps will not start any more.
pub(super) fn drop_stale_early(run: &mut Execution<'_>) {
    if early(run).is_empty() {
        return;
    }

    let early = std::mem::take(&mut run.state.extra_mut().early);
    let now = run.context.now;
    let mut kept = Vec::new();
    let mut expired = Dropped::default();
    let mut not_awaited = Dropped::default();

    for event in early {
        if event.expires_at <= now {
            expired.add(event.kind);
        } else if is_early(run, &event.kind, event.event()) {
            kept.push(event);
        } else if !record_malformed(run, &event.kind, event.event()) {
            not_awaited.add(event.kind);
        }
    }

    run.state.extra_mut().early = kept;
    expired.note(run, "expired");
    not_awaited.note(run, "no step can await it");
}

/// Dropped early events by type. The history states them: their publisher received the response
/// that they are accepted.
#[derive(Default)]
struct Dropped(BTreeMap<EventType, usize>);

impl Dropped {
    fn add(&mut self, kind: EventType) {
        *self.0.entry(kind).or_default() += 1;
    }

    fn note(self, run: &mut Execution<'_>, reason: &str) {
        for (kind, count) in self.0 {
            let times = if count == 1 {
                String::new()
            } else {
                format!(" {count} times")
            };
            run.add_note(&format!("{kind} dropped{times}: {reason}"));
        }
    }
}

fn early<'r>(run: &'r Execution<'_>) -> &'r [EarlyEvent] {
    run.state.extra.as_ref().map_or(&[], |extra| &extra.early)
}

/// Returns whether a step or a compensation that may still start can await the event. See the table
/// of the module.
fn is_early(run: &Execution<'_>, kind: &EventType, event: EventData<'_>) -> bool {
    if run.state.phase.status().is_final() {
        return false;
    }

    let entries = run.saga.entries.get(kind).map_or(&[][..], Vec::as_slice);
    // What a running wait cannot read lacks a field that the same wait of the next run reads, too.
    let restarts = may_restart(run) && malformed_event(run, kind, event).is_none();
    let is_awaited_later = entries
        .iter()
        .filter(|entry| is_wait(run, **entry))
        .any(|entry| restarts || may_start(run, *entry, event));

    // Publishers of events are not bound to the steps, so each event counts.
    is_awaited_later
        || entries.iter().any(|entry| may_start(run, *entry, event))
            && !entries.iter().any(|entry| has_started(run, *entry, event))
}

/// Returns whether the instance may still begin another run, in which every step starts again.
fn may_restart(run: &Execution<'_>) -> bool {
    if run.state.flags.has(Flags::COMPENSATION_STARTED) {
        return false;
    }

    let mut steps = run.saga.steps.iter().enumerate();
    steps.any(|(index, step)| {
        let state = run.state.step_state(index);
        step.action.kind.restart().is_some()
            && matches!(state, StepState::Pending | StepState::Retrying)
    })
}

fn may_start(run: &Execution<'_>, entry: EventBinding, event: EventData<'_>) -> bool {
    if entry.is_compensation {
        let is_foreach = run.saga.steps[entry.step].foreach.is_some();
        // The elements of a step that has not started are not in the state yet.
        return is_foreach && run.state.elements(entry.step).is_none()
            || run
                .units_of(entry.step)
                .any(|at| run.state.entry(at).state.may_be_compensated());
    }

    let is_pending = |at: StepIndex| run.state.entry(at).state == StepState::Pending;
    !run.state.flags.has(Flags::COMPENSATION_STARTED)
        && (is_pending(StepIndex::step(entry.step))
            || may_repeat(run, entry.step)
            // An element that waits for its turn has its value already, so its condition can select
            // it.
            || run
                .units_of(entry.step)
                .any(|at| is_pending(at) && run.satisfies(at, entry, event).unwrap_or(false)))
}

/// Returns whether another round of a loop may start the step.
fn may_repeat(run: &Execution<'_>, step: usize) -> bool {
    let Some(end) = run.saga.steps[step].in_loop else {
        return false;
    };
    let max = run.saga.steps[end]
        .action
        .kind
        .repeat()
        .map_or(0, |repeat| repeat.max);

    run.state.step_state(end) == StepState::Pending && run.state.run.loop_round(end) + 1 < max
}

fn has_started(run: &Execution<'_>, entry: EventBinding, event: EventData<'_>) -> bool {
    // Past rounds of a loop have consumed events of their own.
    let in_loop = run.saga.steps[entry.step].in_loop.is_some();
    let mut units = run
        .units_of(entry.step)
        .filter(|at| !in_loop || at.element.is_none());

    units.any(|at| {
        let state = run.state.entry(at).state;
        let has_started = if entry.is_compensation {
            state.is_compensation() || state == StepState::Compensated
        } else {
            !matches!(
                state,
                StepState::Pending | StepState::Skipped | StepState::Bypassed
            )
        };
        has_started && run.satisfies(at, entry, event).unwrap_or(false)
    })
}
