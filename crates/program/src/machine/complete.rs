//! Completion of steps, of the saga and of its compensation.

use super::execution::Execution;
use super::state::Flags;
use super::step_state::{Phase, StepState};
use crate::contract::ProgramError;

/// Completes the step when all its parts are completed.
pub(super) fn complete_step(run: &mut Execution<'_>, step: usize) {
    if !run.saga.steps[step].pivot {
        return;
    }

    // Past the pivot, completed steps are final. Only branches that a join has discarded are still
    // compensated.
    run.state.flags.set(Flags::PIVOTED);
    let done = std::mem::take(&mut run.state.done);
    run.state.done = done
        .into_iter()
        .filter(|at| run.state.entry(*at).state == StepState::CompensationPending)
        .collect();

    run.state.run.drop_completed_rounds();
    // The timeout of the saga starts compensation, which is impossible past the pivot.
    run.cancel_saga_timer();
    run.add_note("past the pivot");
}

pub(super) fn complete_saga(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    run.state.phase = Phase::Completed;
    run.state.flags.set(Flags::COMPLETED);
    // Completed steps are final from here. A late success of an abandoned step is added when it
    // arrives.
    run.state.done.clear();
    run.state.run.drop_completed_rounds();
    run.cancel_saga_timer();

    // The saga has ended before; a late success was compensated in between.
    if run.state.flags.has(Flags::FACT_EMITTED) {
        run.add_note("completed again");
        return Ok(());
    }
    run.add_note("completed");
    run.emit_fact(run.saga.completed.as_ref())
}

pub(super) fn finish_compensated(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    let cancelled = run.state.flags.has(Flags::CANCELLED);
    run.state.phase = if cancelled {
        Phase::Cancelled
    } else {
        Phase::Failed
    };

    run.add_note(run.state.phase.status().as_str());
    // A cancellation emits no fact, and a saga that ended before has emitted its own.
    if cancelled || run.state.flags.has(Flags::FACT_EMITTED) {
        return Ok(());
    }
    run.emit_fact(run.saga.failed.as_ref())
}
