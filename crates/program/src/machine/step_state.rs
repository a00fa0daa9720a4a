//! Where a step stands, and where the saga stands: small codes that are stored.

use orlog_model::Status;
use serde::{Deserialize, Serialize};

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
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
    /// Where a step, or an element of a step, stands. The codes are stored.
    Mark {
        /// Its predecessors are not over.
        Waiting = 0,
        /// Asked for, no answer yet. Of a step for each element: some are not over.
        Open = 1,
        /// Its condition was false, or a person skipped it.
        Skipped = 2,
        /// Done.
        Done = 3,
        /// Refused or failed, for good.
        Failed = 4,
        /// No longer waited for: its time ran out, the saga turned back, or others were quicker.
        GivenUp = 5,
        /// Its undo is asked for.
        Undoing = 6,
        /// Its undo failed; a person must decide.
        UndoFailed = 7,
        /// Its undo is confirmed, or it needs none.
        Undone = 8,
        /// It failed and will be asked for again.
        Pausing = 9,
        /// It is not on the way that was taken.
        Bypassed = 10,
        /// Done, and its undo comes in its turn though the saga goes on.
        Doomed = 11,
        /// Its undo failed and will be asked for again.
        UndoPausing = 12,
        /// It failed after the point of no return; a person must decide.
        Blocked = 13,
        /// Nobody knows whether it was done; a person is asked.
        Asking = 14,
        /// It is no longer waited for, and a person is asked whether it was done, so that it can be undone.
        AskingLate = 15,
    }
);

coded!(
    /// Where the saga stands. The codes are stored.
    Phase {
        /// Going forward.
        Running = 0,
        /// Undoing.
        Compensating = 1,
        /// Every step is over.
        Completed = 2,
        /// Everything undone after a failure.
        Failed = 3,
        /// Everything undone after a cancellation.
        Cancelled = 4,
        /// A person must decide.
        Stuck = 5,
    }
);

impl Mark {
    /// Nothing more is to be done for it as long as the saga goes forward.
    pub(super) fn is_over(self) -> bool {
        match self {
            Mark::Waiting
            | Mark::Open
            | Mark::Pausing
            | Mark::Blocked
            | Mark::Undoing
            | Mark::UndoFailed
            | Mark::UndoPausing
            | Mark::Doomed
            | Mark::Asking
            | Mark::AskingLate => false,
            Mark::Done | Mark::Skipped | Mark::Bypassed | Mark::Failed | Mark::GivenUp | Mark::Undone => true,
        }
    }

    /// Its undo has begun and is not over.
    pub(super) fn is_undo(self) -> bool {
        matches!(self, Mark::Undoing | Mark::UndoPausing | Mark::UndoFailed)
    }

    /// It is under way.
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Mark::Open | Mark::Pausing | Mark::Asking)
    }

    /// A person is asked whether it was done.
    pub(super) fn is_asking(self) -> bool {
        matches!(self, Mark::Asking | Mark::AskingLate)
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
