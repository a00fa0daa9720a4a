//! Stream of the lines of a flow as server-sent events. Any pod serves it: it reads page after page
//! from the owner of the shard, which may change meanwhile, and no line is sent twice or omitted.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::to_bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use orlog_bus::membership::Pod;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use super::page::{LinePage, LineRequest, LineView, next};
use crate::server::admission::AccessWatch;
use crate::server::forward;
use crate::server::parts::instances::Instances;
use crate::server::problem::Problem;
use crate::server::quotas::LongPollPermit;
use orlog_node::cluster::SlotOwner;
use orlog_node::url_path;

/// Maximum duration of a stream, so that the credentials are checked again.
const MAX_STREAM: Duration = Duration::from_mins(15);

/// Maximum wait of a request to another pod.
const REMOTE_WAIT: Duration = Duration::from_secs(10);

/// Delay before the owner of a shard that moves is read again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// State of a stream.
struct Follower {
    instances: Instances,
    request: LineRequest,
    /// Headers of the client, with its credentials.
    headers: HeaderMap,
    ready: std::vec::IntoIter<LineView>,
    ended: bool,
    until: Instant,
    _permit: LongPollPermit,
}

/// Returns the stream. An unknown flow is a problem, not a stream that fails.
pub(super) async fn stream(
    instances: Instances,
    request: LineRequest,
    headers: HeaderMap,
    permit: LongPollPermit,
    access: AccessWatch,
) -> Response {
    let until = Instant::now() + MAX_STREAM;
    let ready = Vec::new().into_iter();
    let ended = false;
    let mut follower = Follower {
        instances,
        request,
        headers,
        ready,
        ended,
        until,
        _permit: permit,
    };

    // The first page is read before the response starts: an error can then still have its own
    // status.
    match follower.read(Instant::now()).await {
        Ok(first) => follower.receive(first),
        Err(response) => return response,
    }

    Sse::new(follower.events(access))
        .keep_alive(KeepAlive::default())
        .into_response()
}

impl Follower {
    fn events(self, access: AccessWatch) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(Some((self, access)), |state| async {
            let (mut follower, mut access) = state?;
            loop {
                if let Some(line) = follower.ready.next() {
                    let event = Event::default().event("line").id(line.number.to_string());
                    let event = event.json_data(&line).expect("a line is JSON");
                    return Some((Ok(event), Some((follower, access))));
                }
                if follower.ended {
                    return Some((Ok(Event::default().event("end").data("{}")), None));
                }

                // The client connects again, and `Last-Event-ID` continues the stream.
                let stops = follower.until <= Instant::now()
                    || !follower.instances.request.health().accepting;
                if stops {
                    return None;
                }

                // Each wait ends with the stream at the latest, so that a flow without lines does
                // not extend it.
                let until = follower.until;
                let page = tokio::select! {
                    biased;
                    // Another request tells the reader why.
                    () = access.revoked() => return None,
                    page = follower.read(until) => page,
                };

                match page {
                    Ok(page) => follower.receive(page),
                    // The shard moves or a quota is used up; the position stays, so that the next
                    // read continues without a gap.
                    Err(response) if is_transient(response.status()) => {
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    // A stream has no place for a problem: the client connects again and receives
                    // it as the response.
                    Err(_) => return None,
                }
            }
        })
    }

    fn receive(&mut self, page: LinePage) {
        (self.ready, self.ended) = (page.items.into_iter(), page.ended);
    }

    /// Reads the next lines from the owner of the shard; waits for them until a time, or less.
    async fn read(&mut self, until: Instant) -> Result<LinePage, Response> {
        match self.instances.cluster.owner_of(&self.request.key) {
            SlotOwner::Local => {
                let read = next(&self.instances, &mut self.request, until).await;
                // A store that this pod has just released does not have the flow.
                read.map_err(|problem| {
                    if self.is_here() {
                        problem
                    } else {
                        Problem::moving()
                    }
                    .into_response()
                })
            }
            SlotOwner::Pod(pod) => self.read_from(&pod, until).await,
            SlotOwner::None => Err(Problem::moving().into_response()),
        }
    }

    fn is_here(&self) -> bool {
        let owner = self.instances.cluster.owner_of(&self.request.key);
        matches!(owner, SlotOwner::Local) && self.instances.reader(&self.request.key).is_some()
    }

    async fn read_from(&mut self, pod: &Pod, until: Instant) -> Result<LinePage, Response> {
        let LineRequest {
            key,
            job,
            after,
            limits,
        } = &self.request;
        let limit = limits.entries;
        // A short wait, because a change of the owner is noticed only between two requests.
        let wait = until
            .saturating_duration_since(Instant::now())
            .min(REMOTE_WAIT)
            .as_secs();

        let path = url_path::path(&["v1", "flows", key.correlation.as_str(), "lines"]);
        let wait = if wait == 0 {
            String::new()
        } else {
            format!("&wait={wait}s")
        };
        let job = job
            .as_ref()
            .map(|job| format!("&job={}", utf8_percent_encode(job, NON_ALPHANUMERIC)));
        let target = format!(
            "{path}?after={after}&limit={limit}{wait}{}",
            job.unwrap_or_default()
        );

        let mut headers = self.headers.clone();
        // The client requested a stream; the owner must return one page.
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let response = forward::get(&self.instances.cluster, pod, &target, headers).await;
        let response = response.map_err(IntoResponse::into_response)?;
        if response.status() != StatusCode::OK {
            return Err(response);
        }

        // Without a limit of its own: the owner limits its pages, and the body is in memory
        // already.
        let bytes = to_bytes(response.into_body(), usize::MAX).await;
        let page = bytes
            .ok()
            .and_then(|bytes| serde_json::from_slice::<LinePage>(&bytes).ok());
        // A page that cannot be read counts as a moving shard, so that it is requested again.
        let page = page.ok_or_else(|| Problem::moving().into_response())?;
        // Advanced only after a complete page: a failed request reads the same lines again.
        self.request.after = page.last;

        Ok(page)
    }
}

/// Returns whether a request can succeed soon.
fn is_transient(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
    )
}
