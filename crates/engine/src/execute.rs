//! Asks the program about a stimulus and turns its answer into a decision.

use orlog_model::{Commit, DeadLetterReason, Input, Status, Transition};
use orlog_program::{Context, Fault, Reaction, Stimulus};

use crate::commit_builder::applied;
use crate::context::{Cause, Subject, cleared, marker};
use crate::dead_letter::{Grounds, set_aside};
use crate::decision::{Decision, Refusal, ignore_and_clear};
use crate::pause::park;

/// Asks the program.
pub(crate) fn judge(subject: &Subject<'_>, stimulus: &Stimulus<'_>) -> Result<Reaction, Fault> {
    let context = Context { key: subject.key, version: next_version(subject), now: subject.now };
    subject.program.apply(subject.instance.map(|i| i.state.as_slice()), stimulus, &context)
}

fn next_version(subject: &Subject<'_>) -> u64 {
    subject.instance.map_or(0, |i| i.version) + 1
}

/// What the program answered is done.
pub(crate) fn apply(subject: &Subject<'_>, input: &Input, transition: Transition) -> Decision {
    let cause = Cause { input, id: input.id(), version: next_version(subject) };
    Decision::Commit(Box::new(applied(subject, &cause, transition)))
}

/// Shows the stimulus to the program and turns its answer into a decision.
pub(crate) fn react(subject: &Subject<'_>, input: &Input, stimulus: &Stimulus<'_>) -> Decision {
    match judge(subject, stimulus) {
        Ok(Reaction::Applied(transition)) => apply(subject, input, *transition),
        Ok(Reaction::Ignored(why)) => ignore_and_clear(subject.key, input, subject.now, why),
        Ok(Reaction::Refused(why)) => Decision::Refuse(Refusal::Status {
            status: subject.instance.map_or(Status::Running, |i| i.status),
            paused: subject.instance.is_some_and(|i| i.paused),
            why,
        }),
        Err(fault) => Decision::Commit(Box::new(fault_commit(subject, input, &fault))),
    }
}

fn fault_commit(subject: &Subject<'_>, input: &Input, fault: &Fault) -> Commit {
    let reason = match fault {
        Fault::Schema(_) => DeadLetterReason::SchemaMismatch,
        Fault::Program(_) | Fault::Broken(_) => DeadLetterReason::ProgramError,
        Fault::State(_) => DeadLetterReason::SnapshotInconsistent,
    };
    let grounds = Grounds { reason, message: fault.to_string(), attempts: 1 };
    let mut commit = set_aside(subject.key, input, grounds, subject.now, subject.node);
    if let Fault::Broken(message) = fault {
        park(subject, input, message, &mut commit);
    }
    commit
}

/// Keeps the input until the instance is resumed.
pub(crate) fn hold(subject: &Subject<'_>, input: &Input) -> Decision {
    let mut commit = cleared(subject.key, input, subject.now);
    commit.hold = Some(input.clone());
    commit.applied = marker(input);
    Decision::Commit(Box::new(commit))
}
