//! Jobs of key-sharded tenants, which wait on the boards of several pods.
//!
//! The jobs of such a tenant are on the board of the pod that owns their shard, and a worker may be
//! connected to any pod. The pod that receives a request for jobs takes them from one board, its
//! own or that of a pod that has jobs for the worker. Each request begins at another board, so that
//! none starves. A pod is asked for jobs only if it has some: as long as workers of a tenant ask
//! for jobs, each pod follows the boards of the others with one request for each of them. Reports
//! are sent to the owner of the shard, which the id of the claim contains.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use orlog_bus::membership::Pod;
use orlog_effect::worker::ClaimRequest;
use orlog_model::{JobClaim, TenantId, format_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::claimed_job::{
    AvailableJobView, ClaimedJobView, MAX_CLAIM, board_for, with_registration,
};
use super::waiting::{MAX_WAIT as FOLLOW_WAIT, WaitingPage};
use crate::server::forward;
use crate::server::other_boards::{Credentials, Source, TenantBoards};
use crate::server::parts::cluster::{Cluster, WeakCluster};
use crate::server::parts::jobs::Jobs;
use crate::server::problem::{Code, Problem};
use orlog_node::cluster::{SlotOwner, pod_client};

/// Minimum interval of the requests with which a board is followed.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time until another pod responds to a request about jobs: it handles it without a wait.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a pod is asked again that did not respond.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Kind of a request for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Claims the jobs.
    Claim,
    /// Returns jobs without claiming them.
    Fetch,
}

impl Take {
    fn path(self) -> &'static str {
        match self {
            Self::Claim => "/v1/work/claim",
            Self::Fetch => "/v1/work/fetch",
        }
    }
}

/// Job in a response: of a board of this pod, or of another pod.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OfferedJob {
    Claimed(Box<ClaimedJobView>),
    Available(Box<AvailableJobView>),
    OfOtherPod(Value),
}

/// Request of a worker for jobs.
pub(super) struct JobOrder<'a> {
    pub(super) request: &'a ClaimRequest,
    pub(super) take: Take,
    /// Maximum number of jobs.
    pub(super) limit: usize,
    /// Maximum wait for the first job.
    pub(super) wait: Duration,
    /// Headers of the worker, with its credentials.
    pub(super) headers: &'a HeaderMap,
    /// Ends the wait, but never while jobs are taken.
    pub(super) interrupt: &'a Notify,
}

impl JobOrder<'_> {
    /// Waits until the request must not wait any longer.
    async fn ended(&self, jobs: &Jobs) {
        tokio::select! {
            // The process is shutting down and would wait for this response.
            () = jobs.request.drained() => {}
            () = self.interrupt.notified() => {}
        }
    }
}

/// Takes jobs as soon as there are some; returns none after the wait, after an interrupt, and if
/// the node is drained.
///
/// Dropped during its wait, the future has claimed nothing. Dropped while another pod claims jobs,
/// it loses them until their claims expire; an interrupt waits for them.
///
/// # Errors
/// If no upstream has jobs of these effects.
pub(super) async fn take_jobs(
    jobs: &Jobs,
    order: &JobOrder<'_>,
) -> Result<Vec<OfferedJob>, Problem> {
    // All jobs of the tenant are on the own board, which wakes the request by itself.
    let Some(others) = follow_others(jobs, &order.request.tenant, order.headers) else {
        // Jobs precede the end of the wait: those that are claimed in the same poll must reach the
        // worker.
        return tokio::select! {
            biased;
            taken = take_own(jobs, order, order.wait) => taken,
            () = order.ended(jobs) => Ok(Vec::new()),
        };
    };

    let until = Instant::now() + order.wait;
    let mut arrivals = others.arrivals.subscribe();
    loop {
        // Before the boards are read, so that an arrival during the reads ends the wait below.
        arrivals.mark_unchanged();
        let taken = take_from_first(jobs, &others, order).await?;
        let remaining = until.saturating_duration_since(Instant::now());
        if !taken.is_empty() || remaining.is_zero() {
            return Ok(taken);
        }

        // The request waits on the own board, which wakes one request for each job; arrivals
        // elsewhere wake all.
        tokio::select! {
            biased;
            taken = take_own(jobs, order, remaining) => return taken,
            () = order.ended(jobs) => return Ok(Vec::new()),
            // An error is impossible: `others` has the sender.
            _ = arrivals.changed() => {}
        }
    }
}

/// Takes jobs from the first board that has some now. Each request begins at another board.
///
/// Never from two boards: jobs that are claimed on one would be lost to the worker if the request
/// ended, or failed, while it waits for the response of the next one.
async fn take_from_first(
    jobs: &Jobs,
    others: &TenantBoards,
    order: &JobOrder<'_>,
) -> Result<Vec<OfferedJob>, Problem> {
    let request = with_registration(jobs, order.request)?;
    let limit = order.limit.min(MAX_CLAIM);
    let mut failure = None;

    for source in others.sources(&request) {
        let taken = match source {
            Source::Own => take_own(jobs, order, Duration::ZERO).await,
            Source::Other(pod, requests) => {
                // Few requests at a time for one pod: all waiting workers would otherwise request
                // the same jobs of it.
                let Ok(_turn) = requests.acquire().await else {
                    continue;
                };
                if !others.has_jobs(&pod.name, &request) {
                    // Another request has taken them meanwhile.
                    continue;
                }

                let taken = take_from(jobs, &pod, order, limit).await;
                // The board had fewer jobs than requested, so that the others wait until the pod
                // reports new ones.
                if taken.len() < limit {
                    others.emptied(&pod.name, &request);
                }
                Ok(taken.into_iter().map(OfferedJob::OfOtherPod).collect())
            }
        };

        match taken {
            Ok(taken) if taken.is_empty() => {}
            Ok(taken) => return Ok(taken),
            // A reload can remove the own board; the other pods may still have theirs.
            Err(problem) => failure = Some(problem),
        }
    }

    failure.map_or(Ok(Vec::new()), Err)
}

async fn take_own(
    jobs: &Jobs,
    order: &JobOrder<'_>,
    wait: Duration,
) -> Result<Vec<OfferedJob>, Problem> {
    let limit = order.limit.min(MAX_CLAIM);
    // Looked up for each attempt, because a reload can replace the upstream while the worker waits.
    let (board, terms) = board_for(jobs, order.request)?;
    // The runner may have registered since the start of a stream, which can outlive the
    // registration.
    let request = with_registration(jobs, order.request)?;
    let clock = jobs.request.clock();
    match order.take {
        Take::Claim => {
            let claimed = board.claim(clock, &request, limit, terms, wait).await;
            let views = claimed.into_iter().map(ClaimedJobView::from);
            Ok(views.map(Box::new).map(OfferedJob::Claimed).collect())
        }
        Take::Fetch => {
            let available = board.fetch(clock, &request, limit, wait).await;
            let views = available.into_iter().map(AvailableJobView::from);
            Ok(views.map(Box::new).map(OfferedJob::Available).collect())
        }
    }
}

/// Jobs in the response of another pod.
#[derive(Deserialize)]
struct TakenJobs {
    jobs: Vec<Value>,
}

/// Takes jobs from the board of another pod. Without a response there are none: those that it has
/// claimed are available again when their claims expire.
async fn take_from(jobs: &Jobs, pod: &Pod, order: &JobOrder<'_>, limit: usize) -> Vec<Value> {
    let JobOrder {
        request,
        take,
        headers,
        ..
    } = order;
    let body = json!({
        "effects": request.effects,
        "worker": request.worker,
        "probes": request.probes,
        "max": limit,
        // This pod waits for arrivals itself; a wait there would delay the jobs of the other
        // boards.
        "wait_seconds": 0,
    });

    let headers = credentials(headers);
    let response = forward::forward_post(
        &jobs.cluster,
        pod,
        take.path(),
        &headers,
        body.to_string().into(),
    );
    match in_time(RESPONSE_TIMEOUT, response).await {
        Ok((StatusCode::OK, body)) => serde_json::from_slice::<TakenJobs>(&body)
            .map_or_else(|_| Vec::new(), |taken| taken.jobs),
        Ok((status, _)) => {
            tracing::debug!(pod = pod.name, %status, "no jobs of another pod");
            Vec::new()
        }
        Err(error) => {
            tracing::debug!(pod = pod.name, %error, "no jobs of another pod");
            Vec::new()
        }
    }
}

/// Returns the pod that has the job of a claim; `None` if that is this one.
///
/// # Errors
/// If the shard of the job has no owner at this moment, or if it is not the pod to which another
/// one has forwarded the request.
pub(super) fn pod_of_claim(
    jobs: &Jobs,
    tenant: &TenantId,
    headers: &HeaderMap,
    claim: Uuid,
) -> Result<Option<Pod>, Problem> {
    if !is_spread(jobs, tenant) {
        return Ok(None);
    }
    // No board creates an id without a slot; the own boards reject it as a lost claim.
    let Some(slot) = JobClaim::slot_in(claim) else {
        return Ok(None);
    };

    match jobs.cluster.owner(slot) {
        SlotOwner::Local => Ok(None),
        SlotOwner::Pod(pod) if !forward::is_forwarded(headers) => Ok(Some(pod)),
        // Forwarded once only: pods that disagree about the owner would send the report in a
        // circle.
        SlotOwner::Pod(_) | SlotOwner::None => Err(Problem::moving()),
    }
}

/// Returns the other pods that may have jobs of a tenant; none if another pod has forwarded the
/// request.
pub(super) fn other_pods(jobs: &Jobs, tenant: &TenantId, headers: &HeaderMap) -> Vec<Pod> {
    if is_spread(jobs, tenant) && !forward::is_forwarded(headers) {
        jobs.cluster.other_pods()
    } else {
        Vec::new()
    }
}

/// Repeats a request of a runner on the other pods, whose boards apply its labels and its capacity.
/// A pod that does not respond receives the next one: registrations are repeated.
pub(super) async fn repeat_on_others(
    jobs: &Jobs,
    tenant: &TenantId,
    headers: &HeaderMap,
    method: Method,
    path: &str,
    body: Bytes,
) {
    let pods = other_pods(jobs, tenant, headers);
    let headers = credentials(headers);
    let sent = pods
        .iter()
        .map(|pod| send_to(jobs, pod, method.clone(), path, &headers, body.clone()));

    for result in futures::future::join_all(sent).await {
        if let Err(problem) = result {
            tracing::debug!(
                error = problem.detail(),
                "runner not registered at another pod"
            );
        }
    }
}

/// Sends a request of a worker to another pod, which responds without a wait.
///
/// # Errors
/// If the pod does not respond in time.
pub(super) async fn send_to(
    jobs: &Jobs,
    pod: &Pod,
    method: Method,
    path: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let headers = headers.clone();
    let response = forward::send_body(&jobs.cluster, pod, method, path, headers, body);
    timeout(RESPONSE_TIMEOUT, response)
        .await
        .unwrap_or_else(|_| {
            let limit = format_duration(RESPONSE_TIMEOUT);
            let detail = format!(
                "pod {} did not respond within {limit}; it may have executed the request; try \
                 again",
                pod.name
            );
            Err(Problem::new(Code::Unavailable, detail))
        })
}

/// Returns a response if it arrives in time. A paused pod must not delay the requests that wait for
/// jobs of other pods.
///
/// # Errors
/// The reason why there is none.
pub(super) async fn in_time(
    limit: Duration,
    response: impl Future<Output = Result<(StatusCode, Bytes), pod_client::Error>>,
) -> Result<(StatusCode, Bytes), String> {
    match timeout(limit, response).await {
        Ok(response) => response.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {}", format_duration(limit))),
    }
}

/// Returns whether the jobs of a tenant are on the boards of several pods.
fn is_spread(jobs: &Jobs, tenant: &TenantId) -> bool {
    let cluster = &jobs.cluster;
    cluster.is_clustered() && cluster.slots().is_key_sharded(tenant)
}

/// Returns the headers of a worker for a request of this pod with another body.
pub(super) fn credentials(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    // The request has another body and no handshake, and this pod reads its response, which must
    // not be encoded.
    for name in [
        header::CONTENT_ENCODING,
        header::ACCEPT_ENCODING,
        header::EXPECT,
        header::SEC_WEBSOCKET_KEY,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_PROTOCOL,
        header::SEC_WEBSOCKET_EXTENSIONS,
    ] {
        headers.remove(name);
    }

    headers
}

/// Follows the boards of the other pods for a worker of a tenant; `None` if they have no jobs of
/// the tenant.
fn follow_others(jobs: &Jobs, tenant: &TenantId, headers: &HeaderMap) -> Option<Arc<TenantBoards>> {
    let pods = other_pods(jobs, tenant, headers);
    if pods.is_empty() {
        return None;
    }

    let boards = jobs.other_boards().of(tenant);
    let added = boards.note_request(pods, || Credentials {
        headers: credentials(headers),
        key: jobs.request.scope.key,
    });

    // One task for each board, independent of the number of workers; it holds weak references only.
    for name in added {
        tokio::spawn(follow_board(
            jobs.cluster.downgrade(),
            Arc::downgrade(&boards),
            name,
        ));
    }
    Some(boards)
}

/// Follows the board of another pod as long as workers of the tenant ask for jobs.
async fn follow_board(pods: WeakCluster, boards: Weak<TenantBoards>, name: String) {
    let mut revision = None;
    loop {
        let Some(boards) = boards.upgrade() else {
            return;
        };
        // No worker has requested jobs for some time; the next request starts another task.
        let Some(Credentials { headers, key }) = boards.credentials(&name) else {
            return;
        };

        let Some(cluster) = pods.upgrade(key) else {
            return;
        };
        // In each round, because a pod that restarts can have another address.
        let others = cluster.other_pods();
        let Some(pod) = others.into_iter().find(|pod| pod.name == name) else {
            boards.remove(&name);
            return;
        };

        let page = tokio::select! {
            biased;
            () = cluster.drained() => return,
            page = waiting_jobs(&cluster, &pod, &headers, revision) => page,
        };
        drop(cluster);

        let delay = match page {
            Ok(page) => {
                revision = Some(page.revision);
                boards.set(pod, page.jobs);
                FOLLOW_INTERVAL
            }
            Err(error) => {
                tracing::debug!(pod = name, tenant = %boards.tenant, error, "board not followed");
                // The next response must not wait for a change, because the known jobs are removed
                // here.
                revision = None;
                // Requests must not wait for a pod that does not respond.
                boards.set(pod, Vec::new());
                RETRY_DELAY
            }
        };
        // The pause keeps neither the node nor the boards of a tenant whose workers have left.
        drop(boards);

        tokio::time::sleep(delay).await;
    }
}

/// Returns the jobs that wait on the board of another pod, as soon as they differ from those of a
/// revision.
async fn waiting_jobs(
    cluster: &Cluster,
    pod: &Pod,
    headers: &HeaderMap,
    revision: Option<i64>,
) -> Result<WaitingPage, String> {
    let after = revision.map_or_else(String::new, |revision| format!("after={revision}&"));
    let path = format!("/v1/work/waiting?{after}wait_seconds={FOLLOW_WAIT}");
    let response = forward::forward_get(cluster, pod, &path, headers);
    let limit = Duration::from_secs(FOLLOW_WAIT) + RESPONSE_TIMEOUT;
    let (status, body) = in_time(limit, response).await?;
    if status != StatusCode::OK {
        return Err(format!("the pod responded with the status {status}"));
    }
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}
