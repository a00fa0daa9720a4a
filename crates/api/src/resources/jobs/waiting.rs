//! `/v1/work/waiting`: kinds of jobs that wait on the boards of this pod. Pods follow each other
//! with it.

use axum::Json;
use orlog_effect::worker::WaitingJobs;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::claimed_job::job_wait;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant};
use crate::server::parts::jobs::Jobs;
use crate::server::problem::Problem;

/// Maximum wait, in seconds; less than the timeout of a request.
pub(super) const MAX_WAIT: u64 = 10;

/// Maximum number of kinds of a response.
const MAX_KINDS: usize = 1000;

/// Options of a request.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitingQuery {
    /// Revision of the previous response: waits until further jobs have arrived.
    after: Option<i64>,
    /// Maximum wait in seconds, at most 10. Default: 0.
    #[serde(default)]
    #[param(maximum = 10)]
    wait_seconds: u64,
}

/// Kinds of jobs that wait for a worker.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct WaitingPage {
    /// Changes when a job has arrived.
    pub(super) revision: i64,
    /// Kinds of jobs, at most 1000.
    #[schema(value_type = Vec<Object>)]
    pub(super) jobs: Vec<WaitingJobs>,
}

/// Show the kinds of jobs that wait on the boards of this pod
///
/// For pods that share the jobs of a key-sharded tenant.
#[utoipa::path(
    get,
    path = "/v1/work/waiting",
    tag = "work",
    params(WaitingQuery),
    responses((
        status = 200,
        description = "Kinds of jobs that no worker has claimed",
        body = WaitingPage
    ))
)]
pub(crate) async fn waiting(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<WaitingQuery>,
) -> Result<Json<WaitingPage>, Problem> {
    if query.wait_seconds > MAX_WAIT {
        return Err(invalid_parameter(
            "wait_seconds",
            format!("at most {MAX_WAIT}"),
        ));
    }

    let wait = job_wait(&jobs, query.wait_seconds);
    let until = Instant::now() + wait;
    let _long_poll = (!wait.is_zero())
        .then(|| jobs.request.begin_long_poll())
        .transpose()?;
    let mut known = query.after;

    loop {
        // In each round, because a reload can add or remove boards during the wait.
        let boards = jobs.catalog().job_boards();
        let arrivals: Vec<_> = boards.iter().map(|(board, ..)| board.arrivals()).collect();
        // A sum of counters that only grow, so that it changes with each of them.
        let sum: u64 = arrivals.iter().map(|arrivals| *arrivals.borrow()).sum();
        let revision = i64::try_from(sum).unwrap_or(i64::MAX);
        let is_new = known != Some(revision);
        // Read once: without the kinds, a response at the end of the wait would report none.
        let is_over = Instant::now() >= until;
        // Collected only if the response can need it, because it visits the queues of all boards.
        let waiting = if is_new || is_over {
            let now = jobs.request.steady();
            let kinds = boards
                .iter()
                .flat_map(|(board, ..)| board.waiting(now, &tenant, MAX_KINDS));
            kinds.take(MAX_KINDS).collect()
        } else {
            Vec::new()
        };
        if is_new && !waiting.is_empty() || is_over {
            return Ok(Json(WaitingPage {
                revision,
                jobs: waiting,
            }));
        }

        // The jobs that have arrived since are claimed already.
        known = Some(revision);
        let mut arrivals = arrivals;
        let next_arrivals = arrivals
            .iter_mut()
            .map(|arrivals| Box::pin(async move { drop(arrivals.changed().await) }));
        let changed = async {
            // `select_all` panics without futures, and a pod can have no board.
            if boards.is_empty() {
                std::future::pending::<()>().await;
            }
            futures::future::select_all(next_arrivals).await;
        };

        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(until) => {}
            () = jobs.request.drained() => {
                return Ok(Json(WaitingPage { revision, jobs: Vec::new() }));
            }
        }
    }
}
