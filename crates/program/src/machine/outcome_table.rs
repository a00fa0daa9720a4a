//! Pure table: update of a step by its state and its result.

use super::step_state::StepState;

/// Result of a step's action or of its compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// The action succeeded.
    Ok,
    /// The action was rejected, failed, or returned an invalid result.
    Failed,
    /// The action may have been executed: it timed out, or its success is not an expected result.
    Unknown,
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
    /// The compensation waits for a value that the result has; request it.
    SupplyValues,
    /// The compensation waits for a value, and an operator allows null.
    RequestWithNull,
    /// The compensation succeeded; continue with the next one.
    ConfirmCompensation,
    /// The compensation failed. It is retried while attempts are left; afterwards the instance is
    /// stuck.
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

/// A compensation that lacks a value also takes a late success, and a discarded result with the
/// permission of an operator (`update_of` in `apply_outcome.rs`).
///
/// | step | ok | failed | unknown | in doubt | not executed | compensated | not compensated |
/// |---|---|---|---|---|---|---|---|
/// | pending, skipped, bypassed | – | – | – | – | – | – | – |
/// | running | complete | fail | fail, abandoned | task, in doubt | – | – | – |
/// | retrying, blocked | complete | – | – | – | – | – | – |
/// | in doubt | complete | fail | – | – | request again | – | – |
/// | completed, compensation pending | – | – | – | – | – | – | – |
/// | failed | complete late | – | – | – | – | – | – |
/// | abandoned | complete late | – | compensate unknown | task, in doubt abandoned | – | – | – |
/// | child awaited | complete late | discard | compensate unknown | – | – | – | – |
/// | in doubt abandoned | complete late | discard | – | – | discard | – | – |
/// | compensating | – | – | – | – | – | confirm | mark stuck |
/// | compensation retrying, compensation failed | – | – | – | – | – | confirm | – |
/// | compensated | – | – | – | – | – | – | – |
pub(super) fn update_for(step_state: StepState, outcome: StepOutcome) -> StepUpdate {
    use StepOutcome::{Compensated, Failed, InDoubt, NotCompensated, NotExecuted, Ok, Unknown};
    use StepState as S;

    match (step_state, outcome) {
        // A success of any attempt completes the step, also during the delay of a retry or while it
        // is blocked.
        (S::Running | S::Retrying | S::Blocked | S::InDoubt, Ok) => StepUpdate::Complete,
        (S::Running | S::InDoubt, Failed) => StepUpdate::Fail(S::Failed),
        (S::Running, Unknown) => StepUpdate::Fail(S::Abandoned),
        (S::Running, InDoubt) => StepUpdate::OpenInDoubtTask(S::InDoubt),
        (S::Abandoned, InDoubt) => StepUpdate::OpenInDoubtTask(S::InDoubtAbandoned),
        (S::InDoubt, NotExecuted) => StepUpdate::RequestAgain,
        // Nothing was executed, so the saga need not wait or compensate any longer.
        (S::InDoubtAbandoned, Failed | NotExecuted) | (S::ChildAwaited, Failed) => {
            StepUpdate::Discard
        }
        // The saga continued without the step, so its success must be reversed.
        (S::Failed | S::Abandoned | S::InDoubtAbandoned | S::ChildAwaited, Ok) => {
            StepUpdate::CompleteLate
        }
        // An event can confirm an earlier attempt, because all attempts share one tag.
        (S::Compensating | S::CompensationRetrying | S::CompensationFailed, Compensated) => {
            StepUpdate::ConfirmCompensation
        }
        (S::Compensating, NotCompensated) => StepUpdate::MarkStuck,
        (S::Pending, _) => StepUpdate::Ignore("the step has not started"),
        (S::Skipped, _) => StepUpdate::Ignore("the step was skipped"),
        (S::Bypassed, _) => StepUpdate::Ignore("the step is not on the selected branch"),
        (S::Completed | S::CompensationPending, _) => StepUpdate::Ignore("the step is completed"),
        (S::Compensated, _) => StepUpdate::Ignore("the step is compensated"),
        (S::Failed | S::Blocked, Failed | Unknown | InDoubt) => {
            StepUpdate::Ignore("the step has already failed")
        }
        (S::Retrying, Failed | Unknown | InDoubt) => {
            StepUpdate::Ignore("the step is waiting for a retry")
        }
        (S::Abandoned | S::ChildAwaited, Unknown) => StepUpdate::CompensateUnknown,
        (S::Abandoned, Failed) => StepUpdate::Ignore("the step was abandoned"),
        (S::ChildAwaited, InDoubt | NotExecuted) => {
            StepUpdate::Ignore("the end of the child saga is awaited")
        }
        (S::InDoubt | S::InDoubtAbandoned, Unknown | InDoubt) => {
            StepUpdate::Ignore("an operator decision is already pending")
        }
        (S::Running | S::Retrying | S::Blocked | S::Failed | S::Abandoned, NotExecuted) => {
            StepUpdate::Ignore("no operator decision is pending")
        }
        (S::Compensating, Ok | Failed | Unknown | InDoubt | NotExecuted) => {
            StepUpdate::Ignore("the step is compensating")
        }
        (
            S::CompensationRetrying,
            Ok | Failed | Unknown | InDoubt | NotExecuted | NotCompensated,
        ) => StepUpdate::Ignore("the compensation of the step is waiting for a retry"),
        (S::CompensationFailed, Ok | Failed | Unknown | InDoubt | NotExecuted | NotCompensated) => {
            StepUpdate::Ignore("the compensation of the step has already failed")
        }
        (
            S::Running
            | S::Retrying
            | S::Blocked
            | S::Failed
            | S::Abandoned
            | S::InDoubt
            | S::InDoubtAbandoned
            | S::ChildAwaited,
            Compensated | NotCompensated,
        ) => StepUpdate::Ignore("no compensation is in progress"),
    }
}
