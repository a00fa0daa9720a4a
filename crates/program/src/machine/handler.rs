//! Event handlers, active while the saga runs forward.

use orlog_model::Event;

use super::compensate::{abandon_all, start_cancellation, start_compensation};
use super::compiled::{CompiledHandler, handler_tag};
use super::execution::Execution;
use super::request::{RequestOrigin, request_of};
use super::state::{Flags, StepEntry};
use super::step_input::failure_message;
use super::step_state::{Phase, StepState};
use crate::contract::{FailureCause, ProgramError};
use crate::definition::AfterHandler;
use crate::steps::kind::Request;

/// Runs every handler of the event whose condition holds, in order. Returns true if there was one.
pub(super) fn run_handlers(run: &mut Execution<'_>, event: &Event) -> Result<bool, ProgramError> {
    let mut handled = false;
    for (number, handler) in run.saga.handlers.iter().enumerate() {
        let runs_forward =
            run.state.phase == Phase::Running && !run.state.flags.has(Flags::COMPENSATION_STARTED);
        if !runs_forward || !handler.event.contains(&event.kind) {
            continue;
        }
        let schema_error =
            |reason: &dyn std::fmt::Display| ProgramError::SchemaMismatch(format!("on[{number}]: {reason}"));
        let holds =
            handler.when.as_ref().map_or(Ok(true), |when| when.holds(&run.saga_bindings().event(event)));
        if holds.map_err(|error| schema_error(&error))? {
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
        let tag = handler_tag(number);
        let bindings = run.saga_bindings().event(event);
        // Each event is a round of its own.
        let round = event.dedupe_key().hash_with(&index.to_le_bytes());
        let origin = RequestOrigin { step: &tag, tag: &tag, round, retries: 0 };
        let request = request_of(run, task, &origin, &bindings)
            .map_err(|error| ProgramError::SchemaMismatch(format!("on[{number}]: {error}")))?;
        let Request::Work(work) = request else { unreachable!("handlers request only work") };
        run.work.push(*work);
    }
    let back = matches!(handler.then, AfterHandler::Cancel | AfterHandler::Fail);
    if back && run.state.flags.has(Flags::PIVOTED) {
        run.add_note("past the pivot");
        return Ok(());
    }
    match handler.then {
        AfterHandler::Continue => {}
        AfterHandler::Cancel => start_cancellation(run, event.kind.as_str()),
        AfterHandler::Fail => {
            let (code, message) = (event.kind.to_string(), failure_message(&event.kind, &event.data));
            start_compensation(run, FailureCause { code, message, step: String::new() });
        }
        AfterHandler::Complete => abandon_remaining_steps(run),
    }
    Ok(())
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
