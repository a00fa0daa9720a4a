//! `…/graph.svg`: pictures of definitions, and of where instances stand, for web pages.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use orlog_model::SagaName;
use orlog_simulator::graph::{self, Place};

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Key, Part, Tenant};
use super::problem::{Code, Problem};
use crate::app::App;

/// A picture shows what is so now, loads nothing and runs nothing.
const HEADERS: [(header::HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "image/svg+xml"),
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
];

/// Draw a definition
#[utoipa::path(
    get,
    path = "/v1/definitions/{saga}/graph.svg",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name")),
    responses((status = 200, description = "A picture of the definition for new instances", body = String, content_type = "image/svg+xml"))
)]
pub(super) async fn of_definition(
    State(api): State<Api>,
    _tenant: Tenant,
    Part(saga): Part,
) -> Result<Response, Problem> {
    let saga = SagaName::new(saga).map_err(|error| bad_parameter("saga", error.to_string()))?;
    let missing = || Problem::new(Code::NoDefinition, format!("there is no definition {saga} with steps"));
    let program = api.app.programs.newest(&saga).ok_or_else(missing)?;
    let compiled = program.compiled().ok_or_else(missing)?;
    Ok((HEADERS, graph::svg(compiled.definition(), None)).into_response())
}

/// Draw where an instance stands
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/graph.svg",
    tag = "sagas",
    params(
        ("saga" = String, Path, description = "The definition's name"),
        ("correlation" = String, Path, description = "The correlation id, percent-encoded")
    ),
    responses((status = 200, description = "A picture of its definition, its steps coloured by where they stand", body = String, content_type = "image/svg+xml"))
)]
pub(super) async fn of_instance(State(api): State<Api>, Key(key): Key) -> Result<Response, Problem> {
    let drawn = api.read(move |app: &App| {
        let missing = || Problem::new(Code::NoInstance, format!("there is no instance {key}"));
        let reader = app.runtime.reader(&key).ok_or_else(missing)?;
        let instance = reader.instance(&key)?.ok_or_else(missing)?;
        let program = app.programs.pinned(&instance.program.hash);
        let undrawn =
            || Problem::new(Code::NoDefinition, format!("the definition of {key} has no steps to draw"));
        let compiled = program.as_ref().and_then(|program| program.compiled()).ok_or_else(undrawn)?;
        let shown = program.as_ref().and_then(|program| program.show(&instance.state));
        Ok(graph::svg(compiled.definition(), shown.as_ref().map(Place::of).as_ref()))
    });
    Ok((HEADERS, drawn.await?).into_response())
}
