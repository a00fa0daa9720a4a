//! Withdrawn jobs that were not on the board yet: they end when they are posted.

use std::collections::VecDeque;

use orlog_model::Failure;
use uuid::Uuid;

use crate::provider::{ProviderError, RemoteResult};

/// Maximum number of withdrawn jobs that were not on the board yet; the oldest are dropped.
const MAX_WITHDRAWN: usize = 1024;

/// Withdrawn jobs, oldest first.
#[derive(Default)]
pub(super) struct WithdrawnJobs(VecDeque<Uuid>);

impl WithdrawnJobs {
    pub(super) fn add(&mut self, job: Uuid) {
        self.0.push_back(job);
        if self.0.len() > MAX_WITHDRAWN {
            self.0.pop_front();
        }
    }

    /// Removes a job. Returns whether it was withdrawn.
    pub(super) fn take(&mut self, job: Uuid) -> bool {
        let found = self.0.iter().position(|withdrawn| *withdrawn == job);
        found.is_some_and(|index| self.0.remove(index).is_some())
    }
}

/// Returns the failure of a job that was not executed because its saga no longer awaits it.
pub(crate) fn withdrawn_failure() -> Failure {
    let message = "the saga no longer awaits the job".to_owned();
    Failure {
        code: "withdrawn".to_owned(),
        message,
    }
}

/// Returns the result of the attempt of a withdrawn job. It is in doubt if a worker may have
/// executed the job.
pub(super) fn withdrawn(in_doubt: bool) -> RemoteResult {
    let Failure { code, message } = withdrawn_failure();
    RemoteResult {
        in_doubt,
        ..Err(ProviderError::unavailable(code, message)).into()
    }
}
