//! Effects that external workers execute, in any language.
//!
//! An attempt is a job on a [`JobBoard`]. A worker claims it for a limited time, sends heartbeats and
//! completes it with a result. A claim that is not renewed expires, and another worker claims the job
//! under the same idempotency key. The job itself is not durable. After a crash of this process it is
//! posted again from the outbox, and the worker of an earlier claim may still complete it.

mod claim_options;
mod job_board;

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{Work, WorkItem};

pub use claim_options::ClaimOptions;
pub use job_board::{ClaimLost, ClaimRequest, ClaimedJob, JobBoard, JobResult, JobView, ResultAck};

pub use crate::job_logs::LogLine;
use crate::provider::{Attempt, Provider, ProviderError, Reply};

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
    async fn execute(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, ProviderError> {
        match &item.work {
            Work::Effect(_) => self.board.post(item).await,
            Work::Command(_)
            | Work::Fact(_)
            | Work::StartChild(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_) => Err(ProviderError::permanent(
                "not_an_effect",
                format!("{} is not an effect", item.work.label()),
            )),
        }
    }
}
