//! `/v1/work`: job API for external workers. `docs/workers.md` describes the protocol.

mod claimed_job;
pub(crate) mod exchange;
pub(crate) mod list;
mod report;
pub(crate) mod runners;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use orlog_effect::worker::{
    ClaimLost, ClaimOptions, ClaimRejection, ClaimRequest, JobBoard, ReportAck, ResultAck,
};
use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::body::JsonBody;
use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::extract::{LastSegment, Tenant};
use crate::api::problem::{Code, Problem};
use crate::api::quotas::LongPollPermit;
use claimed_job::{
    AvailableJobView, ClaimedJobView, MAX_CLAIM, MAX_WAIT_SECONDS, board_for, claim_request,
    job_claim_request,
};
use report::{
    HeartbeatBody, JobLogBody, JobResultBody, ReportBody as _, apply_one, claim_lost, stored,
};

/// Claim request of a worker.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    /// Effects that the worker executes; all of one upstream.
    #[schema(value_type = Vec<String>)]
    effects: Vec<EffectName>,
    /// Display name of the worker.
    worker: String,
    /// Maximum number of jobs. Default: the setting of the upstream.
    max: Option<usize>,
    /// Maximum wait for work in seconds. Maximum and default: 25.
    wait_seconds: Option<u64>,
    /// The worker determines the outcome of earlier attempts before it executes a job with `in_doubt`.
    #[serde(default)]
    probes: bool,
}

/// Jobs that the worker claimed; empty if there was no work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimResponse {
    jobs: Vec<ClaimedJobView>,
}

/// Jobs that the worker can claim; empty if there was no work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FetchResponse {
    jobs: Vec<AvailableJobView>,
}

/// Claim request of a worker for one job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobClaimBody {
    /// Display name of the worker.
    worker: String,
    /// The worker determines the outcome of earlier attempts before it executes a job with `in_doubt`.
    #[serde(default)]
    probes: bool,
}

/// New expiry of the claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeartbeatResponse {
    #[schema(format = "date-time")]
    expires_at: String,
}

/// Whether the result was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobResultResponse {
    /// The claim already has a result, and that result applies.
    duplicate: bool,
}

/// Claim jobs
///
/// Waits until a job is available, or the wait time expires.
#[utoipa::path(
    post,
    path = "/v1/work/claim",
    tag = "work",
    request_body = ClaimBody,
    responses((status = 200, description = "The claimed jobs", body = ClaimResponse))
)]
pub(crate) async fn claim(
    api: ApiState,
    Tenant(tenant): Tenant,
    JsonBody(claim_body): JsonBody<ClaimBody>,
) -> Result<Json<ClaimResponse>, Problem> {
    let JobRequest {
        request,
        board,
        terms,
        max_jobs,
        wait,
    } = claim_body.resolve(&api, &tenant)?;
    let _long_poll = begin_wait(&api, wait)?;
    let claimed = tokio::select! {
        biased;
        claimed = board.claim(api.app.clock.as_ref(), &request, max_jobs, terms, wait) => claimed,
        // The process is shutting down and would wait for this response.
        () = api.app.drained() => Vec::new(),
    };
    Ok(Json(ClaimResponse {
        jobs: claimed.into_iter().map(ClaimedJobView::from).collect(),
    }))
}

/// Fetch jobs without claiming them
///
/// Returns jobs that the worker can claim. Waits until one is available, or the wait time expires.
#[utoipa::path(
    post,
    path = "/v1/work/fetch",
    tag = "work",
    request_body = ClaimBody,
    responses((status = 200, description = "Available jobs: by priority, then oldest first", body = FetchResponse))
)]
pub(crate) async fn fetch(
    api: ApiState,
    Tenant(tenant): Tenant,
    JsonBody(body): JsonBody<ClaimBody>,
) -> Result<Json<FetchResponse>, Problem> {
    let JobRequest {
        request,
        board,
        max_jobs,
        wait,
        ..
    } = body.resolve(&api, &tenant)?;
    let _long_poll = begin_wait(&api, wait)?;
    let available = tokio::select! {
        biased;
        available = board.fetch(api.app.clock.as_ref(), &request, max_jobs, wait) => available,
        // The process is shutting down and would wait for this response.
        () = api.app.drained() => Vec::new(),
    };
    Ok(Json(FetchResponse {
        jobs: available.into_iter().map(AvailableJobView::from).collect(),
    }))
}

/// Claim one job
///
/// Claims a job that the worker has fetched. Rejected with OR0030 if it is not available any more, and with OR0031 if the worker is a
/// runner that holds as many jobs as its capacity allows.
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/claim",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = JobClaimBody,
    responses((status = 200, description = "The claimed job", body = ClaimedJobView))
)]
pub(crate) async fn claim_job(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(body): JsonBody<JobClaimBody>,
) -> Result<Json<ClaimedJobView>, Problem> {
    let request = job_claim_request(&api, &tenant, id(&job)?, body.worker, body.probes)?;
    for (board, terms, _) in api.app.catalog.job_boards() {
        match board.claim_job(api.app.clock.as_ref(), &request, terms) {
            Ok(claimed) => return Ok(Json(claimed.into())),
            Err(ClaimRejection::Lost(_)) => {}
            Err(full @ ClaimRejection::AtCapacity { .. }) => {
                let detail =
                    format!("{full}; report a result first, or register a higher capacity");
                return Err(Problem::new(Code::QuotaExceeded, detail));
            }
        }
    }
    Err(claim_lost(ClaimLost))
}

/// Request for jobs, with its board.
struct JobRequest {
    request: ClaimRequest,
    board: Arc<JobBoard>,
    terms: ClaimOptions,
    max_jobs: usize,
    wait: Duration,
}

impl ClaimBody {
    fn resolve(self, api: &ApiState, tenant: &TenantId) -> Result<JobRequest, Problem> {
        let request = claim_request(api, tenant, self.worker, self.effects, self.probes)?;
        let (board, terms) = board_for(api, &request)?;
        let max_jobs = self.max.unwrap_or(terms.max_batch).clamp(1, MAX_CLAIM);
        let wait = Duration::from_secs(
            self.wait_seconds
                .unwrap_or(MAX_WAIT_SECONDS)
                .min(MAX_WAIT_SECONDS),
        );
        Ok(JobRequest {
            request,
            board,
            terms,
            max_jobs,
            wait,
        })
    }
}

/// Counts a request that waits against the quota of its caller.
fn begin_wait(api: &ApiState, wait: Duration) -> Result<Option<LongPollPermit>, Problem> {
    (!wait.is_zero())
        .then(|| api.quotas.begin_long_poll(api.scope.caller.as_ref()))
        .transpose()
}

/// Extend a claim
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/heartbeat",
    tag = "work",
    params(("job" = Uuid, Path, description = "The job")),
    request_body = HeartbeatBody,
    responses((status = 200, description = "The claim is extended", body = HeartbeatResponse))
)]
pub(crate) async fn heartbeat(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(report): JsonBody<HeartbeatBody>,
) -> Result<Json<HeartbeatResponse>, Problem> {
    let ReportAck::Extended(until) = apply_one(&api, &tenant, report.about(id(&job)?)?).await? else {
        unreachable!("a heartbeat extends its claim")
    };
    Ok(Json(HeartbeatResponse {
        expires_at: until.to_string(),
    }))
}

/// Append log lines of a job
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/logs",
    tag = "work",
    params(("job" = Uuid, Path, description = "The job")),
    request_body = JobLogBody,
    responses((status = 204, description = "The lines are kept in memory for some time after the job ends"))
)]
pub(crate) async fn append_log(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(report): JsonBody<JobLogBody>,
) -> Result<StatusCode, Problem> {
    apply_one(&api, &tenant, report.about(id(&job)?)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Complete a job with its result
///
/// Responds when the result is stored.
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/result",
    tag = "work",
    params(("job" = Uuid, Path, description = "The job")),
    request_body = JobResultBody,
    responses((status = 200, description = "The job is completed", body = JobResultResponse))
)]
pub(crate) async fn complete(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(report): JsonBody<JobResultBody>,
) -> Result<Json<JobResultResponse>, Problem> {
    let ack = apply_one(&api, &tenant, report.about(id(&job)?)?).await?;
    let ReportAck::Completed(ack, receipt) = ack else {
        unreachable!("a result completes its job")
    };
    stored(&api, &[&receipt]).await.pop().unwrap_or(Ok(()))?;
    Ok(Json(JobResultResponse {
        duplicate: ack == ResultAck::Duplicate,
    }))
}

fn id(text: &str) -> Result<Uuid, Problem> {
    text.parse()
        .map_err(|_| invalid_parameter("job", format!("{text:?} is not a job id")))
}
