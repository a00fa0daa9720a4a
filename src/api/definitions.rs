//! `/v1/definitions`: the programs in force, and the older ones that instances are pinned to.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use orlog_model::SagaName;
use orlog_program::Program;
use serde::Serialize;
use utoipa::ToSchema;

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Part, Tenant};
use super::problem::{Code, Problem};
use super::sagas::hex;
use crate::app::App;

/// All definitions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Definitions {
    items: Vec<Definition>,
}

/// The versions of one definition, the one for new instances first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Versions {
    saga: String,
    versions: Vec<Definition>,
}

/// A definition.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Definition {
    saga: String,
    /// The author's number for it.
    version: u32,
    /// Its identity, in hexadecimal.
    hash: String,
    /// New instances use it.
    newest: bool,
    /// The events it takes.
    events: Vec<TakenEvent>,
    /// The effects it may ask for.
    effects: Vec<String>,
    /// Its source text, where it has one; only where one definition is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// An event that a definition takes.
#[derive(Debug, Serialize, ToSchema)]
struct TakenEvent {
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// It begins an instance where there is none.
    starts: bool,
}

impl Definition {
    fn of(program: &dyn Program, newest: bool) -> Self {
        let (reference, manifest) = (program.reference(), program.manifest());
        let events = manifest
            .triggers
            .iter()
            .map(|trigger| TakenEvent { kind: trigger.kind.to_string(), starts: trigger.starts });
        Self {
            saga: reference.saga.to_string(),
            version: reference.version,
            hash: hex(&reference.hash),
            newest,
            events: events.collect(),
            effects: manifest.effects.iter().map(ToString::to_string).collect(),
            source: None,
        }
    }
}

/// Which definitions there are
#[utoipa::path(
    get,
    path = "/v1/definitions",
    tag = "definitions",
    responses((status = 200, description = "Those for new instances", body = Definitions))
)]
pub(super) async fn list(State(api): State<Api>, _tenant: Tenant) -> Json<Definitions> {
    let newest = api.app.programs.all_newest();
    Json(Definitions { items: newest.iter().map(|program| Definition::of(program.as_ref(), true)).collect() })
}

/// Show a definition, with its source and its older versions
#[utoipa::path(
    get,
    path = "/v1/definitions/{saga}",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name")),
    responses((status = 200, description = "Its versions", body = Versions))
)]
pub(super) async fn show(
    State(api): State<Api>,
    _tenant: Tenant,
    Part(saga): Part,
) -> Result<Json<Versions>, Problem> {
    let saga = SagaName::new(saga).map_err(|error| bad_parameter("saga", error.to_string()))?;
    api.read(move |app| versions(app, &saga)).await.map(Json)
}

fn versions(app: &App, saga: &SagaName) -> Result<Versions, Problem> {
    let missing = || Problem::new(Code::NoDefinition, format!("there is no definition {saga}"));
    let newest = app.programs.newest(saga);
    let is_newest = |program: &Arc<dyn Program>| {
        newest.as_ref().is_some_and(|newest| newest.reference().hash == program.reference().hash)
    };
    let mut programs = app.programs.all();
    programs.retain(|program| program.reference().saga == *saga);
    programs.sort_by_key(|program| (!is_newest(program), std::cmp::Reverse(program.reference().version)));
    let mut versions = Vec::with_capacity(programs.len());
    for program in &programs {
        let source = source(app, &program.reference().hash)?;
        versions.push(Definition { source, ..Definition::of(program.as_ref(), is_newest(program)) });
    }
    if versions.is_empty() { Err(missing()) } else { Ok(Versions { saga: saga.to_string(), versions }) }
}

fn source(app: &App, hash: &[u8; 16]) -> Result<Option<String>, Problem> {
    for reader in app.runtime.readers() {
        if let Some((_, source)) = reader.definition(hash)? {
            // A WebAssembly module is no text.
            return Ok(String::from_utf8(source).ok());
        }
    }
    Ok(None)
}
