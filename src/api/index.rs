//! `/`, `/openapi.json`, `/errors/{code}`: the way in, and the pages about errors.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::context::{Api, OPENAPI_PATH};
use super::extract::Part;
use super::problem::{Code, Problem, page};
use super::ui as web_page;

/// Where to go from here.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Index {
    name: &'static str,
    version: &'static str,
    links: Vec<Link>,
}

/// A place to go.
#[derive(Debug, Serialize, ToSchema)]
struct Link {
    href: &'static str,
    title: &'static str,
}

const LINKS: [(&str, &str); 8] = [
    (OPENAPI_PATH, "the description of this API (OpenAPI 3.1)"),
    ("/info", "what this node is"),
    ("/health", "whether it lives"),
    ("/metrics", "metrics"),
    ("/v1/sagas", "saga instances"),
    ("/v1/definitions", "definitions"),
    ("/v1/timers", "what falls due next"),
    ("/v1/dead-letters", "what could not be applied"),
];

/// Where to go from here
///
/// Whoever accepts `text/html`, as browsers do, gets the web page.
#[utoipa::path(get, path = "/", tag = "node", responses((status = 200, description = "Links", body = Index)))]
pub(super) async fn index(headers: HeaderMap) -> Response {
    if web_page::is_wanted(&headers) {
        return web_page::index(&headers);
    }
    let links = LINKS.map(|(href, title)| Link { href, title }).into();
    let links = Index { name: "orlog", version: env!("CARGO_PKG_VERSION"), links };
    ([(header::VARY, HeaderValue::from_static("accept"))], Json(links)).into_response()
}

/// This description
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(super) async fn openapi(State(api): State<Api>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], api.description.to_string()).into_response()
}

/// What an error code means and what to do
#[utoipa::path(
    get,
    path = "/errors/{code}",
    tag = "node",
    params(("code" = String, Path, description = "For example OR0003")),
    responses((status = 200, description = "A page", body = String, content_type = "text/markdown"))
)]
pub(super) async fn error_page(Part(code): Part) -> Result<Response, Problem> {
    let found =
        page(&code).ok_or_else(|| Problem::new(Code::NoRoute, format!("there is no error code {code:?}")))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], found).into_response())
}
