//! Views of external work: jobs and their logs.

use orlog_effect::job_logs::LogTail;
use orlog_effect::worker;
use orlog_model::WorkItem;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::resources::sagas::stored_hidden_values;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{InstanceParams, InstancePath, QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::jobs::Jobs;
use crate::server::problem::Problem;
use orlog_node::redact::{HiddenValues, Redaction};

/// Maximum size of the log of a job in the list of jobs, in bytes of text. It is also at most a
/// quarter of a page.
const MAX_LISTED_LOG_BYTES: usize = 64 << 10;

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
    /// The last lines of its log, oldest first: at most 64 KiB.
    log: Vec<LogLineView>,
    /// Number of earlier lines, which the job logs of the instance have.
    omitted_lines: usize,
}

/// Log of a job.
#[derive(Debug, Serialize, ToSchema)]
struct JobLogView {
    /// Job id, which is the id of the work item.
    #[schema(value_type = String, format = "uuid")]
    job: Uuid,
    effect: String,
    /// The last lines, oldest first: at most 1000, and at most the size of a page.
    log: Vec<LogLineView>,
    /// Number of earlier lines that are in memory and do not fit into a page.
    omitted_lines: usize,
}

/// Logs of the jobs of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobLogPage {
    items: Vec<JobLogView>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
}

/// Page of job logs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobLogQuery {
    /// Maximum number of jobs. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<Uuid>,
}

/// Show the job logs of an instance, of workers and scripts, including recently ended jobs
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/job-logs",
    tag = "work",
    params(InstanceParams, JobLogQuery),
    responses((status = 200, description = "Job logs that are still in memory", body = JobLogPage))
)]
pub(crate) async fn job_logs(
    jobs: Jobs,
    InstancePath(key): InstancePath,
    QueryParams(query): QueryParams<JobLogQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(query.limit, &jobs.request);
    let listed = jobs.clone();
    let api = &jobs.request;
    api.read_json(move |scope| {
        let hidden = stored_hidden_values(scope.stores(), &key);
        let mut page = PageBuilder::new(limits);
        let mut skips = query.cursor;

        'logs: for logs in listed.catalog().job_logs() {
            for logged in logs.jobs_of(&key) {
                // Job ids have no order in this list, so that the page resumes behind the job of
                // the cursor.
                if let Some(last) = skips {
                    skips = (last != logged.job).then_some(last);
                    continue;
                }

                let tail = logs.tail(&key.tenant, logged.job, limits.bytes);
                let view = JobLogView {
                    job: logged.job,
                    effect: logged.effect,
                    omitted_lines: tail.omitted,
                    log: log_line_views(tail, &hidden),
                };

                if !page.push(view, logged.job.to_string()) {
                    break 'logs;
                }
            }
        }

        // An empty page would look like the end of the list.
        if skips.is_some() {
            let detail = "the job of the cursor is no longer in memory; start without a cursor";
            return Err(invalid_parameter("cursor", detail));
        }

        let page = page.finish(None);
        Ok(JobLogPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

fn log_line_views(tail: LogTail, hidden: &HiddenValues) -> Vec<LogLineView> {
    let lines = tail.lines.into_iter();
    lines
        .map(|line| LogLineView {
            at: line.at.to_string(),
            text: hidden.remove_from(&line.text),
        })
        .collect()
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
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
}

/// Page of jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobQuery {
    /// Maximum number of jobs. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Position in the list of jobs: of a job on the board of an upstream.
#[derive(Default)]
struct JobPosition {
    upstream: String,
    job: u64,
}

impl JobPosition {
    fn parse(cursor: &str) -> Result<Self, Problem> {
        // The number is in front, because the name of an upstream can contain dots.
        let parsed = cursor.split_once('.').and_then(|(job, upstream)| {
            Some(Self {
                upstream: upstream.to_owned(),
                job: job.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| invalid_parameter("cursor", "not a cursor of the list of jobs"))
    }

    fn cursor(&self) -> String {
        format!("{}.{}", self.job, self.upstream)
    }
}

/// List queued and claimed jobs
#[utoipa::path(
    get,
    path = "/v1/work",
    tag = "work",
    params(JobQuery),
    responses((status = 200, description = "Jobs by upstream, oldest first", body = JobPage))
)]
pub(crate) async fn list(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<JobQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(query.limit, &jobs.request);
    let start = query.cursor.as_deref().map(JobPosition::parse);
    let start = start.transpose()?.unwrap_or_default();

    let listed = jobs.clone();
    let api = &jobs.request;
    api.read_json(move |scope| {
        let log_bytes = MAX_LISTED_LOG_BYTES.min(limits.bytes / 4);
        let mut page = PageBuilder::new(limits);
        'boards: for (board, _, executor) in listed.catalog().job_boards() {
            let upstream = &executor.upstream().name;
            // Boards are ordered by upstream: those before the cursor are complete.
            if *upstream < start.upstream {
                continue;
            }

            let after = (*upstream == start.upstream).then_some(start.job);
            // One more than the page has shows that there is a next page.
            let jobs = board.page(scope.clock(), &tenant, after, limits.entries + 1);
            for job in jobs {
                let tail = board.job_logs().tail(&tenant, job.item.id, log_bytes);
                let position = JobPosition {
                    upstream: upstream.clone(),
                    job: job.position,
                };
                let view = JobView::of(&job, upstream, tail, scope.redact());

                if !page.push(view, position.cursor()) {
                    break 'boards;
                }
            }
        }

        let page = page.finish(None);
        Ok(JobPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

impl JobView {
    fn of(job: &worker::JobView, upstream: &str, tail: LogTail, redact: &Redaction) -> Self {
        // Only lines quote values, and most jobs have none.
        let hidden = if tail.lines.is_empty() {
            HiddenValues::default()
        } else {
            hidden_in(&job.item, redact)
        };
        Self {
            job: job.item.id,
            upstream: upstream.to_owned(),
            effect: job.item.work.label().into(),
            saga: job.item.instance.saga.to_string(),
            correlation: job.item.instance.correlation.to_string(),
            // The board omits expired claims, so that a job without a worker is available.
            worker: job.claim.as_ref().map(|(worker, _)| worker.clone()),
            expires_at: job.claim.as_ref().map(|(_, until)| until.to_string()),
            claims: job.claims,
            withdrawn: job.is_withdrawn,
            omitted_lines: tail.omitted,
            log: log_line_views(tail, &hidden),
        }
    }
}
