//! `…/graph.svg`: graphs of definitions and of instance states, for the web UI.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use orlog_model::SagaName;
use orlog_simulator::graph::{self, InstanceOverlay};

use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{InstanceParams, InstancePath, LastSegment, Tenant};
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem};

/// Headers of a graph: it is not cached, loads no resources and runs no scripts.
const HEADERS: [(header::HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "image/svg+xml"),
    (header::CACHE_CONTROL, "no-cache"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    ),
];

/// Render a definition
#[utoipa::path(
    get,
    path = "/v1/definitions/{saga}/graph.svg",
    operation_id = "graph",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name")),
    responses((
        status = 200,
        description = "Graph of the active definition",
        body = String,
        content_type = "image/svg+xml"
    ))
)]
pub(crate) async fn of_definition(
    State(definitions): State<Definitions>,
    Tenant(tenant): Tenant,
    LastSegment(saga): LastSegment,
) -> Result<Response, Problem> {
    let saga = SagaName::new(saga).map_err(|error| invalid_parameter("saga", error.to_string()))?;
    let missing = || {
        Problem::new(
            Code::DefinitionNotFound,
            format!("no definition of saga {saga} with steps"),
        )
    };
    let program = definitions
        .programs()
        .active(&tenant, &saga)
        .ok_or_else(missing)?;
    let drawing = program.drawing().ok_or_else(missing)?;

    Ok((HEADERS, graph::svg(drawing, None)).into_response())
}

/// Render the state of an instance
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/graph.svg",
    operation_id = "graph",
    tag = "sagas",
    params(InstanceParams),
    responses((
        status = 200,
        description = "Graph of its definition, with steps colored by state",
        body = String,
        content_type = "image/svg+xml"
    ))
)]
pub(crate) async fn of_instance(
    api: RequestContext,
    InstancePath(key): InstancePath,
) -> Result<Response, Problem> {
    let drawn = api.read(move |scope| {
        let missing = || Problem::new(Code::InstanceNotFound, format!("no instance {key}"));
        let reader = scope.reader(&key).ok_or_else(missing)?;
        let instance = reader.instance(&key)?.ok_or_else(missing)?;
        // The definition to which the instance is pinned, also if it is retired.
        let program = scope.programs().by_hash(&instance.definition.hash);
        let undrawn = || {
            Problem::new(
                Code::DefinitionNotFound,
                format!("the definition of {key} has no steps to render"),
            )
        };

        let drawing = program
            .as_ref()
            .and_then(|program| program.drawing())
            .ok_or_else(undrawn)?;
        // A state that the program cannot read draws the graph without states, as of a definition.
        let view = program
            .as_ref()
            .and_then(|program| program.view_state(&instance.state));

        Ok(graph::svg(
            drawing,
            view.as_ref().map(InstanceOverlay::of).as_ref(),
        ))
    });
    Ok((HEADERS, drawn.await?).into_response())
}
