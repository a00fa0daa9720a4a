//! `/v1/definitions`: the programs in force, and the older ones that instances are pinned to.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use orlog_model::{Deployment, SagaName};
use orlog_program::Program;
use orlog_store::Pins;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Params, Part, Tenant};
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
    /// New instances use it; otherwise it is retired.
    in_force: bool,
    /// The name of its file; absent where it is part of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// When it was put in force, RFC 3339, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    deployed_at: Option<String>,
    /// Who put it in force, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    deployed_by: Option<String>,
    /// Since when it takes no new instances, RFC 3339, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at: Option<String>,
    /// Instances of all tenants that began with it and have not ended; only where `count` is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<u64>,
    /// The same, of those that have ended and are still stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    /// The events it takes.
    events: Vec<TakenEvent>,
    /// The effects it may ask for.
    effects: Vec<String>,
    /// The commands it may ask for.
    commands: Vec<String>,
    /// The sagas it may begin.
    sagas: Vec<String>,
    /// Its source text, where it has one; only where one definition is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The size of its WebAssembly module, where it is one; only where one definition is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    module_bytes: Option<usize>,
}

/// What to say of definitions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Count the instances of each. Looks at every instance.
    #[serde(default)]
    count: bool,
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

/// What definitions are described with.
struct Sight {
    deployment: Option<Arc<Deployment>>,
    in_force: BTreeSet<[u8; 16]>,
    pins: Option<Pins>,
}

impl Sight {
    fn of(app: &App, wanted: &Wanted) -> Result<Self, Problem> {
        let in_force = app.definitions.in_force();
        Ok(Self {
            deployment: app.definitions.deployment(),
            in_force: in_force.iter().map(|definition| definition.program.reference().hash).collect(),
            pins: wanted.count.then(|| app.pins(u64::MAX)).transpose()?,
        })
    }

    fn describe(&self, program: &dyn Program) -> Definition {
        let (reference, manifest) = (program.reference(), program.manifest());
        let in_force = self.in_force.contains(&reference.hash);
        let deployed = self.deployment.as_ref().and_then(|deployment| deployment.find(&reference.hash));
        let pinned = self.pins.as_ref().map(|pins| pins.of(&reference.hash));
        let events = manifest
            .triggers
            .iter()
            .map(|trigger| TakenEvent { kind: trigger.kind.to_string(), starts: trigger.starts && in_force });
        Definition {
            saga: reference.saga.to_string(),
            version: reference.version,
            hash: hex(&reference.hash),
            in_force,
            file: deployed.map(|deployed| deployed.file.clone()),
            deployed_at: deployed.map(|deployed| deployed.at.to_string()),
            deployed_by: deployed.map(|deployed| deployed.by.clone()),
            retired_at: deployed.and_then(|deployed| deployed.retired_at).map(|at| at.to_string()),
            live: pinned.map(|pinned| pinned.live),
            ended: pinned.map(|pinned| pinned.ended),
            events: events.collect(),
            effects: manifest.effects.iter().map(ToString::to_string).collect(),
            commands: manifest.commands.clone(),
            sagas: manifest.sagas.iter().map(ToString::to_string).collect(),
            source: None,
            module_bytes: None,
        }
    }
}

/// Which definitions there are
#[utoipa::path(
    get,
    path = "/v1/definitions",
    tag = "definitions",
    params(Wanted),
    responses((status = 200, description = "Those for new instances", body = Definitions))
)]
pub(super) async fn list(
    State(api): State<Api>,
    _tenant: Tenant,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Definitions>, Problem> {
    let list = move |app: &App| {
        let sight = Sight::of(app, &wanted)?;
        let in_force = app.definitions.in_force();
        let items = in_force.iter().map(|definition| sight.describe(definition.program.as_ref()));
        Ok(Definitions { items: items.collect() })
    };
    api.read(list).await.map(Json)
}

/// Show a definition, with its source and its older versions
#[utoipa::path(
    get,
    path = "/v1/definitions/{saga}",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name"), Wanted),
    responses((status = 200, description = "Its versions", body = Versions))
)]
pub(super) async fn show(
    State(api): State<Api>,
    _tenant: Tenant,
    Part(saga): Part,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Versions>, Problem> {
    let saga = SagaName::new(saga).map_err(|error| bad_parameter("saga", error.to_string()))?;
    api.read(move |app| versions(app, &saga, &wanted)).await.map(Json)
}

fn versions(app: &App, saga: &SagaName, wanted: &Wanted) -> Result<Versions, Problem> {
    let mut programs = app.programs.all();
    programs.retain(|program| program.reference().saga == *saga);
    if programs.is_empty() {
        return Err(Problem::new(Code::NoDefinition, format!("there is no definition {saga}")));
    }
    let sight = Sight::of(app, wanted)?;
    let mut versions = Vec::with_capacity(programs.len());
    for program in &programs {
        let (source, module_bytes) = source(app, &program.reference().hash)?;
        versions.push(Definition { source, module_bytes, ..sight.describe(program.as_ref()) });
    }
    versions.sort_by_key(|version| (!version.in_force, std::cmp::Reverse(version.version)));
    Ok(Versions { saga: saga.to_string(), versions })
}

/// The source as text, or the size of what is none.
fn source(app: &App, hash: &[u8; 16]) -> Result<(Option<String>, Option<usize>), Problem> {
    for reader in app.runtime.readers() {
        if let Some((_, source)) = reader.definition(hash)? {
            let is_module = orlog_program::is_wasm(&source);
            return Ok(if is_module {
                (None, Some(source.len()))
            } else {
                (String::from_utf8(source).ok(), None)
            });
        }
    }
    Ok((None, None))
}
