//! Job on a job board: its work item, its claim, and the task that waits for its result.

use std::sync::Arc;

use orlog_model::{EffectName, Priority, SteadyTime, WorkItem};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::job_queue::QueueKey;
use super::selector::RunnerSelector;
use crate::provider::{AttemptStart, ProviderError, RemoteResult};

pub(super) struct BoardJob {
    pub(super) position: u64,
    pub(super) item: Arc<WorkItem>,
    effect: EffectName,
    /// Runner that the job names.
    pub(super) selector: Option<RunnerSelector>,
    /// Last claim, also after its expiry.
    pub(super) claim: Option<Claim>,
    pub(super) claims: u32,
    pub(super) options: PostOptions,
    pub(super) start: AttemptStart,
    pub(super) reply: oneshot::Sender<RemoteResult>,
}

/// Properties of an attempt that is posted as a job.
#[derive(Clone, Copy)]
pub(super) struct PostOptions {
    /// Whether an earlier attempt or claim may have executed it.
    pub(super) in_doubt: bool,
    /// Whether workers determine the outcome of earlier attempts.
    pub(super) probes: bool,
    /// Whether the policy forbids a retry of a job in doubt.
    pub(super) forbids_retry: bool,
}

pub(super) struct Claim {
    pub(super) id: Uuid,
    pub(super) worker: String,
    pub(super) until: SteadyTime,
}

impl BoardJob {
    /// Creates a job that waits.
    pub(super) fn new(
        position: u64,
        item: Arc<WorkItem>,
        options: PostOptions,
        start: AttemptStart,
        reply: oneshot::Sender<RemoteResult>,
    ) -> Self {
        let posted = item.work.effect().expect("only effects are posted");
        let (effect, selector) = (posted.name.clone(), RunnerSelector::of(posted));
        Self { position, item, effect, selector, claim: None, claims: 0, options, start, reply }
    }

    pub(super) fn queue(&self) -> QueueKey {
        (self.item.instance.tenant.clone(), self.effect.clone(), self.options.in_doubt && self.options.probes)
    }

    /// Returns its place in its queue.
    pub(super) fn place(&self) -> (Priority, u64) {
        (self.item.priority, self.position)
    }

    /// Ends the attempt without a result. It is in doubt if a worker may have executed the job, or still does.
    pub(super) fn end(self) {
        let in_doubt = self.options.in_doubt || self.claim.is_some();
        let error = ProviderError::unavailable("board_closed", "its upstream was removed");
        // An error means that the posting task was cancelled.
        drop(self.reply.send(RemoteResult { in_doubt, ..Err(error).into() }));
    }

    pub(super) fn may_be_repeated(&self) -> bool {
        self.options.probes || !self.options.forbids_retry
    }
}
