//! `GET /v1/flows/{id}/lines`: lines that the jobs of a flow wrote, as a page or as server-sent
//! events.

mod follow;
mod page;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

pub(crate) use self::page::LinePage;
use self::page::{LineRequest, next};
use super::{Flow, FlowPath};
use crate::resources::sagas::resource;
use crate::resources::sagas::result::wait;
use crate::server::admission::{AccessWatch, Admission};
use crate::server::extract::{PathParams, QueryParams, Tenant, accepts_events, page_limits};
use crate::server::parts::access::Access;
use crate::server::parts::instances::Instances;
use crate::server::problem::Problem;

/// Options of a request for lines.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LinesQuery {
    /// Job whose lines are returned. Default: all.
    job: Option<String>,
    /// Number after which lines are returned. Default: 0. The header `Last-Event-ID` precedes it.
    after: Option<u64>,
    /// Approximate maximum number of lines. Default: 100.
    limit: Option<usize>,
    /// Maximum wait for a line, for example `30s`; at most `60s`. Default: no wait.
    #[param(format = "duration")]
    wait: Option<String>,
}

/// Show the lines that the jobs of a flow wrote
///
/// With `Accept: text/event-stream`, the response is a stream of events `line`, and of one event
/// `end` after the last line of an ended flow. `Last-Event-ID` continues it. Every pod serves the
/// stream, also while the shard of the flow moves.
#[utoipa::path(
    get,
    path = "/v1/flows/{id}/lines",
    tag = "flows",
    params(FlowPath, LinesQuery),
    responses((status = 200, description = "Lines", body = LinePage))
)]
pub(crate) async fn lines(
    instances: Instances,
    State(access): State<Access>,
    admission: Option<Extension<Admission>>,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<FlowPath>,
    QueryParams(query): QueryParams<LinesQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wait = wait(query.wait.as_deref())?.unwrap_or_default();
    let mut request = LineRequest {
        key: resource::key::<Flow>(tenant, &path.id)?,
        job: query.job,
        after: first_after(query.after, &headers),
        limits: page_limits(query.limit, &instances.request),
    };
    if accepts_events(&headers) {
        // A stream counts as a request that waits until it ends, with or without new lines.
        let permit = instances.request.begin_long_poll()?;
        let admission = admission.map(|Extension(admission)| admission);
        let watch = AccessWatch::new(access, admission);
        return Ok(follow::stream(instances, request, headers, permit, watch).await);
    }

    // A page without a wait is an ordinary read, and needs no place among the requests that wait.
    let _permits = if wait.is_zero() {
        None
    } else {
        Some(instances.request.begin_wait()?)
    };
    let page = next(&instances, &mut request, Instant::now() + wait).await?;
    Ok(Json(page).into_response())
}

/// Returns the number after which the lines of a request begin.
fn first_after(stated: Option<u64>, headers: &HeaderMap) -> u64 {
    // A browser that reconnects an event source sends the number of the last line that it received.
    // First the header: the browser repeats the parameters of its first request, so that `after`
    // would repeat the lines that it has received since.
    let last_event = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    last_event.or(stated).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn reconnected_event_source_continues_after_the_last_line_that_it_received() {
        let mut headers = HeaderMap::new();
        assert_eq!(first_after(None, &headers), 0);
        assert_eq!(first_after(Some(3), &headers), 3);
        headers.insert("last-event-id", HeaderValue::from_static("7"));
        assert_eq!(first_after(Some(3), &headers), 7);
        assert_eq!(first_after(None, &headers), 7);
        headers.insert("last-event-id", HeaderValue::from_static("none"));
        assert_eq!(first_after(Some(3), &headers), 3);
    }
}
