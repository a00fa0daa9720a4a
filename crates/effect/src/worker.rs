//! Effects that are performed by workers outside this process, in any language.
//!
//! An attempt is a job on a [`Board`]. A worker claims it for a time, says now and then that it is alive, and brings the
//! result. A claim that is not renewed expires, and another worker takes the job, under the same idempotency key. The job
//! itself is not durable: it is posted again from the outbox after a crash of this process, and a worker that was at it
//! meanwhile may still bring its result.

mod job_board;

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{Work, WorkItem};

pub use job_board::{Answer, Ask, Board, Brought, Claimed, Lost, Seen, Terms};

pub use crate::job_logs::Line;
use crate::provider::{Attempt, Provider, Refusal, Reply};

/// The effects of an upstream whose work is done by workers.
pub struct Worker {
    board: Arc<Board>,
}

impl Worker {
    /// Posts its attempts on this board.
    #[must_use]
    pub fn new(board: Arc<Board>) -> Self {
        Self { board }
    }
}

#[async_trait]
impl Provider for Worker {
    async fn perform(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, Refusal> {
        match &item.work {
            Work::Effect(_) => self.board.post(item).await,
            Work::Command(_) | Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => {
                Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())))
            }
        }
    }
}
