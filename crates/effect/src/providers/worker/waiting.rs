//! Kinds of jobs that wait for a worker: what another process must know to decide whether a worker
//! can claim some.

use orlog_model::EffectName;
use serde::{Deserialize, Serialize};

use super::claim::ClaimRequest;
use super::selector::RunnerSelector;

/// Kind of jobs that wait: those of one effect, for the same runners.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaitingJobs {
    /// Effect.
    pub effect: EffectName,
    /// Whether they require a worker that determines the outcome of earlier attempts.
    pub requires_probe: bool,
    /// Runners that may claim them; `None`: every worker.
    pub(super) runner: Option<RunnerSelector>,
}

impl WaitingJobs {
    /// Returns whether the worker of a request may claim the jobs.
    #[must_use]
    pub fn is_for(&self, request: &ClaimRequest) -> bool {
        request.effects.contains(&self.effect)
            && (request.probes || !self.requires_probe)
            && self
                .runner
                .as_ref()
                .is_none_or(|runner| runner.admits(&request.worker, &request.labels))
    }
}
