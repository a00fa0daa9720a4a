//! Step states and saga phases: small codes that are stored.

use orlog_model::Status;
use serde::{Deserialize, Serialize};

macro_rules! coded {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $code:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(into = "u8", try_from = "u8")]
        pub(super) enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl From<$name> for u8 {
            fn from(value: $name) -> u8 {
                match value {
                    $($name::$variant => $code),+
                }
            }
        }

        impl TryFrom<u8> for $name {
            type Error = String;

            fn try_from(code: u8) -> Result<Self, String> {
                match code {
                    $($code => Ok($name::$variant),)+
                    other => Err(format!(concat!(stringify!($name), " {} is unknown"), other)),
                }
            }
        }
    };
}

coded!(
    /// State of a step, or of an element of a step. The codes are stored.
    StepState {
        /// Its predecessors are not finished.
        Pending = 0,
        /// Requested, no result yet. For a `foreach` step: some elements are not finished.
        Running = 1,
        /// Its condition was false, or an operator skipped it.
        Skipped = 2,
        /// Completed.
        Completed = 3,
        /// Rejected or failed, permanently.
        Failed = 4,
        /// No longer awaited: it timed out, the saga started compensation, or its branch was
        /// discarded.
        Abandoned = 5,
        /// Its compensation is requested.
        Compensating = 6,
        /// Its compensation failed; requires an operator decision.
        CompensationFailed = 7,
        /// Its compensation is confirmed, or it needs none.
        Compensated = 8,
        /// It failed and is retried after a delay.
        Retrying = 9,
        /// It is not on the selected branch.
        Bypassed = 10,
        /// Completed; it is compensated in order while the saga continues.
        CompensationPending = 11,
        /// Its compensation failed and is retried after a delay.
        CompensationRetrying = 12,
        /// It failed after the pivot; requires an operator decision.
        Blocked = 13,
        /// Its execution is in doubt; an operator decision is pending.
        InDoubt = 14,
        /// It is abandoned and in doubt; an operator decision is pending, so that it can be
        /// compensated.
        InDoubtAbandoned = 15,
        /// It is abandoned; the end of its child saga is awaited, so that it can be compensated.
        ChildAwaited = 16,
    }
);

coded!(
    /// Phase of the saga. The codes are stored.
    Phase {
        /// Runs forward.
        Running = 0,
        /// Compensates.
        Compensating = 1,
        /// All steps are finished.
        Completed = 2,
        /// All completed steps are compensated after a failure.
        Failed = 3,
        /// All completed steps are compensated after a cancellation.
        Cancelled = 4,
        /// Requires an operator decision.
        Stuck = 5,
    }
);

impl StepState {
    /// Returns true if the step needs no further action while the saga runs forward.
    pub(super) fn is_finished(self) -> bool {
        match self {
            StepState::Pending
            | StepState::Running
            | StepState::Retrying
            | StepState::Blocked
            | StepState::Compensating
            | StepState::CompensationFailed
            | StepState::CompensationRetrying
            | StepState::CompensationPending
            | StepState::InDoubt
            | StepState::InDoubtAbandoned
            | StepState::ChildAwaited => false,
            // While the saga runs forward, a failed step remains only if a join tolerates it, or in
            // a flow.
            StepState::Completed
            | StepState::Skipped
            | StepState::Bypassed
            | StepState::Failed
            | StepState::Abandoned
            | StepState::Compensated => true,
        }
    }

    /// Returns true if the step ended without a result that counts.
    pub(super) fn has_failed(self) -> bool {
        matches!(
            self,
            StepState::Failed | StepState::Abandoned | StepState::Compensated
        )
    }

    /// Returns true if its compensation has started and is not finished.
    pub(super) fn is_compensation(self) -> bool {
        matches!(
            self,
            StepState::Compensating
                | StepState::CompensationRetrying
                | StepState::CompensationFailed
        )
    }

    /// Returns true if its compensation has not started, but may start.
    pub(super) fn may_be_compensated(self) -> bool {
        !self.is_compensation()
            && !matches!(
                self,
                StepState::Compensated | StepState::Skipped | StepState::Bypassed
            )
    }

    /// Returns true if the step is in progress.
    pub(super) fn is_in_progress(self) -> bool {
        matches!(
            self,
            StepState::Running | StepState::Retrying | StepState::InDoubt
        )
    }

    /// Returns true if the step is abandoned, and the saga does not end before its result.
    pub(super) fn is_awaited_late(self) -> bool {
        matches!(self, StepState::InDoubtAbandoned | StepState::ChildAwaited)
    }

    /// Returns true if an in-doubt decision is pending.
    pub(super) fn is_in_doubt(self) -> bool {
        matches!(self, StepState::InDoubt | StepState::InDoubtAbandoned)
    }
}

impl Phase {
    pub(super) fn status(self) -> Status {
        match self {
            Phase::Running => Status::Running,
            Phase::Compensating => Status::Compensating,
            Phase::Completed => Status::Completed,
            Phase::Failed => Status::Failed,
            Phase::Cancelled => Status::Cancelled,
            Phase::Stuck => Status::Stuck,
        }
    }
}
