//! Decides an input by its kind and the status of the instance.
//!
//! | input | no instance | paused | final or stuck | otherwise |
//! |---|---|---|---|---|
//! | start event | apply | buffer | apply ¹ | apply |
//! | other subscribed event | buffer for `early_event_ttl` | buffer | apply ¹ | apply |
//! | any other event | ignore | buffer | apply (program ignores) | apply (program ignores) |
//! | result of pending work | ignore | buffer | apply ¹ | apply |
//! | result of other work | clean up | clean up | clean up | clean up |
//! | armed timer | ignore, delete | delete; resume arms it | impossible: no timer is armed | apply |
//! | timer of a signal | ignore, delete | buffer | apply when stuck | apply if its wait lasts |
//! | stale timer | ignore, delete | ignore, delete | ignore, delete | ignore, delete |
//! | timer `early` | delete expired inputs | ignore, delete | ignore, delete | ignore, delete |
//! | cancel | reject | reject | reject when final | apply |
//! | retry | reject | reject | apply when stuck | reject |
//! | skip, force-complete | reject | reject | apply when stuck | reject |
//! | pause | reject | reject | reject when final | set the flag |
//! | resume | reject | clear the flag, arm the timers | reject | reject |
//! | signal that the program declares as a start | apply | buffer | apply | apply |
//! | other signal | reject; of the bus: as an event | buffer | apply | apply |
//! | signal for a later time | as other signals | buffer | arm when stuck; ignore | arm its timer |
//! | request whose conditions do not hold | reject | reject | reject | reject |
//! | claim, release, assign a task | reject | change it | change it when stuck ² | change it |
//! | complete a task | reject | reject | apply when stuck ² | apply |
//! | drop | reject | reject | reject | reject |
//! | migrate | reject | migrate | migrate when stuck; reject | migrate, unless blocked |
//! | start, by a request | apply | see `start.rs` | see `start.rs` | see `start.rs` |
//! | start, by a parent saga | apply, or report the reason | report ³ | report ³ | report ³ |
//! | cancel, by the parent saga | buffer | buffer | apply when stuck; ignore | apply |
//! | end of a child saga that is pending work | ignore | buffer | apply ¹ | apply |
//! | end of any other saga | ignore | ignore | ignore | ignore |
//!
//! ¹ The program ignores the input, or compensates a late success. ² An ended instance has no open
//! task: rejected. ³ To the parent: that the instance exists. If it is the parent of an ended
//! instance, it receives the end again.
//!
//! To clean up is to ignore the result and to delete its outbox row.
//!
//! The commit of a work result, whatever its decision, also publishes the facts of the result, and
//! `publish_result.rs` adds the result itself.
//!
//! A duplicate of the start command is ignored. The history records the user and the reason of a
//! control request.
//!
//! To apply an input is to run the program. An input that cannot be applied is dead-lettered. If
//! the program crashes on it, the same commit pauses the instance.

use orlog_model::{
    ControlAction, ControlRequest, Event, Input, Instance, InstanceKey, PendingWork, Status,
    TimerFired, Timestamp, WorkOutcome, WorkResult,
};
use orlog_program::{Program, ProgramInput};

use crate::context::{BufferedInputRef, DecisionContext};
use crate::decision::{Decision, Rejection, ignore_with_cleanup};
use crate::pause::set_paused;
use crate::result_facts::{emit_facts, without_facts};
use crate::run_program::{buffer_input, decide_with_program};
use crate::signal::{
    decide_early_signal, decide_signal, deliver_scheduled, signal_event, staleness,
};
use crate::{child_saga, early_input, start, tasks};

/// Decides one input, according to the table above.
#[must_use]
pub fn decide(context: &DecisionContext<'_>, input: &Input) -> Decision {
    match input {
        Input::Event(event) => decide_event(context, input, event),
        Input::WorkResult(outcome) if outcome.facts.is_empty() => {
            decide_outcome(context, input, outcome)
        }
        Input::WorkResult(outcome) => {
            let bare = without_facts(outcome);
            let mut decision = decide_outcome(context, &Input::WorkResult(bare.clone()), &bare);

            // Whatever the decision, this commit publishes the facts: the copy of a buffered or
            // dead-lettered result has none, so that they are published once.
            if let Decision::Commit(commit)
            | Decision::Ignore {
                cleanup: Some(commit),
                ..
            } = &mut decision
            {
                emit_facts(
                    context.key,
                    context.instance,
                    outcome,
                    context.now,
                    context.history_payload_bytes,
                    commit,
                );
            }

            decision
        }
        Input::Timer(timer) => decide_timer(context, input, timer),
        Input::Control(control) => decide_control(context, input, control),
        Input::Workflow(command) => child_saga::decide_workflow(context, input, command),
        Input::Early(early) => decide(context, &early.input),
    }
}

/// Decides an input for an instance that does not exist, of a saga without a definition. Returns
/// `None` if no decision is possible.
#[must_use]
pub fn decide_without_definition(
    key: &InstanceKey,
    early: &[BufferedInputRef],
    input: &Input,
    now: Timestamp,
) -> Option<Decision> {
    match input {
        Input::Timer(fired) => Some(early_input::expire(key, early, input, fired, now)),
        Input::Workflow(command) => Some(child_saga::reject_unknown_saga(key, command, now)),
        Input::Event(_) | Input::WorkResult(_) | Input::Control(_) | Input::Early(_) => None,
    }
}

fn decide_event(context: &DecisionContext<'_>, input: &Input, event: &Event) -> Decision {
    match context.instance {
        // The event can overtake the start event of its instance.
        None if !starts(context.program, event) => early_input::buffer_event(context, input, event),
        Some(instance) if instance.paused => buffer_input(context, input),
        None | Some(_) => decide_with_program(context, input, &ProgramInput::Event(event)),
    }
}

fn starts(program: &dyn Program, event: &Event) -> bool {
    program
        .manifest()
        .subscriptions
        .iter()
        .any(|trigger| trigger.starts && trigger.kind == event.kind)
}

fn decide_outcome(context: &DecisionContext<'_>, input: &Input, outcome: &WorkResult) -> Decision {
    let open = context.instance.and_then(|i| {
        i.pending_work
            .iter()
            .find(|work| work.id == outcome.work_id)
    });

    match (context.instance, open) {
        (Some(_), Some(open)) if is_stale_failure(outcome, open) => ignore_with_cleanup(
            context.key,
            input,
            context.now,
            "the work was requested again",
        ),
        (Some(instance), Some(_)) if instance.paused => buffer_input(context, input),
        (Some(_), Some(open)) => {
            let program_input = ProgramInput::WorkResult {
                tag: open.tag.as_str(),
                outcome: &outcome.outcome,
            };
            decide_with_program(context, input, &program_input)
        }
        (_, None) | (None, _) => ignore_with_cleanup(
            context.key,
            input,
            context.now,
            "the work item is not pending",
        ),
    }
}

/// Returns whether the result is a failure of an earlier request of the same work.
fn is_stale_failure(result: &WorkResult, open: &PendingWork) -> bool {
    // The later request has its own result. A success of the earlier one counts, because both
    // requests have the same idempotency key.
    result.requested_at < open.requested_at
        && matches!(
            result.outcome,
            WorkOutcome::Failed { .. } | WorkOutcome::TimedOut { .. }
        )
}

fn decide_timer(context: &DecisionContext<'_>, input: &Input, fired: &TimerFired) -> Decision {
    let armed = context
        .instance
        .is_some_and(|instance| instance.timers.iter().any(|t| t.is(fired)));

    match context.instance {
        // A signal for a later time is an event, and keeps its place among the events.
        Some(instance)
            if armed && instance.paused && instance.scheduled_signal(fired).is_some() =>
        {
            buffer_input(context, input)
        }
        // The resume arms it again, after the buffered events: none of them is too late.
        Some(instance) if armed && instance.paused => ignore_with_cleanup(
            context.key,
            input,
            context.now,
            "the instance is paused; the timer fires after it is resumed",
        ),
        Some(instance) if armed => match instance.scheduled_signal(fired) {
            // A signal for a later time is a timer that carries the event (ADR 0071).
            Some(signal) => deliver_scheduled(context, input, instance, signal),
            None => decide_with_program(
                context,
                input,
                &ProgramInput::Timer {
                    name: fired.name.as_str(),
                },
            ),
        },
        Some(_) => ignore_with_cleanup(context.key, input, context.now, "the timer is stale"),
        None => early_input::expire(context.key, context.buffered, input, fired, context.now),
    }
}

fn decide_control(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
) -> Decision {
    let Some(instance) = context.instance else {
        return match &control.action {
            ControlAction::Start(request) => start::decide_start(context, input, control, request),
            ControlAction::Deliver { event, due_at } => {
                decide_early_signal(context, input, control, event, *due_at)
            }
            _ => start_by_signal(context, input, control),
        };
    };

    // A request that is based on an old state is reported as stale, also if the status forbids it.
    if let Some(rejection) = staleness(instance, control) {
        return Decision::Reject(rejection);
    }

    let reject = |cause: &'static str| {
        Decision::Reject(Rejection::InvalidStatus {
            status: instance.status,
            paused: instance.paused,
            reason: cause.into(),
        })
    };

    if let Some(cause) = forbidden(instance, &control.action) {
        return reject(cause);
    }

    match &control.action {
        ControlAction::Resume => Decision::Commit(Box::new(set_paused(context, input, false))),
        ControlAction::Pause => Decision::Commit(Box::new(set_paused(context, input, true))),
        ControlAction::Signal { kind, data, due_at } => {
            let event = signal_event(context.key, control, kind, data);
            decide_signal(context, input, control, &event, *due_at, instance)
        }
        ControlAction::Deliver { event, due_at } => {
            decide_signal(context, input, control, event, *due_at, instance)
        }
        ControlAction::Start(request) => start::decide_start(context, input, control, request),
        ControlAction::Task { id, order, roles } => {
            tasks::decide_task(context, input, control, instance, *id, order, roles)
        }
        ControlAction::Replay => reject("the target state is missing"),
        ControlAction::Drop => reject("only a quarantined instance can be dropped"),
        // A migration to a definition that is loaded is decided by the saga actor.
        ControlAction::Migrate { .. } => Decision::Reject(Rejection::MigrationBlocked {
            reasons: vec!["no definition has this hash".to_owned()],
        }),
        ControlAction::Cancel { reason } => {
            decide_with_program(context, input, &ProgramInput::Cancel { reason })
        }
        ControlAction::Retry => decide_with_program(context, input, &ProgramInput::Retry),
        ControlAction::Skip => decide_with_program(context, input, &ProgramInput::Skip),
        ControlAction::ForceComplete => {
            decide_with_program(context, input, &ProgramInput::ForceComplete)
        }
    }
}

/// Returns why the status of an instance forbids a control action; `None` if the status permits it.
#[must_use]
pub fn forbidden(instance: &Instance, action: &ControlAction) -> Option<&'static str> {
    let is_stuck = instance.status == Status::Stuck;

    match action {
        ControlAction::Resume if !instance.paused => Some("only a paused instance can be resumed"),
        ControlAction::Pause
        | ControlAction::Cancel { .. }
        | ControlAction::Retry
        | ControlAction::Skip
        | ControlAction::ForceComplete
            if instance.paused =>
        {
            Some("resume it first")
        }
        ControlAction::Pause | ControlAction::Cancel { .. } if instance.status.is_final() => {
            Some("it has ended")
        }
        ControlAction::Retry if !is_stuck => Some("only a stuck instance can be retried"),
        ControlAction::Skip if !is_stuck => Some("only a stuck instance can skip"),
        ControlAction::ForceComplete if !is_stuck => {
            Some("only a stuck instance can be force-completed")
        }
        ControlAction::Resume
        | ControlAction::Pause
        | ControlAction::Cancel { .. }
        | ControlAction::Retry
        | ControlAction::Skip
        | ControlAction::ForceComplete
        | ControlAction::Signal { .. }
        | ControlAction::Deliver { .. }
        | ControlAction::Start(_)
        | ControlAction::Task { .. }
        | ControlAction::Replay
        | ControlAction::Drop
        | ControlAction::Migrate { .. } => None,
    }
}

/// Starts an instance with a signal, if its program declares the signal as a start.
fn start_by_signal(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
) -> Decision {
    let starts = context.program.manifest().started_by_signal.as_ref();

    match &control.action {
        ControlAction::Signal {
            kind,
            data,
            due_at: None,
        } if starts == Some(kind) => {
            let event = signal_event(context.key, control, kind, data);
            decide_with_program(context, input, &ProgramInput::Event(&event))
        }
        _ => Decision::Reject(Rejection::NotFound),
    }
}
