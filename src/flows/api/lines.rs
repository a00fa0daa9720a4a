//! `GET /v1/flows/{id}/lines`: lines that the jobs of a flow wrote, as a page or as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use orlog_model::InstanceKey;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::{FlowPath, key, missing};
use crate::api::context::ApiState;
use crate::api::extract::{QueryParams, Tenant, accepts_events, page_limit};
use crate::api::problem::Problem;
use crate::api::quotas::LongPollPermit;
use crate::sagas::api::flow::step_of;
use crate::sagas::api::result::wait;
use crate::sagas::api::state::hidden_values;

/// Maximum duration of a stream of events, so that the credentials are checked again.
const MAX_STREAM: Duration = Duration::from_mins(15);

/// Interval in which an ended flow is read again while lines of it wait to be stored.
const UNSAVED_CHECK: Duration = Duration::from_millis(200);

/// Options of a request for lines.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LinesQuery {
    /// Job whose lines are returned. Default: all.
    job: Option<String>,
    /// Number after which lines are returned. Default: 0, or the header `Last-Event-ID`.
    after: Option<u64>,
    /// Approximate maximum number of lines. Default: `http.max_page_size`.
    limit: Option<usize>,
    /// Maximum wait for a line, for example `30s`; at most `60s`. Default: no wait.
    #[param(format = "duration")]
    wait: Option<String>,
}

/// Lines of a flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinePage {
    /// Lines, oldest first.
    items: Vec<LineView>,
    /// Number of the last line that was read; `after` of the next page.
    last: u64,
    /// Number of the oldest stored line; earlier ones are deleted.
    first: u64,
    /// Whether the flow has ended and there are no more lines.
    ended: bool,
    /// Whether lines wait to be stored.
    #[serde(skip)]
    has_unsaved: bool,
}

/// Line of a job.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct LineView {
    /// Number in the flow, from 1.
    number: u64,
    /// Job, or its element: `cut[2]`.
    job: String,
    /// Time of receipt.
    #[schema(format = "date-time")]
    at: String,
    /// Text.
    text: String,
}

/// Lines to read.
struct LineRequest {
    key: InstanceKey,
    job: Option<String>,
    after: u64,
    limit: usize,
}

/// Show the lines that the jobs of a flow wrote
///
/// With `Accept: text/event-stream`, the response is a stream of events `line`, and of one event `end` after the last line of an ended
/// flow. `Last-Event-ID` continues it.
#[utoipa::path(
    get,
    path = "/v1/flows/{id}/lines",
    tag = "flows",
    params(FlowPath, LinesQuery),
    responses((status = 200, description = "Lines", body = LinePage))
)]
pub(crate) async fn lines(
    api: ApiState,
    Tenant(tenant): Tenant,
    Path(path): Path<FlowPath>,
    QueryParams(query): QueryParams<LinesQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wait = wait(query.wait.as_deref())?.unwrap_or_default();
    let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let mut request = LineRequest {
        key: key(tenant, &path.id)?,
        job: query.job,
        after: query.after.or(last_event).unwrap_or_default(),
        limit: page_limit(query.limit, &api),
    };
    if accepts_events(&headers) {
        let permit = api.quotas.begin_long_poll(api.scope.caller.as_ref())?;
        // An unknown flow is a problem, not a stream that fails.
        let first = read(&api, &request).await?;
        let events = events(api, request, first, permit);
        return Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response());
    }
    let _permits = if wait.is_zero() { None } else { Some(api.begin_wait()?) };
    Ok(Json(next(&api, &mut request, Instant::now() + wait).await?).into_response())
}

/// Returns the next lines, and advances the request; waits for them until a time, or until the flow has ended.
async fn next(api: &ApiState, request: &mut LineRequest, until: Instant) -> Result<LinePage, Problem> {
    loop {
        let mut commits = api.app.runtime.reader(&request.key).map(|reader| reader.watch());
        if let Some(commits) = &mut commits {
            drop(commits.borrow_and_update());
        }
        let page = read(api, request).await?;
        let has_advanced = page.last > request.after;
        request.after = page.last;
        if !page.items.is_empty() || page.ended || Instant::now() >= until {
            return Ok(page);
        }
        if has_advanced {
            // The lines belong to other jobs.
            continue;
        }
        let next_check = if page.has_unsaved { until.min(Instant::now() + UNSAVED_CHECK) } else { until };
        let changed = async {
            match &mut commits {
                Some(commits) => drop(commits.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(next_check) => {}
            () = api.app.drained() => return Ok(page),
        }
    }
}

async fn read(api: &ApiState, request: &LineRequest) -> Result<LinePage, Problem> {
    let LineRequest { key, job, after, limit } = request;
    let (key, job, after, limit) = (key.clone(), job.clone(), *after, *limit);
    api.read(move |app| {
        let reader = app.reader(&key).ok_or_else(|| missing(&key))?;
        // Read before the lines: a flow that has ended writes none after them.
        let has_unsaved = app.services.lines.unsaved.has(&key);
        let instance = reader.instance(&key)?.ok_or_else(|| missing(&key))?;
        let (first, _) = reader.job_log_range(&key)?;
        let found = reader.job_log(&key, after, limit)?;
        let hidden = hidden_values(app, &instance);
        let last = found.last().map_or(after, |line| line.number);
        let ended = found.is_empty() && instance.status.is_final() && !has_unsaved;
        let is_of = |tag: &str| job.as_ref().is_none_or(|job| tag == job || step_of(tag) == job);
        let items = found.into_iter().filter(|line| is_of(line.job.as_str())).map(|line| LineView {
            number: line.number,
            job: line.job.to_string(),
            at: line.line.at.to_string(),
            text: hidden.remove_from(&line.line.text),
        });
        Ok(LinePage { items: items.collect(), last, first, ended, has_unsaved })
    })
    .await
}

/// State of a stream of events.
struct Following {
    api: ApiState,
    request: LineRequest,
    ready: std::vec::IntoIter<LineView>,
    ended: bool,
    until: Instant,
    _permit: LongPollPermit,
}

fn events(
    api: ApiState,
    mut request: LineRequest,
    first: LinePage,
    permit: LongPollPermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    request.after = first.last;
    let until = Instant::now() + MAX_STREAM;
    let (ready, ended) = (first.items.into_iter(), first.ended);
    let state = Following { api, request, ready, ended, until, _permit: permit };
    futures::stream::unfold(Some(state), |state| async {
        let mut state = state?;
        loop {
            if let Some(line) = state.ready.next() {
                let event = Event::default().event("line").id(line.number.to_string());
                let event = event.json_data(&line).expect("a line is JSON");
                return Some((Ok(event), Some(state)));
            }
            if state.ended {
                return Some((Ok(Event::default().event("end").data("{}")), None));
            }
            let stops = state.until <= Instant::now() || !state.api.app.runtime.health().accepting;
            // The client connects again, and `Last-Event-ID` continues the stream.
            let page =
                if stops { None } else { next(&state.api, &mut state.request, state.until).await.ok() };
            let page = page?;
            state.ended = page.ended;
            state.ready = page.items.into_iter();
        }
    })
}
