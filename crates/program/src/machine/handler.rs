//! Event handlers, active while the saga runs forward.

use orlog_model::{Event, Name, ParentEndPolicy, StartChild, Work, WorkOutcome};

use super::compensate::{abandon_all, start_cancellation, start_compensation};
use super::compiled::{CompiledHandler, ON, REMIND, child_tag, handler_tag};
use super::execution::Execution;
use super::request::{RequestOrigin, request_of};
use super::state::{Flags, HandlerChild, StepEntry};
use super::step_input::failure_message;
use super::step_state::{Phase, StepState};
use crate::contract::{FailureCause, ProgramError};
use crate::definition::AfterHandler;
use crate::limits::MAX_HANDLER_CHILDREN;
use crate::steps::CompiledActionKind;
use crate::steps::kind::{Request, RequestLimits};

/// Runs every handler of the event whose condition holds, in order. Returns true if there was one.
pub(super) fn run_handlers(run: &mut Execution<'_>, event: &Event) -> Result<bool, ProgramError> {
    let mut handled = false;
    for (number, handler) in run.saga.handlers.iter().enumerate() {
        // An earlier handler of this event can have ended the forward run.
        let flags = run.state.flags;
        let is_over = flags.has(Flags::COMPENSATION_STARTED) || flags.has(Flags::ENDED);
        let runs_forward = run.state.phase == Phase::Running && !is_over;
        if !runs_forward || !handler.event.contains(&event.kind) {
            continue;
        }

        let holds = match &handler.when {
            None => true,
            Some(when) => when
                .holds(&run.saga_bindings().event(event))
                .map_err(|error| ProgramError::SchemaMismatch(format!("on[{number}]: {error}")))?,
        };
        if holds {
            run_handler(run, number, handler, event)?;
            handled = true;
        }
    }
    Ok(handled)
}

fn run_handler(
    run: &mut Execution<'_>,
    number: usize,
    handler: &CompiledHandler,
    event: &Event,
) -> Result<(), ProgramError> {
    run.add_note(event.kind.as_str());
    run.save_vars(&handler.save, event.into())?;

    for (index, task) in handler.tasks.iter().enumerate() {
        let bindings = run.saga_bindings().event(event);

        // Each event is a round of its own.
        let round = event.dedupe_key().hash_with(&index.to_le_bytes());
        let starts_child = matches!(task.kind, CompiledActionKind::Saga(_));
        // Each child has its own pending work. Other results are not awaited, so the actions of a
        // handler share a tag.
        let tag = if starts_child {
            child_tag(number, round)
        } else {
            handler_tag(number)
        };
        let origin = RequestOrigin {
            step: &tag,
            tag: &tag,
            round,
            retries: 0,
        };

        let request = request_of(run, task, &origin, RequestLimits::default(), &bindings)
            .map_err(|error| ProgramError::SchemaMismatch(format!("on[{number}]: {error}")))?;
        let Request::Work(work) = request else {
            // The compiler permits commands, effects and child sagas, which all are work.
            unreachable!("handlers request only work")
        };
        if let Work::StartChild(start) = &*work {
            open_child(run, number, start)?;
        }

        run.work.push(*work);
    }

    let compensates = matches!(handler.then, AfterHandler::Cancel | AfterHandler::Fail);
    // The actions of the handler are requested all the same; only the end of the saga is not
    // possible.
    if compensates && run.state.flags.has(Flags::PIVOTED) {
        run.add_note("past the pivot");
        return Ok(());
    }

    match handler.then {
        AfterHandler::Continue => {}
        AfterHandler::Cancel => start_cancellation(run, event.kind.as_str()),
        AfterHandler::Fail => {
            let message = failure_message(&event.kind, &event.data);
            start_compensation(
                run,
                FailureCause {
                    code: event.kind.to_string(),
                    message,
                    step: String::new(),
                },
            );
        }
        AfterHandler::Complete => {
            abandon_remaining_steps(run);
            // Otherwise the advance completes the saga, because all its steps are finished now.
            if run.saga.keep_active || !run.state.run.events.children.is_empty() {
                run.state.flags.set(Flags::ENDED);
            }
        }
    }
    Ok(())
}

/// Records a child saga, unless the saga does not await its end.
fn open_child(
    run: &mut Execution<'_>,
    number: usize,
    start: &StartChild,
) -> Result<(), ProgramError> {
    let pending = run
        .context
        .pending_work
        .iter()
        // Children with `abandon` are bounded here: the state does not list them.
        .filter(|work| is_handler_child(&work.tag))
        .count();
    let children = &mut run.state.run.events.children;

    // A start request that is repeated has the tag of its event, and starts no second child.
    if children.iter().any(|child| child.tag == start.tag) {
        return Ok(());
    }

    // Each open child is a part of the state. One that is not awaited is in the pending work only.
    if pending.max(children.len()) >= MAX_HANDLER_CHILDREN {
        // The event becomes a dead letter, which is redriven when some have ended (ADR 0075).
        let message =
            format!("on[{number}]: {MAX_HANDLER_CHILDREN} child sagas of event handlers are open");
        return Err(ProgramError::Evaluation(message));
    }

    if start.on_parent_end != ParentEndPolicy::Abandon {
        children.push(HandlerChild {
            tag: start.tag.clone(),
            saga: start.saga.clone(),
            correlation: start.correlation.clone(),
            on_parent_end: start.on_parent_end,
        });
    }
    Ok(())
}

/// Returns whether the result of work with this tag changes an instance.
pub(crate) fn awaits_result(tag: &Name) -> bool {
    let text = tag.as_str();
    !text.starts_with(REMIND) && (!text.starts_with(ON) || is_handler_child(tag))
}

/// Returns whether a tag is that of a child saga of a handler.
fn is_handler_child(tag: &Name) -> bool {
    tag.as_str().starts_with(ON) && tag.as_str().ends_with(']')
}

/// Records the end of a child saga that a handler started. Returns false if the result is another
/// one.
pub(super) fn end_child(run: &mut Execution<'_>, tag: &str, outcome: &WorkOutcome) -> bool {
    if !run.state.run.events.remove_child(tag) {
        return false;
    }

    // A failed child fails nothing here; a handler for its `failed` fact can (ADR 0075).
    run.add_note(&match outcome {
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            format!("{tag}: {}", failure.code)
        }
        WorkOutcome::Succeeded { .. } | WorkOutcome::Accepted => {
            format!("{tag}: child saga completed")
        }
    });
    true
}

/// Abandons steps in progress and skips pending ones.
fn abandon_remaining_steps(run: &mut Execution<'_>) {
    abandon_all(run);
    for entry in &mut run.state.steps {
        if entry.state == StepState::Pending {
            *entry = StepEntry::of(StepState::Skipped);
        }
    }
}
