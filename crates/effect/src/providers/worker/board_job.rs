//! Job on a job board: its work item, its claim, and the task that waits for its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Clock, EffectName, JobClaim, JobClaimUpdate, SteadyTime, TenantId, WorkItem};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::job_queue::{QueueKey, QueuePlace};
use super::selector::RunnerSelector;
use super::withdrawn::withdrawn;
use crate::attempt_start::AttemptStart;
use crate::provider::{ProviderError, RemoteResult};

/// Code of an attempt whose board was closed.
pub(crate) const BOARD_CLOSED: &str = "board_closed";

pub(super) struct BoardJob {
    pub(super) position: u64,
    pub(super) item: Arc<WorkItem>,
    effect: EffectName,
    /// Runner that the job names.
    pub(super) selector: Option<RunnerSelector>,
    /// Last claim, also after its expiry.
    pub(super) claim: Option<Claim>,
    pub(super) claims: u32,
    /// The store contains a claim of the job.
    pub(super) is_claim_stored: bool,
    /// The saga no longer awaits the job; its worker may still report a result.
    pub(super) is_withdrawn: bool,
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
        let effect = posted.name.clone();
        let selector = RunnerSelector::of(posted);

        Self {
            position,
            item,
            effect,
            selector,
            claim: None,
            claims: 0,
            is_claim_stored: false,
            is_withdrawn: false,
            options,
            start,
            reply,
        }
    }

    /// Returns the change that stores its claim.
    pub(super) fn claim_update(&self, clock: &dyn Clock) -> Option<JobClaimUpdate> {
        let claim = self.claim.as_ref()?;
        Some(JobClaimUpdate {
            instance: self.item.instance.clone(),
            job: self.item.id,
            claim: Some(JobClaim {
                id: claim.id,
                worker: claim.worker.clone(),
                number: self.claims,
                until: clock.wall_at(claim.until),
            }),
        })
    }

    pub(super) fn queue(&self) -> QueueKey {
        (
            self.item.instance.tenant.clone(),
            self.effect.clone(),
            self.options.in_doubt && self.options.probes,
        )
    }

    /// Returns whether a worker with this name and these labels may claim it.
    pub(super) fn is_meant_for(&self, worker: &str, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .as_ref()
            .is_none_or(|selector| selector.admits(worker, labels))
    }

    /// Returns its place in its queue.
    pub(super) fn place(&self) -> QueuePlace {
        QueuePlace {
            priority: self.item.priority,
            position: self.position,
        }
    }

    /// Ends the attempt without a result. It is in doubt if a worker may have executed the job, or
    /// still does.
    pub(super) fn end(self) {
        // An expired claim counts too: its worker may still execute the job.
        let in_doubt = self.options.in_doubt || self.claim.is_some();
        let error = ProviderError::unavailable(
            BOARD_CLOSED,
            "its upstream was removed, or its shard has moved",
        );

        // An error means that the posting task was cancelled.
        drop(self.reply.send(RemoteResult {
            in_doubt,
            ..Err(error).into()
        }));
    }

    /// Ends the attempt because the saga no longer awaits the job.
    pub(super) fn withdraw(self) {
        let in_doubt = self.options.in_doubt || self.claim.is_some();
        // An error means that the posting task was cancelled.
        drop(self.reply.send(withdrawn(in_doubt)));
    }

    /// Returns whether this is the last claim of the job, in this tenant.
    pub(super) fn is_claimed(&self, tenant: &TenantId, claim: Uuid) -> bool {
        self.item.instance.tenant == *tenant
            && self.claim.as_ref().is_some_and(|active| active.id == claim)
    }

    pub(super) fn may_be_repeated(&self) -> bool {
        self.options.probes || !self.options.forbids_retry
    }
}
