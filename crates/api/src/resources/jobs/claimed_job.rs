//! Claimed jobs: the request of a worker, its job board, and the view of a job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_effect::worker::{
    AvailableJob, ClaimOptions, ClaimRequest, ClaimedJob, JobBoard, JobClaimRequest,
};
use orlog_effect::{Upstream, UpstreamScope};
use orlog_model::{EffectName, TenantId, WorkItem};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::server::errors::invalid_parameter;
use crate::server::parts::jobs::Jobs;
use crate::server::problem::{Code, Problem};
use orlog_node::jobs::runners::RunnerError;

/// Maximum number of jobs of one response.
pub(super) const MAX_CLAIM: usize = 100;

/// Maximum wait time of a request in seconds; less than common proxy timeouts.
pub(super) const MAX_WAIT_SECONDS: u64 = 25;

/// Returns the time for which a request waits for jobs: shorter than the time within which it is
/// handled, so that a worker without a job has an empty response instead of an error.
pub(super) fn job_wait(jobs: &Jobs, seconds: u64) -> Duration {
    let wait = Duration::from_secs(seconds.min(MAX_WAIT_SECONDS));
    wait.min(jobs.request.http().request_timeout)
}

/// Maximum number of effects of a request: the job board takes time for each of them.
const MAX_EFFECTS: usize = 1000;

/// Maximum length of the name of a worker, in characters.
const MAX_WORKER_NAME_CHARS: usize = 200;

/// Claimed job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedJobView {
    /// Job id, and idempotency key of the effect.
    #[serde(rename = "job")]
    #[schema(value_type = String, format = "uuid")]
    id: Uuid,
    /// Claim id; required in all requests about the job.
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
    /// Number of this claim of the job, from 1.
    claim_count: u32,
    /// An earlier attempt may have executed the job. Check this before the execution, by the
    /// idempotency key.
    in_doubt: bool,
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
    /// Schema version of the payload.
    version: u32,
    saga: String,
    correlation: String,
    traceparent: Option<String>,
}

/// Job that a worker can claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AvailableJobView {
    /// Job id, and idempotency key of the effect.
    #[serde(rename = "job")]
    #[schema(value_type = String)]
    id: Uuid,
    /// Number of claims so far.
    claim_count: u32,
    /// An earlier attempt may have executed the job.
    in_doubt: bool,
    /// `high`, `normal` or `low`.
    priority: &'static str,
    /// Deadline of the whole effect.
    deadline: Option<String>,
    effect: String,
    #[schema(value_type = Value)]
    payload: SharedPayload,
    saga: String,
    correlation: String,
}

/// Payload of a job, in the work item of the job board.
#[derive(Debug)]
struct SharedPayload(Arc<WorkItem>);

impl Serialize for SharedPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0
            .work
            .effect()
            .map(|effect| &effect.payload)
            .serialize(serializer)
    }
}

impl From<ClaimedJob> for ClaimedJobView {
    fn from(claimed: ClaimedJob) -> Self {
        let ClaimedJob {
            item,
            claim,
            claim_count,
            in_doubt,
            expires_at,
            heartbeat_interval,
        } = claimed;
        Self {
            id: item.id,
            claim,
            claim_count,
            in_doubt,
            expires_at: expires_at.to_string(),
            heartbeat_interval_seconds: heartbeat_interval.as_secs_f64(),
            deadline: item.deadline.map(|deadline| deadline.to_string()),
            effect: item.work.label().into(),
            saga: item.instance.saga.to_string(),
            correlation: item.instance.correlation.to_string(),
            traceparent: item.trace.as_ref().map(|trace| trace.as_str().to_owned()),
            version: item.work.effect().map_or(1, |effect| effect.schema_version),
            payload: SharedPayload(item),
        }
    }
}

impl From<AvailableJob> for AvailableJobView {
    fn from(available: AvailableJob) -> Self {
        let AvailableJob {
            item,
            claim_count,
            in_doubt,
        } = available;
        Self {
            id: item.id,
            claim_count,
            in_doubt,
            priority: item.priority.as_str(),
            deadline: item.deadline.map(|deadline| deadline.to_string()),
            effect: item.work.label().into(),
            saga: item.instance.saga.to_string(),
            correlation: item.instance.correlation.to_string(),
            payload: SharedPayload(item),
        }
    }
}

/// Creates the claim request of a worker for one job.
///
/// # Errors
/// If the name of the worker is invalid, or another caller has registered it.
pub(super) fn job_claim_request(
    jobs: &Jobs,
    tenant: &TenantId,
    job: Uuid,
    worker: String,
    probes: bool,
) -> Result<JobClaimRequest, Problem> {
    check_worker(&worker)?;
    let (labels, capacity) = registration(jobs, tenant, &worker)?;
    Ok(JobClaimRequest {
        tenant: tenant.clone(),
        job,
        worker,
        probes,
        labels,
        capacity,
    })
}

/// Creates the claim request of a worker.
///
/// # Errors
/// If the name of the worker is invalid or another caller has registered it, or if there are too
/// many effects.
pub(super) fn claim_request(
    jobs: &Jobs,
    tenant: &TenantId,
    worker: String,
    effects: Vec<EffectName>,
    probes: bool,
) -> Result<ClaimRequest, Problem> {
    check_worker(&worker)?;
    if effects.len() > MAX_EFFECTS {
        let detail = format!(
            "at most {MAX_EFFECTS} effects per request; it has {}",
            effects.len()
        );
        return Err(invalid_parameter("effects", detail));
    }

    let (labels, capacity) = registration(jobs, tenant, &worker)?;
    Ok(ClaimRequest {
        tenant: tenant.clone(),
        effects,
        worker,
        probes,
        labels,
        capacity,
    })
}

/// Returns the request with the present registration of its runner.
///
/// # Errors
/// If another caller has registered the name of the worker.
pub(super) fn with_registration(
    jobs: &Jobs,
    request: &ClaimRequest,
) -> Result<ClaimRequest, Problem> {
    let (labels, capacity) = registration(jobs, &request.tenant, &request.worker)?;
    Ok(ClaimRequest {
        labels,
        capacity,
        ..request.clone()
    })
}

/// Returns the labels and the capacity of a runner; a worker that is not registered has none, and
/// its capacity is unlimited.
fn registration(
    jobs: &Jobs,
    tenant: &TenantId,
    worker: &str,
) -> Result<(BTreeMap<String, String>, Option<usize>), Problem> {
    // The name of a registered runner belongs to its caller; another one must not claim jobs under
    // it.
    let caller = jobs.request.scope.user.as_deref();
    let now = jobs.request.steady();
    let found = jobs.runners().get(tenant, worker, caller, now);
    let Some(runner) = found.map_err(runner_problem)? else {
        return Ok((BTreeMap::new(), None));
    };

    let labels = runner
        .labels
        .into_iter()
        .map(|(name, value)| (name.to_string(), value));
    Ok((labels.collect(), usize::try_from(runner.capacity).ok()))
}

/// Creates the problem of a request about a runner that is rejected.
pub(super) fn runner_problem(error: RunnerError) -> Problem {
    let code = match error {
        RunnerError::TooMany => Code::QuotaExceeded,
        RunnerError::OfOtherCaller => Code::Forbidden,
    };
    Problem::new(code, error.to_string())
}

pub(super) fn check_worker(worker: &str) -> Result<(), Problem> {
    if worker.is_empty() || worker.chars().count() > MAX_WORKER_NAME_CHARS {
        let detail = format!("worker name must have 1 to {MAX_WORKER_NAME_CHARS} characters");
        return Err(invalid_parameter("worker", detail));
    }
    Ok(())
}

/// Returns the job board of the upstream that executes the effects of a request for its tenant, as
/// the catalog routes them. Before it is a board that still has jobs for the worker from a time at
/// which another upstream executed the effects.
///
/// # Errors
/// If there is none.
pub(super) fn board_for(
    jobs: &Jobs,
    request: &ClaimRequest,
) -> Result<(Arc<JobBoard>, ClaimOptions), Problem> {
    let boards = jobs.catalog().job_boards();
    // All effects of the request, because its jobs come from one board with one set of terms.
    let serves = |upstream: &Upstream| {
        let is_of_tenant = upstream
            .tenants
            .as_ref()
            .is_none_or(|tenants| tenants.contains(&request.tenant));
        is_of_tenant && upstream.serves_all(&request.effects)
    };

    // A configured upstream takes precedence over the runners, and one for the tenant over one for
    // all.
    let rank = |upstream: &Upstream| {
        (
            upstream.scope == UpstreamScope::Jobs,
            upstream.tenants.is_none(),
        )
    };
    let fitting = (0..boards.len()).filter(|index| serves(boards[*index].2.upstream()));
    let routed = fitting.min_by_key(|index| rank(boards[*index].2.upstream()));
    let now = jobs.request.steady();

    // Left-over jobs of a former route come first: no new job arrives on their board.
    let found = (0..boards.len())
        .find(|index: &usize| {
            Some(*index) != routed && boards[*index].0.has_available(now, request)
        })
        .or(routed)
        .map(|index| &boards[index]);

    found
        .map(|(board, terms, _)| (Arc::clone(board), *terms))
        .ok_or_else(|| {
            invalid_parameter(
                "effects",
                "no single upstream of kind worker executes these effects",
            )
        })
}
