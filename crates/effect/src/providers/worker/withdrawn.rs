//! Withdrawn jobs that were not on the board yet: they end when they are posted.

use std::collections::VecDeque;

use uuid::Uuid;

use crate::provider::ProviderError;

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

/// Returns the result of a withdrawn job.
pub(super) fn withdrawn() -> ProviderError {
    ProviderError::permanent("withdrawn", "the flow was cancelled")
}
