//! `/v1/work`: job API for external workers. `docs/workers.md` describes the protocol.

mod claimed_job;
pub(crate) mod exchange;
pub(crate) mod list;
mod report;

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use orlog_effect::worker::{ReportAck, ResultAck};
use orlog_model::EffectName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::body::JsonBody;
use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::extract::{LastSegment, Tenant};
use crate::api::problem::Problem;
use claimed_job::{ClaimedJobView, MAX_CLAIM, MAX_WAIT_SECONDS, board_for, claim_request};
use report::{HeartbeatBody, JobLogBody, JobResultBody, ReportBody as _, apply_one, stored};

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
}

/// Jobs that the worker claimed; empty if there was no work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimResponse {
    jobs: Vec<ClaimedJobView>,
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
    let request = claim_request(&tenant, claim_body.worker, claim_body.effects)?;
    let (board, terms) = board_for(&api, &request)?;
    let max_jobs = claim_body.max.unwrap_or(terms.max_batch).clamp(1, MAX_CLAIM);
    let clock = api.app.clock.as_ref();
    let wait = Duration::from_secs(claim_body.wait_seconds.unwrap_or(MAX_WAIT_SECONDS).min(MAX_WAIT_SECONDS));
    let _long_poll =
        (!wait.is_zero()).then(|| api.quotas.begin_long_poll(api.scope.caller.as_ref())).transpose()?;
    let claimed = tokio::select! {
        biased;
        claimed = board.claim(clock, &request, max_jobs, terms, wait) => claimed,
        // The process is shutting down and would wait for this response.
        () = api.app.drained() => Vec::new(),
    };
    Ok(Json(ClaimResponse { jobs: claimed.into_iter().map(ClaimedJobView::from).collect() }))
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
    let ReportAck::Extended(until) = apply_one(&api, &tenant, report.about(id(&job)?)?)? else {
        unreachable!("a heartbeat extends its claim")
    };
    Ok(Json(HeartbeatResponse { expires_at: until.to_string() }))
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
    apply_one(&api, &tenant, report.about(id(&job)?)?)?;
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
    let ReportAck::Completed(ack, receipt) = apply_one(&api, &tenant, report.about(id(&job)?)?)? else {
        unreachable!("a result completes its job")
    };
    stored(&api, &[&receipt]).await.pop().unwrap_or(Ok(()))?;
    Ok(Json(JobResultResponse { duplicate: ack == ResultAck::Duplicate }))
}

fn id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| invalid_parameter("job", format!("{text:?} is not a job id")))
}
