//! Claims of jobs: their durations, the request of a worker, and the claimed job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{EffectName, TenantId, Timestamp, WorkItem};
use uuid::Uuid;

/// Durations of claims, the default batch, and the claims of jobs in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOptions {
    /// Duration of a claim, from the claim request and from each heartbeat.
    pub claim_ttl: Duration,
    /// Recommended interval of heartbeats; less than `claim_ttl`.
    pub heartbeat_interval: Duration,
    /// Maximum number of jobs per claim request if the worker specifies none.
    pub max_batch: usize,
    /// Whether workers determine the outcome of earlier attempts of a job in doubt.
    pub probes: bool,
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self::new(Duration::from_mins(5))
    }
}

impl ClaimOptions {
    /// Creates options with this duration of a claim. The heartbeat interval is two fifths of it:
    /// if one heartbeat is lost, the next one arrives in time.
    #[must_use]
    pub fn new(claim_ttl: Duration) -> Self {
        Self {
            claim_ttl,
            heartbeat_interval: claim_ttl * 2 / 5,
            max_batch: 1,
            probes: false,
        }
    }
}

/// Claim request of a worker.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Tenant of the worker.
    pub tenant: TenantId,
    /// Effects that it supports.
    pub effects: Vec<EffectName>,
    /// Worker name, for users, and for jobs that name a runner.
    pub worker: String,
    /// Whether it determines the outcome of earlier attempts before it executes a job in doubt.
    pub probes: bool,
    /// Labels of the worker, for jobs that require some.
    pub labels: BTreeMap<String, String>,
    /// Maximum number of jobs that the worker holds; `None`: unlimited.
    pub capacity: Option<usize>,
}

/// Claim request of a worker for one job.
#[derive(Clone, Debug)]
pub struct JobClaimRequest {
    /// Tenant of the worker.
    pub tenant: TenantId,
    /// Job to claim.
    pub job: Uuid,
    /// Worker name, for users, and for jobs that name a runner.
    pub worker: String,
    /// As [`ClaimRequest::probes`].
    pub probes: bool,
    /// As [`ClaimRequest::labels`].
    pub labels: BTreeMap<String, String>,
    /// As [`ClaimRequest::capacity`].
    pub capacity: Option<usize>,
}

/// Job that a worker can claim.
#[derive(Clone, Debug, PartialEq)]
pub struct AvailableJob {
    /// Work item; its id identifies the job.
    pub item: Arc<WorkItem>,
    /// Number of claims so far.
    pub claim_count: u32,
    /// Whether an earlier attempt or claim may have executed it.
    pub in_doubt: bool,
}

/// Job claimed by a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// Work item; its id identifies the job and is the idempotency key.
    pub item: Arc<WorkItem>,
    /// Id of this claim.
    pub claim: Uuid,
    /// Number of this claim of the job, from 1.
    pub claim_count: u32,
    /// Whether an earlier attempt or claim may have executed it.
    pub in_doubt: bool,
    /// Expiry of the claim.
    pub expires_at: Timestamp,
    /// Recommended interval of heartbeats.
    pub heartbeat_interval: Duration,
}

/// Error for a lost claim: the job is completed, abandoned, or claimed by another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim lost: the job is completed, abandoned or claimed by another worker")]
pub struct ClaimLost;

/// Reason why a worker cannot claim a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRejection {
    /// The job is not available.
    #[error(transparent)]
    Lost(#[from] ClaimLost),
    /// The worker holds as many jobs as its capacity allows.
    #[error("the worker holds {held} jobs, and its capacity is {capacity}")]
    AtCapacity {
        /// Number of jobs that it holds.
        held: usize,
        /// Maximum number of jobs that it holds.
        capacity: usize,
    },
}
