//! Runs the program on an input and converts its output into a decision.

use orlog_model::{Commit, DeadLetterReason, Input, Status, Transition};
use orlog_program::{Context, ProgramError, ProgramInput, ProgramOutput};

use crate::commit_builder::build_commit;
use crate::context::{DecisionContext, TransitionCause, cleanup_commit, dedupe_key};
use crate::dead_letter::{DeadLetterCause, dead_letter_input};
use crate::decision::{Decision, Rejection, ignore_with_cleanup};
use crate::pause::pause_after_crash;

/// Runs the program.
pub(crate) fn run_program(
    subject: &DecisionContext<'_>,
    program_input: &ProgramInput<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let context = Context { key: subject.key, version: next_version(subject), now: subject.now };
    subject.program.apply(subject.instance.map(|i| i.state.as_slice()), program_input, &context)
}

fn next_version(subject: &DecisionContext<'_>) -> u64 {
    subject.instance.map_or(0, |i| i.version) + 1
}

/// Commits the transition of the program.
pub(crate) fn commit_transition(
    subject: &DecisionContext<'_>,
    input: &Input,
    transition: Transition,
) -> Decision {
    let cause = TransitionCause { input, id: input.id(), version: next_version(subject) };
    Decision::Commit(Box::new(build_commit(subject, &cause, transition)))
}

/// Runs the program on the input and converts its output into a decision.
pub(crate) fn decide_with_program(
    subject: &DecisionContext<'_>,
    input: &Input,
    program_input: &ProgramInput<'_>,
) -> Decision {
    match run_program(subject, program_input) {
        Ok(ProgramOutput::Applied(transition)) => commit_transition(subject, input, *transition),
        Ok(ProgramOutput::Ignored(reason)) => ignore_with_cleanup(subject.key, input, subject.now, reason),
        Ok(ProgramOutput::Rejected(reason)) => Decision::Reject(Rejection::InvalidStatus {
            status: subject.instance.map_or(Status::Running, |i| i.status),
            paused: subject.instance.is_some_and(|i| i.paused),
            reason,
        }),
        Err(fault) => Decision::Commit(Box::new(fault_commit(subject, input, &fault))),
    }
}

fn fault_commit(subject: &DecisionContext<'_>, input: &Input, fault: &ProgramError) -> Commit {
    let reason = match fault {
        ProgramError::SchemaMismatch(_) => DeadLetterReason::SchemaMismatch,
        ProgramError::Evaluation(_) | ProgramError::Crashed(_) => DeadLetterReason::ProgramError,
        ProgramError::InvalidState(_) => DeadLetterReason::SnapshotInconsistent,
    };
    let cause = DeadLetterCause { reason, message: fault.to_string(), attempts: 1 };
    let mut commit = dead_letter_input(subject.key, input, cause, subject.now, subject.node);
    if let ProgramError::Crashed(message) = fault {
        pause_after_crash(subject, input, message, &mut commit);
    }
    commit
}

/// Buffers the input until the instance is resumed.
pub(crate) fn buffer_input(subject: &DecisionContext<'_>, input: &Input) -> Decision {
    let mut commit = cleanup_commit(subject.key, input, subject.now);
    commit.buffer = Some(input.clone());
    commit.dedupe_key = dedupe_key(input);
    Decision::Commit(Box::new(commit))
}
