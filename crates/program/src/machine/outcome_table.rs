//! Pure table: update of a step by its state and its result.

use super::step_state::StepState;

/// Result of a step's action or of its compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// The action succeeded.
    Ok,
    /// The action was rejected, failed, or returned an invalid result.
    Failed,
    /// The action timed out; its outcome is unknown.
    TimedOut,
    /// The outcome is unknown, and the definition requires an operator decision.
    InDoubt,
    /// An operator decided that the effect was not executed.
    NotExecuted,
    /// The compensation succeeded.
    Compensated,
    /// The compensation failed or timed out.
    NotCompensated,
}

/// Update of a step after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepUpdate {
    /// The step completes; the saga advances.
    Complete,
    /// The step fails. It is retried while attempts are left; afterwards it gets this state.
    Fail(StepState),
    /// The step succeeded after it was abandoned; compensate it.
    CompleteLate,
    /// The step was abandoned and may have been executed; compensate it.
    CompensateUnknown,
    /// The compensation succeeded; continue with the next one.
    ConfirmCompensation,
    /// The compensation failed. It is retried while attempts are left; afterwards the instance is stuck.
    MarkStuck,
    /// Open the in-doubt task for an operator; the step gets this state meanwhile.
    OpenInDoubtTask(StepState),
    /// The effect was not executed; request it again.
    RequestAgain,
    /// The effect was not executed and is no longer needed.
    Discard,
    /// No change.
    Ignore(&'static str),
}

/// | step | ok | failed | timed out | in doubt | not executed | compensated | not compensated |
/// |---|---|---|---|---|---|---|---|
/// | pending, skipped, bypassed | – | – | – | – | – | – | – |
/// | running | complete | fail | fail, abandoned | open task, in doubt | – | – | – |
/// | retrying, blocked | complete | – | – | – | – | – | – |
/// | in doubt | complete | fail | – | – | request again | – | – |
/// | completed, compensation pending | – | – | – | – | – | – | – |
/// | failed | complete late | – | – | – | – | – | – |
/// | abandoned | complete late | – | compensate unknown | open task, in doubt abandoned | – | – | – |
/// | child awaited | complete late | discard | compensate unknown | – | – | – | – |
/// | in doubt abandoned | complete late | discard | – | – | discard | – | – |
/// | compensating | – | – | – | – | – | confirm | mark stuck |
/// | compensation retrying, compensation failed | – | – | – | – | – | confirm | – |
/// | compensated | – | – | – | – | – | – | – |
pub(super) fn update_for(step_state: StepState, outcome: StepOutcome) -> StepUpdate {
    use StepOutcome::{Compensated, Failed, InDoubt, NotCompensated, NotExecuted, Ok, TimedOut};
    match (step_state, outcome) {
        (StepState::Running | StepState::Retrying | StepState::Blocked | StepState::InDoubt, Ok) => {
            StepUpdate::Complete
        }
        (StepState::Running | StepState::InDoubt, Failed) => StepUpdate::Fail(StepState::Failed),
        (StepState::Running, TimedOut) => StepUpdate::Fail(StepState::Abandoned),
        (StepState::Running, InDoubt) => StepUpdate::OpenInDoubtTask(StepState::InDoubt),
        (StepState::Abandoned, InDoubt) => StepUpdate::OpenInDoubtTask(StepState::InDoubtAbandoned),
        (StepState::InDoubt, NotExecuted) => StepUpdate::RequestAgain,
        (StepState::InDoubtAbandoned, Failed | NotExecuted) | (StepState::ChildAwaited, Failed) => {
            StepUpdate::Discard
        }
        (
            StepState::Failed | StepState::Abandoned | StepState::InDoubtAbandoned | StepState::ChildAwaited,
            Ok,
        ) => StepUpdate::CompleteLate,
        (
            StepState::Compensating | StepState::CompensationRetrying | StepState::CompensationFailed,
            Compensated,
        ) => StepUpdate::ConfirmCompensation,
        (StepState::Compensating, NotCompensated) => StepUpdate::MarkStuck,
        (StepState::Pending, _) => StepUpdate::Ignore("the step has not started"),
        (StepState::Skipped, _) => StepUpdate::Ignore("the step was skipped"),
        (StepState::Bypassed, _) => StepUpdate::Ignore("the step is not on the selected branch"),
        (StepState::Completed | StepState::CompensationPending, _) => {
            StepUpdate::Ignore("the step is completed")
        }
        (StepState::Compensated, _) => StepUpdate::Ignore("the step is compensated"),
        (StepState::Failed | StepState::Blocked, Failed | TimedOut | InDoubt) => {
            StepUpdate::Ignore("the step has already failed")
        }
        (StepState::Retrying, Failed | TimedOut | InDoubt) => {
            StepUpdate::Ignore("the step is waiting for a retry")
        }
        (StepState::Abandoned | StepState::ChildAwaited, TimedOut) => StepUpdate::CompensateUnknown,
        (StepState::Abandoned, Failed) => StepUpdate::Ignore("the step was abandoned"),
        (StepState::ChildAwaited, InDoubt | NotExecuted) => {
            StepUpdate::Ignore("the end of the child saga is awaited")
        }
        (StepState::InDoubt | StepState::InDoubtAbandoned, TimedOut | InDoubt) => {
            StepUpdate::Ignore("an operator decision is already pending")
        }
        (
            StepState::Running
            | StepState::Retrying
            | StepState::Blocked
            | StepState::Failed
            | StepState::Abandoned,
            NotExecuted,
        ) => StepUpdate::Ignore("no operator decision is pending"),
        (StepState::Compensating, Ok | Failed | TimedOut | InDoubt | NotExecuted) => {
            StepUpdate::Ignore("the step is compensating")
        }
        (
            StepState::CompensationRetrying,
            Ok | Failed | TimedOut | InDoubt | NotExecuted | NotCompensated,
        ) => StepUpdate::Ignore("the compensation of the step is waiting for a retry"),
        (StepState::CompensationFailed, Ok | Failed | TimedOut | InDoubt | NotExecuted | NotCompensated) => {
            StepUpdate::Ignore("the compensation of the step has already failed")
        }
        (
            StepState::Running
            | StepState::Retrying
            | StepState::Blocked
            | StepState::Failed
            | StepState::Abandoned
            | StepState::InDoubt
            | StepState::InDoubtAbandoned
            | StepState::ChildAwaited,
            Compensated | NotCompensated,
        ) => StepUpdate::Ignore("no compensation is in progress"),
    }
}
