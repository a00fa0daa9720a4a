//! Views of external work: jobs and their logs.

use axum::Json;
use axum::extract::State;
use orlog_effect::job_logs::LogLine;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::context::ApiState;
use crate::api::extract::{InstancePath, Tenant};

/// Job of an upstream.
#[derive(Debug, Serialize, ToSchema)]
struct JobView {
    #[schema(value_type = String)]
    job: Uuid,
    upstream: String,
    effect: String,
    saga: String,
    correlation: String,
    /// Worker that holds the claim; null while the job is queued.
    worker: Option<String>,
    expires_at: Option<String>,
    /// Number of claims.
    claims: u32,
    log: Vec<LogLineView>,
}

/// Log of a job.
#[derive(Debug, Serialize, ToSchema)]
struct JobLogView {
    /// Job id, which is the id of the work item.
    #[schema(value_type = String)]
    job: Uuid,
    effect: String,
    /// The last 1000 lines, oldest first.
    log: Vec<LogLineView>,
}

/// Logs of the jobs of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct JobLogPage {
    items: Vec<JobLogView>,
}

/// Show the job logs of an instance, of workers and scripts, including recently ended jobs
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/job-logs",
    tag = "work",
    params(
        ("saga" = String, Path, description = "Saga name"),
        ("correlation" = String, Path, description = "Correlation id, percent-encoded")
    ),
    responses((status = 200, description = "Job logs that are still in memory", body = JobLogPage))
)]
pub(in crate::api) async fn job_logs(
    State(api): State<ApiState>,
    InstancePath(key): InstancePath,
) -> Json<JobLogPage> {
    let jobs = api.app.catalog.job_logs(&key).into_iter();
    let items = jobs.map(|job| JobLogView { job: job.job, effect: job.effect, log: log_line_views(job.log) });
    Json(JobLogPage { items: items.collect() })
}

fn log_line_views(lines: Vec<LogLine>) -> Vec<LogLineView> {
    lines.into_iter().map(|line| LogLineView { at: line.at.to_string(), text: line.text }).collect()
}

/// Log line of a job.
#[derive(Debug, Serialize, ToSchema)]
struct LogLineView {
    at: String,
    text: String,
}

/// Jobs of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct JobPage {
    items: Vec<JobView>,
}

/// List queued and claimed jobs
#[utoipa::path(
    get,
    path = "/v1/work",
    tag = "work",
    responses((status = 200, description = "Jobs by upstream, oldest first", body = JobPage))
)]
pub(in crate::api) async fn list(State(api): State<ApiState>, Tenant(tenant): Tenant) -> Json<JobPage> {
    let clock = api.app.clock.as_ref();
    let boards = api.app.catalog.job_boards().into_iter();
    let items = boards.flat_map(|(board, _, executor)| {
        let upstream = executor.upstream().name.clone();
        board.list(clock, &tenant).into_iter().map(move |seen| JobView {
            job: seen.item.id,
            upstream: upstream.clone(),
            effect: seen.item.work.label(),
            saga: seen.item.instance.saga.to_string(),
            correlation: seen.item.instance.correlation.to_string(),
            worker: seen.claim.as_ref().map(|(worker, _)| worker.clone()),
            expires_at: seen.claim.as_ref().map(|(_, until)| until.to_string()),
            claims: seen.claims,
            log: log_line_views(seen.log),
        })
    });
    Json(JobPage { items: items.collect() })
}
