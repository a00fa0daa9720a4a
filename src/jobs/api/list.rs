//! Views of external work: jobs and their logs.

use axum::Json;
use orlog_effect::job_logs::{JobLog, LogLine};
use orlog_effect::worker;
use orlog_model::WorkItem;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::context::ApiState;
use crate::api::extract::{InstanceParams, InstancePath, Tenant};
use crate::api::problem::Problem;
use crate::redact::{HiddenValues, Redaction};
use crate::sagas::api::stored_hidden_values;

/// Job of an upstream.
#[derive(Debug, Serialize, ToSchema)]
struct JobView {
    #[schema(value_type = String, format = "uuid")]
    job: Uuid,
    upstream: String,
    effect: String,
    saga: String,
    correlation: String,
    /// Worker that holds the claim; null while the job is queued.
    worker: Option<String>,
    #[schema(format = "date-time")]
    expires_at: Option<String>,
    /// Number of claims.
    claims: u32,
    /// Whether the saga no longer awaits the job. Its worker may still report a result.
    withdrawn: bool,
    log: Vec<LogLineView>,
}

/// Log of a job.
#[derive(Debug, Serialize, ToSchema)]
struct JobLogView {
    /// Job id, which is the id of the work item.
    #[schema(value_type = String, format = "uuid")]
    job: Uuid,
    effect: String,
    /// The last 1000 lines, oldest first.
    log: Vec<LogLineView>,
}

/// Logs of the jobs of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobLogPage {
    items: Vec<JobLogView>,
}

/// Show the job logs of an instance, of workers and scripts, including recently ended jobs
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/job-logs",
    tag = "work",
    params(InstanceParams),
    responses((status = 200, description = "Job logs that are still in memory", body = JobLogPage))
)]
pub(crate) async fn job_logs(
    api: ApiState,
    InstancePath(key): InstancePath,
) -> Result<Json<JobLogPage>, Problem> {
    let jobs = api.app.catalog.job_logs(&key).into_iter();
    let hidden = api
        .read(move |app| Ok(stored_hidden_values(app, &key)))
        .await?;
    let view = |job: JobLog| JobLogView {
        job: job.job,
        effect: job.effect,
        log: log_line_views(job.log, &hidden),
    };
    Ok(Json(JobLogPage {
        items: jobs.map(view).collect(),
    }))
}

fn log_line_views(lines: Vec<LogLine>, hidden: &HiddenValues) -> Vec<LogLineView> {
    let view = |line: LogLine| LogLineView {
        at: line.at.to_string(),
        text: hidden.remove_from(&line.text),
    };
    lines.into_iter().map(view).collect()
}

/// Returns the values of a work item that no text about it may quote.
fn hidden_in(item: &WorkItem, redact: &Redaction) -> HiddenValues {
    if !redact.is_active() {
        return HiddenValues::default();
    }
    redact.hidden_values(&serde_json::to_value(&item.work).ok())
}

/// Log line of a job.
#[derive(Debug, Serialize, ToSchema)]
struct LogLineView {
    #[schema(format = "date-time")]
    at: String,
    text: String,
}

/// Jobs of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobPage {
    items: Vec<JobView>,
}

/// List queued and claimed jobs
#[utoipa::path(
    get,
    path = "/v1/work",
    tag = "work",
    responses((status = 200, description = "Jobs by upstream, oldest first", body = JobPage))
)]
pub(crate) async fn list(api: ApiState, Tenant(tenant): Tenant) -> Json<JobPage> {
    let (clock, redact) = (api.app.clock.as_ref(), &api.app.config.redact);
    let boards = api.app.catalog.job_boards().into_iter();
    let items = boards.flat_map(|(board, _, executor)| {
        let upstream = executor.upstream().name.clone();
        let view = move |seen: worker::JobView| JobView {
            job: seen.item.id,
            upstream: upstream.clone(),
            effect: seen.item.work.label().into(),
            saga: seen.item.instance.saga.to_string(),
            correlation: seen.item.instance.correlation.to_string(),
            worker: seen.claim.as_ref().map(|(worker, _)| worker.clone()),
            expires_at: seen.claim.as_ref().map(|(_, until)| until.to_string()),
            claims: seen.claims,
            withdrawn: seen.is_withdrawn,
            log: log_line_views(seen.log, &hidden_in(&seen.item, redact)),
        };
        board.list(clock, &tenant).into_iter().map(view)
    });
    Json(JobPage {
        items: items.collect(),
    })
}
