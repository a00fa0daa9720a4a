//! Claimed jobs: the request of a worker, its job board, and the view of a job.

use std::sync::Arc;

use orlog_effect::worker::{ClaimOptions, ClaimRequest, ClaimedJob, JobBoard};
use orlog_model::{EffectName, TenantId, WorkItem};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::problem::Problem;

/// Maximum number of jobs of one response.
pub(super) const MAX_CLAIM: usize = 100;

/// Maximum wait time of a request in seconds; less than common proxy timeouts.
pub(super) const MAX_WAIT_SECONDS: u64 = 25;

/// Maximum length of the name of a worker, in characters.
const MAX_WORKER_NAME_CHARS: usize = 200;

/// Claimed job.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClaimedJobView {
    /// Job id, and idempotency key of the effect.
    #[serde(rename = "job")]
    #[schema(value_type = String, format = "uuid")]
    id: Uuid,
    /// Claim id; required in all requests about the job.
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
    /// Number of this claim of the job, from 1.
    claim_count: u32,
    /// Expiry of the claim unless a heartbeat extends it.
    #[schema(format = "date-time")]
    expires_at: String,
    /// Recommended interval of heartbeats. Each heartbeat extends the claim by its full duration.
    heartbeat_interval_seconds: f64,
    /// Deadline of the whole effect.
    #[schema(format = "date-time")]
    deadline: Option<String>,
    effect: String,
    #[schema(value_type = Value)]
    payload: SharedPayload,
    saga: String,
    correlation: String,
    traceparent: Option<String>,
}

/// Payload of a job, in the work item of the job board.
#[derive(Debug)]
struct SharedPayload(Arc<WorkItem>);

impl Serialize for SharedPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.work.effect().map(|effect| &effect.payload).serialize(serializer)
    }
}

impl From<ClaimedJob> for ClaimedJobView {
    fn from(claimed: ClaimedJob) -> Self {
        let ClaimedJob { item, claim, claim_count, expires_at, heartbeat_interval } = claimed;
        Self {
            id: item.id,
            claim,
            claim_count,
            expires_at: expires_at.to_string(),
            heartbeat_interval_seconds: heartbeat_interval.as_secs_f64(),
            deadline: item.deadline.map(|deadline| deadline.to_string()),
            effect: item.work.label().into(),
            saga: item.instance.saga.to_string(),
            correlation: item.instance.correlation.to_string(),
            traceparent: item.trace.as_ref().map(|trace| trace.as_str().to_owned()),
            payload: SharedPayload(item),
        }
    }
}

/// Creates the claim request of a worker.
///
/// # Errors
/// If the name of the worker is invalid.
pub(super) fn claim_request(
    tenant: &TenantId,
    worker: String,
    effects: Vec<EffectName>,
) -> Result<ClaimRequest, Problem> {
    if worker.is_empty() || worker.chars().count() > MAX_WORKER_NAME_CHARS {
        let detail = format!("worker name must have 1 to {MAX_WORKER_NAME_CHARS} characters");
        return Err(invalid_parameter("worker", detail));
    }
    Ok(ClaimRequest { tenant: tenant.clone(), effects, worker })
}

/// Returns the job board of the upstream that executes the effects of a request for its tenant.
///
/// # Errors
/// If there is none.
pub(super) fn board_for(
    api: &ApiState,
    request: &ClaimRequest,
) -> Result<(Arc<JobBoard>, ClaimOptions), Problem> {
    let mut boards = api.app.catalog.job_boards().into_iter();
    let found = boards.find_map(|(board, terms, executor)| {
        let upstream = executor.upstream();
        let serves = upstream.tenants.as_ref().is_none_or(|tenants| tenants.contains(&request.tenant))
            && upstream.serves_all(&request.effects);
        serves.then_some((board, terms))
    });
    found.ok_or_else(|| {
        invalid_parameter("effects", "no single upstream of kind worker executes these effects")
    })
}
