//! Provider of the effects of a worker upstream: each attempt is a job on its board.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{EffectName, WorkItem};

use super::job_board::JobBoard;
use crate::operations::effect_of;
use crate::provider::{
    Attempt, AttemptStart, Probe, ProbeResult, Provider, ProviderError, RemoteProvider, RemoteResult, Reply,
};

/// Provider of the effects of a worker upstream.
pub struct WorkerProvider {
    board: Arc<JobBoard>,
}

impl WorkerProvider {
    /// Creates a provider that posts its attempts on this board.
    #[must_use]
    pub fn new(board: Arc<JobBoard>) -> Self {
        Self { board }
    }
}

#[async_trait]
impl Provider for WorkerProvider {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        self.execute_remotely(item, attempt, &AttemptStart::default()).await.result
    }

    fn remote(&self) -> Option<&dyn RemoteProvider> {
        Some(self)
    }

    fn can_probe(&self, _effect: &EffectName) -> bool {
        self.board.is_probed()
    }

    /// Returns pending if workers probe: the worker that claims the next attempt does.
    async fn probe(&self, _item: &WorkItem, _probe: Probe) -> ProbeResult {
        if self.board.is_probed() { ProbeResult::Pending } else { ProbeResult::Unknown }
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
            Ok(_) => self.board.post(item, attempt.in_doubt, start).await,
            Err(error) => Err(error).into(),
        }
    }
}
