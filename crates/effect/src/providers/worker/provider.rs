//! Provider of the effects of a worker upstream: each attempt is a job on its board.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{EffectName, InDoubtPolicy, WorkItem};

use super::board_job::PostOptions;
use super::job_board::JobBoard;
use crate::attempt_start::AttemptStart;
use crate::provider::{
    Attempt, Probe, ProbeResult, Provider, ProviderError, RemoteProvider, RemoteResult, Reply,
    effect_of,
};

/// Provider of the effects of a worker upstream.
pub struct WorkerProvider {
    board: Arc<JobBoard>,
    probes: bool,
    in_doubt: InDoubtPolicy,
}

impl WorkerProvider {
    /// Creates a provider that posts its attempts on this board. `probes`: workers determine the
    /// outcome of earlier attempts of a job in doubt. `in_doubt`: policy for jobs whose effect has
    /// none.
    #[must_use]
    pub fn new(board: Arc<JobBoard>, probes: bool, in_doubt: InDoubtPolicy) -> Self {
        Self {
            board,
            probes,
            in_doubt,
        }
    }
}

#[async_trait]
impl Provider for WorkerProvider {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        self.execute_remotely(item, attempt, &AttemptStart::default())
            .await
            .result
    }

    fn remote(&self) -> Option<&dyn RemoteProvider> {
        Some(self)
    }

    fn can_probe(&self, _effect: &EffectName) -> bool {
        self.probes
    }

    /// Returns pending if workers probe: the worker that claims the next attempt does.
    async fn probe(&self, _item: &WorkItem, _probe: Probe) -> ProbeResult {
        if self.probes {
            ProbeResult::Pending
        } else {
            ProbeResult::Unknown
        }
    }
}

#[async_trait]
impl RemoteProvider for WorkerProvider {
    async fn execute_remotely(
        &self,
        item: &WorkItem,
        attempt: Attempt,
        start: &AttemptStart,
    ) -> RemoteResult {
        match effect_of(item) {
            // The board needs the policy now: a claim can expire while the attempt is in flight.
            Ok(effect) => {
                let forbids_retry =
                    effect.in_doubt.unwrap_or(self.in_doubt) != InDoubtPolicy::Retry;
                let options = PostOptions {
                    in_doubt: attempt.in_doubt,
                    probes: self.probes,
                    forbids_retry,
                };
                self.board.post(item, options, start).await
            }
            Err(error) => Err(error).into(),
        }
    }

    fn recall(&self, item: &WorkItem) {
        self.board.recall(item.id);
    }
}
