//! What people see of the work outside: the jobs that hang there, and what jobs write.

use axum::Json;
use axum::extract::State;
use orlog_effect::job_logs::Line;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::context::Api;
use crate::api::extract::{Key, Tenant};

/// A job as people see it.
#[derive(Debug, Serialize, ToSchema)]
struct Shown {
    #[schema(value_type = String)]
    job: Uuid,
    upstream: String,
    effect: String,
    saga: String,
    correlation: String,
    /// Who has it; nobody while it waits.
    worker: Option<String>,
    expires_at: Option<String>,
    /// How often it was claimed.
    claims: u32,
    lines: Vec<ShownLine>,
}

/// What a job has written.
#[derive(Debug, Serialize, ToSchema)]
struct JobLines {
    /// The id of the command.
    #[schema(value_type = String)]
    job: Uuid,
    effect: String,
    /// The last 1000, the oldest first.
    lines: Vec<ShownLine>,
}

/// What the jobs of an instance have written.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Written {
    items: Vec<JobLines>,
}

/// What the jobs of an instance have written: workers and scripts, also for a while after their end
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/lines",
    tag = "work",
    params(
        ("saga" = String, Path, description = "The definition's name"),
        ("correlation" = String, Path, description = "The correlation id, percent-encoded")
    ),
    responses((status = 200, description = "As far as it is kept: in memory, and not for ever", body = Written))
)]
pub(in crate::api) async fn written(State(api): State<Api>, Key(key): Key) -> Json<Written> {
    let jobs = api.app.catalog.lines(&key).into_iter();
    let items = jobs.map(|job| JobLines { job: job.job, effect: job.effect, lines: shown(job.lines) });
    Json(Written { items: items.collect() })
}

fn shown(lines: Vec<Line>) -> Vec<ShownLine> {
    lines.into_iter().map(|line| ShownLine { at: line.at.to_string(), text: line.text }).collect()
}

/// A line that a job wrote.
#[derive(Debug, Serialize, ToSchema)]
struct ShownLine {
    at: String,
    text: String,
}

/// The jobs of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Posted {
    items: Vec<Shown>,
}

/// What waits for workers and what they are at
#[utoipa::path(
    get,
    path = "/v1/work",
    tag = "work",
    responses((status = 200, description = "The oldest first, by upstream", body = Posted))
)]
pub(in crate::api) async fn list(State(api): State<Api>, Tenant(tenant): Tenant) -> Json<Posted> {
    let now = api.app.clock.now();
    let boards = api.app.catalog.boards().into_iter();
    let items = boards.flat_map(|(board, _, performer)| {
        let upstream = performer.upstream().name.clone();
        board.look(&tenant, now).into_iter().map(move |seen| Shown {
            job: seen.item.id,
            upstream: upstream.clone(),
            effect: seen.item.work.label(),
            saga: seen.item.instance.saga.to_string(),
            correlation: seen.item.instance.correlation.to_string(),
            worker: seen.held.as_ref().map(|(worker, _)| worker.clone()),
            expires_at: seen.held.as_ref().map(|(_, until)| until.to_string()),
            claims: seen.claims,
            lines: shown(seen.lines),
        })
    });
    Json(Posted { items: items.collect() })
}
