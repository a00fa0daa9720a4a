//! `/v1/work`: job API for external workers. `docs/workers.md` describes the protocol.

mod claimed_job;
pub(crate) mod exchange;
pub(crate) mod list;
mod pods;
mod report;
pub(crate) mod runners;
pub(crate) mod waiting;

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use orlog_effect::worker::{ClaimLost, ClaimRejection, ReportAck, ResultAck};
use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::server::body::JsonBody;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, Tenant};
use crate::server::parts::jobs::Jobs;
use crate::server::problem::{Code, Problem};
use crate::server::quotas::LongPollPermit;
use claimed_job::{
    AvailableJobView, ClaimedJobView, MAX_CLAIM, MAX_WAIT_SECONDS, board_for, claim_request,
    job_claim_request, job_wait,
};
use orlog_node::url_path;
use pods::{JobOrder, OfferedJob, Take, credentials, other_pods, send_to, take_jobs};
use report::{
    HeartbeatBody, JobLogBody, JobResultBody, ReportBody as _, ReportSender, apply_one, claim_lost,
    send_to_owner, stored,
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
    /// The worker determines the outcome of earlier attempts before it executes a job with
    /// `in_doubt`.
    #[serde(default)]
    probes: bool,
}

/// Jobs that the worker claimed; empty if there was no work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimResponse {
    #[schema(value_type = Vec<ClaimedJobView>)]
    jobs: Vec<OfferedJob>,
}

/// Jobs that the worker can claim; empty if there was no work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FetchResponse {
    #[schema(value_type = Vec<AvailableJobView>)]
    jobs: Vec<OfferedJob>,
}

/// Claim request of a worker for one job.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobClaimBody {
    /// Display name of the worker.
    worker: String,
    /// The worker determines the outcome of earlier attempts before it executes a job with
    /// `in_doubt`.
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
    jobs: Jobs,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    JsonBody(body): JsonBody<ClaimBody>,
) -> Result<Json<ClaimResponse>, Problem> {
    let jobs = take(&jobs, &tenant, &headers, Take::Claim, body).await?;
    Ok(Json(ClaimResponse { jobs }))
}

/// Fetch jobs without claiming them
///
/// Returns jobs that the worker can claim. Waits until one is available, or the wait time expires.
#[utoipa::path(
    post,
    path = "/v1/work/fetch",
    tag = "work",
    request_body = ClaimBody,
    responses((
        status = 200,
        description = "Available jobs: by priority, then oldest first",
        body = FetchResponse
    ))
)]
pub(crate) async fn fetch(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    JsonBody(body): JsonBody<ClaimBody>,
) -> Result<Json<FetchResponse>, Problem> {
    let jobs = take(&jobs, &tenant, &headers, Take::Fetch, body).await?;
    Ok(Json(FetchResponse { jobs }))
}

/// Claim one job
///
/// Claims a job that the worker has fetched. Rejected with OR0030 if it is not available any more,
/// and with OR0031 if the worker is a runner that holds as many jobs as its capacity allows.
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/claim",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = JobClaimBody,
    responses((status = 200, description = "The claimed job", body = ClaimedJobView))
)]
pub(crate) async fn claim_job(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    headers: HeaderMap,
    JsonBody(body): JsonBody<JobClaimBody>,
) -> Result<Response, Problem> {
    // Encoded before the request is consumed: the job can be on the board of another pod.
    let repeated = serde_json::to_vec(&body).expect("a claim request serializes to JSON");
    let job = id(&job)?;
    let request = job_claim_request(&jobs, &tenant, job, body.worker, body.probes)?;
    // The request names no effect, so that the job can be on any board of this pod.
    for (board, terms, _) in jobs.catalog().job_boards() {
        match board.claim_job(jobs.request.clock(), &request, terms) {
            Ok(claimed) => return Ok(Json(ClaimedJobView::from(claimed)).into_response()),
            // Only this board does not have the job; a later one, or another pod, can.
            Err(ClaimRejection::Lost(_)) => {}
            Err(full @ ClaimRejection::AtCapacity { .. }) => {
                let detail =
                    format!("{full}; report a result first, or register a higher capacity");
                return Err(Problem::new(Code::QuotaExceeded, detail));
            }
        }
    }

    let repeated = Bytes::from(repeated);
    claim_elsewhere(&jobs, &tenant, &headers, job, repeated).await
}

/// Claims a job on the board of another pod: only the pod that has the job knows it.
async fn claim_elsewhere(
    jobs: &Jobs,
    tenant: &TenantId,
    headers: &HeaderMap,
    job: Uuid,
    body: Bytes,
) -> Result<Response, Problem> {
    let path = job_path(job, "claim");
    let pods = other_pods(jobs, tenant, headers);
    let headers = credentials(headers);
    let mut failure = None;

    for pod in pods {
        let sent = send_to(jobs, &pod, Method::POST, &path, &headers, body.clone()).await;
        match Claimed::of(sent) {
            Claimed::Final(response) => return Ok(response),
            Claimed::NotThere => {}
            // A later pod may have the job. If none has it, this one may, so that the worker must
            // not take the job for lost.
            Claimed::Unknown(response) => failure = Some(response),
        }
    }

    failure.unwrap_or_else(|| Err(claim_lost(ClaimLost)))
}

/// Response of another pod to the claim of a job.
enum Claimed {
    /// The pod has the job, or rejects the request for all pods.
    Final(Response),
    /// The pod does not have the job.
    NotThere,
    /// The pod may have the job.
    Unknown(Result<Response, Problem>),
}

impl Claimed {
    fn of(sent: Result<Response, Problem>) -> Self {
        match sent {
            Ok(response) if response.status() == StatusCode::CONFLICT => Self::NotThere,
            Ok(response) if response.status().is_server_error() => Self::Unknown(Ok(response)),
            Ok(response) => Self::Final(response),
            Err(problem) => Self::Unknown(Err(problem)),
        }
    }
}

fn job_path(job: Uuid, action: &str) -> String {
    url_path::path(&["v1", "work", "jobs", &job.to_string(), action])
}

/// Takes jobs for a worker as soon as there are some, within the wait of its request.
async fn take(
    jobs: &Jobs,
    tenant: &TenantId,
    headers: &HeaderMap,
    kind: Take,
    body: ClaimBody,
) -> Result<Vec<OfferedJob>, Problem> {
    let request = claim_request(jobs, tenant, body.worker, body.effects, body.probes)?;
    let (_, terms) = board_for(jobs, &request)?;
    let limit = body.max.unwrap_or(terms.max_batch).clamp(1, MAX_CLAIM);
    let seconds = body.wait_seconds.unwrap_or(MAX_WAIT_SECONDS);
    let wait = job_wait(jobs, seconds);
    let _long_poll = begin_wait(jobs, wait)?;
    let order = JobOrder {
        request: &request,
        take: kind,
        limit,
        wait,
        headers,
        interrupt: &Notify::new(),
    };
    take_jobs(jobs, &order).await
}

/// Counts a request that waits against the quota of its caller.
fn begin_wait(jobs: &Jobs, wait: Duration) -> Result<Option<LongPollPermit>, Problem> {
    (!wait.is_zero())
        .then(|| jobs.request.begin_long_poll())
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
    sender: ReportSender,
    LastSegment(job): LastSegment,
    headers: HeaderMap,
    JsonBody(report): JsonBody<HeartbeatBody>,
) -> Result<Response, Problem> {
    let job = id(&job)?;
    let path = job_path(job, "heartbeat");
    if let Some(response) = send_to_owner(&sender, &headers, &path, &report).await? {
        return Ok(response);
    }

    let report = report.about(job, &sender)?;
    let ReportAck::Extended(until) = apply_one(&sender.jobs, &sender.tenant, report).await? else {
        unreachable!("a heartbeat extends its claim")
    };

    let extended = HeartbeatResponse {
        expires_at: until.to_string(),
    };
    Ok(Json(extended).into_response())
}

/// Append log lines of a job
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/logs",
    tag = "work",
    params(("job" = Uuid, Path, description = "The job")),
    request_body = JobLogBody,
    responses((
        status = 204,
        description = "The lines are kept in memory for some time after the job ends"
    ))
)]
pub(crate) async fn append_log(
    sender: ReportSender,
    LastSegment(job): LastSegment,
    headers: HeaderMap,
    JsonBody(report): JsonBody<JobLogBody>,
) -> Result<Response, Problem> {
    let job = id(&job)?;
    let path = job_path(job, "logs");
    if let Some(response) = send_to_owner(&sender, &headers, &path, &report).await? {
        return Ok(response);
    }
    apply_one(&sender.jobs, &sender.tenant, report.about(job, &sender)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
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
    sender: ReportSender,
    LastSegment(job): LastSegment,
    headers: HeaderMap,
    JsonBody(report): JsonBody<JobResultBody>,
) -> Result<Response, Problem> {
    let job = id(&job)?;
    let path = job_path(job, "result");
    if let Some(response) = send_to_owner(&sender, &headers, &path, &report).await? {
        return Ok(response);
    }

    let ack = apply_one(&sender.jobs, &sender.tenant, report.about(job, &sender)?).await?;
    let ReportAck::Completed(ack, receipt) = ack else {
        unreachable!("a result completes its job")
    };

    // The board has accepted the result, but only its commit is durable: the worker keeps the
    // result until then.
    stored(&sender.jobs, &[&receipt])
        .await
        .pop()
        .unwrap_or(Ok(()))?;

    let completed = JobResultResponse {
        duplicate: ack == ResultAck::Duplicate,
    };
    Ok(Json(completed).into_response())
}

fn id(text: &str) -> Result<Uuid, Problem> {
    text.parse()
        .map_err(|_| invalid_parameter("job", format!("{text:?} is not a job id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_of_a_job_continues_after_a_pod_without_the_job_and_after_one_that_fails() {
        let of = |status: StatusCode| Claimed::of(Ok(status.into_response()));
        assert!(matches!(of(StatusCode::CONFLICT), Claimed::NotThere));
        assert!(matches!(
            of(StatusCode::SERVICE_UNAVAILABLE),
            Claimed::Unknown(Ok(_))
        ));
        let lost = Claimed::of(Err(Problem::moving()));
        assert!(matches!(lost, Claimed::Unknown(Err(_))));
    }

    #[test]
    fn claim_of_a_job_ends_with_the_job_and_with_a_rejection_of_the_worker() {
        for status in [
            StatusCode::OK,
            StatusCode::FORBIDDEN,
            StatusCode::TOO_MANY_REQUESTS,
        ] {
            let claimed = Claimed::of(Ok(status.into_response()));
            assert!(matches!(claimed, Claimed::Final(_)), "{status}");
        }
    }
}
