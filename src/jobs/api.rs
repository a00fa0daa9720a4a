//! `/v1/work`: job API for external workers. `docs/workers.md` describes the protocol.

pub(crate) mod list;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use orlog_effect::worker::{ClaimLost, ClaimOptions, ClaimRequest, ClaimedJob, JobBoard, ResultAck};
use orlog_effect::{ProviderError, RemoteResult, Reply};
use orlog_model::{EffectName, EventType, Fact, TenantId, TraceParent, Work};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::body::JsonBody;
use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::extract::{LastSegment, Tenant};
use crate::api::problem::{Code, Problem};

/// Maximum wait time of a claim request in seconds; less than common proxy timeouts.
const MAX_WAIT_SECONDS: u64 = 25;

/// Maximum number of jobs of one claim.
const MAX_CLAIM: usize = 100;

/// Maximum number of log lines of one request.
const MAX_LOG_LINES: usize = 1000;

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

/// Claimed job.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimedJobView {
    /// Job id, and idempotency key of the effect.
    #[serde(rename = "job")]
    #[schema(value_type = String)]
    id: Uuid,
    /// Claim id; required in all requests about the job.
    #[schema(value_type = String)]
    claim: Uuid,
    /// Number of this claim of the job, from 1.
    claim_count: u32,
    /// Expiry of the claim unless a heartbeat extends it.
    expires_at: String,
    /// Recommended interval of heartbeats. Each heartbeat extends the claim by its full duration.
    heartbeat_interval_seconds: f64,
    /// Deadline of the whole effect.
    deadline: Option<String>,
    effect: String,
    payload: Value,
    saga: String,
    correlation: String,
    traceparent: Option<String>,
}

/// Heartbeat of a worker.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatBody {
    #[schema(value_type = String)]
    claim: Uuid,
}

/// New expiry of the claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeartbeatResponse {
    expires_at: String,
}

/// Log lines of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobLogBody {
    #[schema(value_type = String)]
    claim: Uuid,
    log: Vec<String>,
}

/// Result of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobResultBody {
    #[schema(value_type = String)]
    claim: Uuid,
    result: JobResultKind,
    /// Result payload.
    #[serde(default)]
    payload: Value,
    /// Event that the saga receives.
    #[schema(value_type = Option<String>)]
    event: Option<EventType>,
    /// Facts to publish, independent of how the saga handles the result.
    #[serde(default)]
    facts: Vec<FactBody>,
    /// Code of a failure.
    code: Option<String>,
    /// Message of a failure.
    message: Option<String>,
    /// Delay before another attempt, in seconds.
    retry_after_seconds: Option<u64>,
    /// W3C trace context of the span in which the worker executed the job.
    traceparent: Option<String>,
}

/// Fact to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FactBody {
    /// Event type.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: EventType,
    #[serde(default)]
    data: Value,
}

/// Kind of a job result.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum JobResultKind {
    /// The job succeeded.
    Succeeded,
    /// The job failed permanently.
    Failed,
    /// The job failed; another attempt may succeed.
    Retry,
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
    if claim_body.worker.is_empty() || claim_body.worker.chars().count() > 200 {
        return Err(invalid_parameter("worker", "worker name must have 1 to 200 characters"));
    }
    let request =
        ClaimRequest { tenant: tenant.clone(), effects: claim_body.effects, worker: claim_body.worker };
    let Some((board, terms)) = board_for(&api, &request.effects, &tenant) else {
        return Err(invalid_parameter("effects", "no single upstream of kind worker executes these effects"));
    };
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
    Ok(Json(ClaimResponse { jobs: claimed.into_iter().map(job).collect() }))
}

/// Extend a claim
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/heartbeat",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = HeartbeatBody,
    responses((status = 200, description = "The claim is extended", body = HeartbeatResponse))
)]
pub(crate) async fn heartbeat(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(report): JsonBody<HeartbeatBody>,
) -> Result<Json<HeartbeatResponse>, Problem> {
    let job = id(&job)?;
    let clock = api.app.clock.as_ref();
    let until =
        on_boards(&api, |board, terms| board.heartbeat(clock, &tenant, job, report.claim, terms.claim_ttl))?;
    Ok(Json(HeartbeatResponse { expires_at: until.to_string() }))
}

/// Append log lines of a job
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/logs",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = JobLogBody,
    responses((status = 204, description = "The lines are kept in memory for some time after the job ends"))
)]
pub(crate) async fn append_log(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(report): JsonBody<JobLogBody>,
) -> Result<axum::http::StatusCode, Problem> {
    let job = id(&job)?;
    if report.log.len() > MAX_LOG_LINES {
        return Err(invalid_parameter("log", format!("at most {MAX_LOG_LINES} lines per request")));
    }
    let now = api.app.clock.now();
    on_boards(&api, |board, _| board.append_log(&tenant, job, report.claim, &report.log, now))?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// Complete a job with its result
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/result",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = JobResultBody,
    responses((status = 200, description = "The job is completed", body = JobResultResponse))
)]
pub(crate) async fn complete(
    api: ApiState,
    Tenant(tenant): Tenant,
    LastSegment(job): LastSegment,
    JsonBody(report): JsonBody<JobResultBody>,
) -> Result<Json<JobResultResponse>, Problem> {
    let job = id(&job)?;
    let claim = report.claim;
    let trace = report.traceparent.as_deref().and_then(TraceParent::new);
    let result = RemoteResult { result: reply(report), trace };
    let ack = on_boards(&api, |board, _| board.complete(&tenant, job, claim, result.clone()))?;
    Ok(Json(JobResultResponse { duplicate: ack == ResultAck::Duplicate }))
}

fn job(claimed: ClaimedJob) -> ClaimedJobView {
    let ClaimedJob { item, claim, claim_count: number, expires_at: until, heartbeat_interval } = claimed;
    let effect = item.work.label();
    let payload = match item.work {
        Work::Effect(effect) => effect.payload,
        Work::Command(_)
        | Work::Fact(_)
        | Work::StartChild(_)
        | Work::CancelChild(_)
        | Work::NotifyParent(_) => Value::Null,
    };
    ClaimedJobView {
        id: item.id,
        claim,
        claim_count: number,
        expires_at: until.to_string(),
        heartbeat_interval_seconds: heartbeat_interval.as_secs_f64(),
        deadline: item.deadline.map(|deadline| deadline.to_string()),
        effect: effect.into(),
        payload,
        saga: item.instance.saga.to_string(),
        correlation: item.instance.correlation.to_string(),
        traceparent: item.trace.map(|trace| trace.as_str().to_owned()),
    }
}

fn reply(report: JobResultBody) -> Result<Reply, ProviderError> {
    let code = report.code.unwrap_or_else(|| "worker_failed".to_owned());
    let message = report.message.unwrap_or_else(|| "the worker sent no message".to_owned());
    let facts: Vec<_> =
        report.facts.into_iter().map(|fact| Fact { kind: fact.kind, data: fact.data, key: None }).collect();
    let error = match (report.result, report.event) {
        (JobResultKind::Succeeded, event) => return Ok(Reply { event, payload: report.payload, facts }),
        (JobResultKind::Failed, Some(event)) => ProviderError::permanent_with_event(event, code, message),
        (JobResultKind::Failed, None) => ProviderError::permanent(code, message),
        (JobResultKind::Retry, _) => ProviderError::unavailable(code, message),
    };
    let error = error.with_payload(report.payload).with_facts(facts);
    Err(match report.retry_after_seconds {
        Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
        None => error,
    })
}

/// Returns the job board of the upstream that executes these effects for the tenant.
fn board_for(
    api: &ApiState,
    effects: &[EffectName],
    tenant: &TenantId,
) -> Option<(Arc<JobBoard>, ClaimOptions)> {
    let mut boards = api.app.catalog.job_boards().into_iter();
    boards.find_map(|(board, terms, executor)| {
        let upstream = executor.upstream();
        let serves = upstream.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant))
            && upstream.serves_all(effects);
        serves.then_some((board, terms))
    })
}

/// Runs a function on the job board that has the job.
fn on_boards<T>(
    api: &ApiState,
    act: impl Fn(&JobBoard, ClaimOptions) -> Result<T, ClaimLost>,
) -> Result<T, Problem> {
    let mut boards = api.app.catalog.job_boards().into_iter();
    let done = boards.find_map(|(board, terms, _)| act(&board, terms).ok());
    done.ok_or_else(|| Problem::new(Code::ClaimLost, ClaimLost.to_string()))
}

fn id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| invalid_parameter("job", format!("{text:?} is not a job id")))
}
