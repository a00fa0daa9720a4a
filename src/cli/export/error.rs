//! Why a copy does not go on.

use crate::cli::exit::Failure;

/// Why it does not go on.
pub(super) enum Stop {
    /// It may go on later.
    Passing(Failure),
    /// It will not.
    Final(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Final(failure)
    }
}
