//! Runs the program on an input and converts its output into a decision.

use std::sync::Arc;

use orlog_model::{Commit, DeadLetterReason, Input, Instance, Status, Transition};
use orlog_program::{Context, ProgramError, ProgramInput, ProgramOutput};

use crate::commit_builder::{build_commit, unchanged};
use crate::context::{DecisionContext, TransitionCause, cleanup_commit};
use crate::dead_letter::{DeadLetterCause, dead_letter_input};
use crate::decision::{Decision, Rejection, ignore_with_cleanup};
use crate::pause::pause_after_crash;
use crate::unapplied::mark_unapplied;

/// Runs the program on an input, which it receives in this form.
pub(crate) fn run_program(
    context: &DecisionContext<'_>,
    input: &Input,
    program_input: &ProgramInput<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let program_context = Context {
        key: context.key,
        version: next_version(context),
        now: context.now,
        pending_work: context
            .instance
            .map_or(&[], |instance| &instance.pending_work),
        attempts: input.attempts(),
    };

    context.program.apply(
        context.instance.map(|i| i.state.as_slice()),
        program_input,
        &program_context,
    )
}

fn next_version(context: &DecisionContext<'_>) -> u64 {
    context.instance.map_or(0, |i| i.version) + 1
}

/// Commits the transition of the program.
pub(crate) fn commit_transition(
    context: &DecisionContext<'_>,
    input: &Input,
    transition: Transition,
) -> Decision {
    let cause = TransitionCause::new(input, next_version(context));
    Decision::Commit(build_commit(context, cause, transition))
}

/// Returns the commit of an input that the program does not apply: its row and its timer are
/// removed, and no wait ends.
pub(crate) fn commit_unchanged(
    context: &DecisionContext<'_>,
    input: &Input,
    instance: &Instance,
    note: String,
) -> Box<Commit> {
    let cause = TransitionCause::new(input, next_version(context));
    let mut commit = build_commit(context, cause, unchanged(instance, note));
    // The program did not see the input, so no wait ends and none begins.
    if let Some(next) = &mut commit.instance {
        Arc::make_mut(next).waits.clone_from(&instance.waits);
    }
    commit
}

/// Runs the program on the input and converts its output into a decision.
pub(crate) fn decide_with_program(
    context: &DecisionContext<'_>,
    input: &Input,
    program_input: &ProgramInput<'_>,
) -> Decision {
    match run_program(context, input, program_input) {
        Ok(ProgramOutput::Applied(transition)) => commit_transition(context, input, *transition),
        Ok(ProgramOutput::Ignored(reason)) => {
            // The entry of pending work goes even if the program ignores its result: an instance
            // with pending work is never purged.
            match context.instance.filter(|it| has_pending(it, input)) {
                Some(instance) => Decision::Commit(commit_unchanged(
                    context,
                    input,
                    instance,
                    reason.into_owned(),
                )),
                None => ignore_with_cleanup(context.key, input, context.now, reason),
            }
        }
        Ok(ProgramOutput::Rejected(reason)) => Decision::Reject(Rejection::InvalidStatus {
            status: context.instance.map_or(Status::Running, |i| i.status),
            paused: context.instance.is_some_and(|i| i.paused),
            reason,
        }),
        Err(fault) => Decision::Commit(Box::new(fault_commit(context, input, &fault))),
    }
}

/// Returns whether the input is the result of pending work.
fn has_pending(instance: &Instance, input: &Input) -> bool {
    input
        .completed_work_id()
        .is_some_and(|id| instance.pending_work.iter().any(|work| work.id == id))
}

fn fault_commit(context: &DecisionContext<'_>, input: &Input, fault: &ProgramError) -> Commit {
    let reason = match fault {
        ProgramError::SchemaMismatch(_) => DeadLetterReason::SchemaMismatch,
        ProgramError::Evaluation(_) | ProgramError::Crashed(_) => DeadLetterReason::ProgramError,
        ProgramError::InvalidState(_) => DeadLetterReason::SnapshotInconsistent,
    };

    let cause = DeadLetterCause {
        reason,
        message: fault.to_string(),
        attempts: 1,
    };

    let mut commit = dead_letter_input(context.key, input, cause, context.now, context.node);

    // No later input may be applied to a state that lacks this one.
    if let ProgramError::Crashed(message) = fault {
        pause_after_crash(context, input, message, &mut commit);
    }

    // Without the result, the instance would wait for ever and show no reason.
    mark_unapplied(
        context.instance,
        input,
        context.now,
        context.node,
        context.history_payload_bytes,
        &mut commit,
    );
    commit
}

/// Buffers the input until the instance is resumed.
pub(crate) fn buffer_input(context: &DecisionContext<'_>, input: &Input) -> Decision {
    let mut commit = cleanup_commit(context.key, input, context.now);
    commit.buffer = Some(Box::new(input.clone()));
    // A duplicate of a buffered input is recognized although the input is not applied yet.
    commit.dedupe_key = input.dedupe_key();
    Decision::Commit(Box::new(commit))
}
