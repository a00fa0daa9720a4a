//! `/`, `/openapi.json`, `/errors/{code}`: index, API description and error pages.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::context::{ApiState, OPENAPI_PATH};
use super::extract::LastSegment;
use super::problem::{Code, Problem, page};
use super::ui as web_page;

/// Index of the API.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Index {
    name: &'static str,
    version: &'static str,
    links: Vec<Link>,
}

/// Link to a route.
#[derive(Debug, Serialize, ToSchema)]
struct Link {
    href: &'static str,
    title: &'static str,
}

const LINKS: [(&str, &str); 8] = [
    (OPENAPI_PATH, "description of this API (OpenAPI 3.1)"),
    ("/info", "node information"),
    ("/health", "liveness"),
    ("/metrics", "metrics"),
    ("/v1/sagas", "saga instances"),
    ("/v1/definitions", "definitions"),
    ("/v1/timers", "timers by due time"),
    ("/v1/dead-letters", "dead letters"),
];

/// List the entry points of the API
///
/// Clients that accept `text/html`, such as browsers, receive the web UI.
#[utoipa::path(
    get,
    path = "/",
    tag = "node",
    responses((status = 200, description = "Links", body = Index))
)]
pub(crate) async fn index(headers: HeaderMap) -> Response {
    if web_page::prefers_html(&headers) {
        return web_page::index(&headers);
    }

    let links = LINKS.map(|(href, title)| Link { href, title }).into();
    let links = Index {
        name: "orlog",
        version: env!("CARGO_PKG_VERSION"),
        links,
    };

    (
        // One path has two representations, which caches must keep apart.
        [(header::VARY, HeaderValue::from_static("accept"))],
        Json(links),
    )
        .into_response()
}

/// Show this description
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(crate) async fn openapi(State(api): State<ApiState>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        api.shared.description.to_string(),
    )
        .into_response()
}

/// Show the page of an error code
#[utoipa::path(
    get,
    path = "/errors/{code}",
    tag = "node",
    params(("code" = String, Path, description = "For example OR0003")),
    responses((status = 200, description = "A page", body = String, content_type = "text/markdown"))
)]
pub(crate) async fn error_page(LastSegment(code): LastSegment) -> Result<Response, Problem> {
    let found = page(&code)
        .ok_or_else(|| Problem::new(Code::RouteNotFound, format!("unknown error code {code:?}")))?;
    Ok((
        [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")],
        found,
    )
        .into_response())
}
