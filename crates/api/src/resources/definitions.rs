//! `/v1/definitions`: active definitions, and older ones with pinned instances.

pub(crate) mod contexts;
pub(crate) mod deploy;
mod distribute;
pub(crate) mod graphs;
pub(crate) mod migrate;

use std::sync::Arc;

use orlog_actors::OwnedProgram;
use orlog_model::{Deployment, EventType, SagaName, TenantId};
use orlog_program::Program;
use orlog_store::PinCounts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, NodeAccess, QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder, PageLimits};
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::definitions::LoadedDefinition;
use orlog_node::definitions::change::pins;
use orlog_node::definitions::sample;

/// All definitions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DefinitionList {
    items: Vec<DefinitionView>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
    /// Whether all instances of the tenant are counted; otherwise the counts are lower bounds. Only
    /// with `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    count_complete: Option<bool>,
}

/// Versions of one definition, the active one first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DefinitionVersions {
    saga: String,
    versions: Vec<DefinitionView>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
    /// Whether all instances of the tenant are counted; otherwise the counts are lower bounds. Only
    /// with `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    count_complete: Option<bool>,
}

/// Definition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DefinitionView {
    saga: String,
    /// Context that owns it; absent if all tenants share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// Version number set by the author.
    version: u32,
    /// Hash of the definition, in hexadecimal.
    hash: String,
    /// Active: new instances of the tenant use it; otherwise it is retired, or the context has
    /// another one.
    active: bool,
    /// Name of its file; absent for a built-in program, and for a shared definition if the caller
    /// has no access to all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Time of the activation, RFC 3339, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    deployed_at: Option<String>,
    /// User who activated it, if known; of a shared definition only if the caller has access to all
    /// tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    deployed_by: Option<String>,
    /// Time of the retirement, RFC 3339, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    retired_at: Option<String>,
    /// Number of live instances of the tenant that started with it; only with `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<u64>,
    /// Number of ended instances of the tenant that are still stored; only with `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    /// Events that it consumes.
    events: Vec<EventSubscriptionView>,
    /// Effects that it may request.
    effects: Vec<String>,
    /// Commands that it may send.
    commands: Vec<String>,
    /// Child sagas that it may start.
    sagas: Vec<String>,
    /// Source text, if it has one; only in the response for one definition, and of a shared one
    /// only if the caller has access to all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Size of its WebAssembly module in bytes, if it is one; only in the response for one
    /// definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    module_bytes: Option<usize>,
}

/// Options of the definition list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DefinitionQuery {
    /// Count the instances of the tenant for each definition; scans at most `http.scan_limit` of
    /// each shard.
    #[serde(default)]
    count: bool,
    /// Maximum number of definitions. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Event that a definition consumes.
#[derive(Debug, Serialize, ToSchema)]
struct EventSubscriptionView {
    /// Event type.
    #[serde(rename = "type")]
    kind: String,
    /// Start event: it starts an instance if none exists.
    starts: bool,
    /// Example of its data: each field that the definition reads from the start event. Only for a
    /// start event of an active YAML definition, and only in the response for one definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<StartExample>,
}

/// Example of the data of a start event.
#[derive(Debug, Serialize, ToSchema)]
struct StartExample {
    /// Newest schema version that the definition accepts.
    dataversion: u32,
    /// Data. The values are placeholders.
    data: Value,
}

/// Context of the definition views.
struct DefinitionContext {
    /// Deployments of the shared definitions and of the context of the tenant.
    shared: Option<Arc<Deployment>>,
    own: Option<Arc<Deployment>>,
    /// Definitions that new instances of the tenant use.
    active: Vec<LoadedDefinition>,
    pins: Option<PinCounts>,
    /// The caller has access to all tenants: shared definitions belong to the node.
    sees_node: bool,
}

impl DefinitionContext {
    fn of(
        scope: &ReadScope,
        tenant: &TenantId,
        query: &DefinitionQuery,
        sees_node: bool,
    ) -> Result<Self, Problem> {
        Ok(Self {
            shared: scope.definitions().deployment(),
            own: scope.definitions().of(Some(tenant)).deployment,
            active: scope.definitions().usable(tenant),
            // A count reads all instances of the tenant, so that it happens on request only.
            pins: query
                .count
                .then(|| pins(scope.readers(), Some(tenant)))
                .transpose()?,
            sees_node,
        })
    }

    fn count_complete(&self) -> Option<bool> {
        self.pins.as_ref().map(|pins| pins.complete)
    }

    /// Returns whether the caller may see the source, the file and the user of a definition.
    fn sees(&self, context: Option<&TenantId>) -> bool {
        self.sees_node || context.is_some()
    }

    /// Returns the active definition of an owner with this hash.
    fn active(&self, context: Option<&TenantId>, hash: &[u8; 16]) -> Option<&LoadedDefinition> {
        // Two owners can deploy the same text, so that the hash alone does not identify a
        // definition.
        let of_owner = self
            .active
            .iter()
            .filter(|active| active.context.as_ref() == context);
        of_owner
            .into_iter()
            .find(|active| active.program.definition_ref().hash == *hash)
    }

    fn describe(&self, context: Option<&TenantId>, program: &dyn Program) -> DefinitionView {
        let reference = program.definition_ref();
        let manifest = program.manifest();
        let active = self.active(context, &reference.hash).is_some();
        let deployment = if context.is_some() {
            &self.own
        } else {
            &self.shared
        };
        let deployed = deployment
            .as_ref()
            .and_then(|deployment| deployment.find(&reference.hash));

        // The file and the user of a shared definition belong to the node, not to the tenant.
        let visible = deployed.filter(|_| self.sees(context));
        let pinned = self.pins.as_ref().map(|pins| pins.of(&reference.hash));
        // A retired definition starts no instances, whatever its text says.
        let events = manifest
            .subscriptions
            .iter()
            .map(|trigger| EventSubscriptionView {
                kind: trigger.kind.to_string(),
                starts: trigger.starts && active,
                example: None,
            });

        DefinitionView {
            saga: reference.saga.to_string(),
            context: context.map(ToString::to_string),
            version: reference.version,
            hash: hex::encode(reference.hash),
            active,
            file: visible.map(|deployed| deployed.file.clone()),
            deployed_at: deployed.map(|deployed| deployed.at.to_string()),
            deployed_by: visible.map(|deployed| deployed.deployed_by.clone()),
            retired_at: deployed
                .and_then(|deployed| deployed.retired_at)
                .map(|at| at.to_string()),
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

/// List definitions
///
/// Ordered by saga.
#[utoipa::path(
    get,
    path = "/v1/definitions",
    tag = "definitions",
    params(DefinitionQuery),
    responses((status = 200, description = "Active definitions", body = DefinitionList))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    NodeAccess(sees_node): NodeAccess,
    QueryParams(query): QueryParams<DefinitionQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(query.limit, &api);
    api.read_json(move |scope| {
        let context = DefinitionContext::of(scope, &tenant, &query, sees_node)?;
        let mut active: Vec<_> = context.active.iter().collect();
        active.sort_by_key(|definition| definition.saga());

        let mut page = PageBuilder::new(limits);
        for definition in active {
            let saga = definition.saga().as_str();
            // The cursor is a name, not a position: a deployment between two pages neither repeats
            // nor skips a definition.
            if query.cursor.as_deref().is_some_and(|after| saga <= after) {
                continue;
            }
            let view = context.describe(definition.context.as_ref(), definition.program.as_ref());
            if !page.push(view, saga.to_owned()) {
                break;
            }
        }

        let page = page.finish(None);
        Ok(DefinitionList {
            items: page.entries,
            next_cursor: page.next,
            count_complete: context.count_complete(),
        })
    })
    .await
}

/// Show a definition with its source and its older versions
#[utoipa::path(
    get,
    path = "/v1/definitions/{saga}",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name"), DefinitionQuery),
    responses((status = 200, description = "Its versions", body = DefinitionVersions))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    NodeAccess(sees_node): NodeAccess,
    LastSegment(saga): LastSegment,
    QueryParams(query): QueryParams<DefinitionQuery>,
) -> Result<EncodedJson, Problem> {
    let saga = SagaName::new(saga).map_err(|error| invalid_parameter("saga", error.to_string()))?;
    let limits = page_limits(query.limit, &api);
    api.read_json(move |scope| versions(scope, &tenant, &saga, &query, limits, sees_node))
        .await
}

fn versions(
    scope: &ReadScope,
    tenant: &TenantId,
    saga: &SagaName,
    query: &DefinitionQuery,
    limits: PageLimits,
    sees_node: bool,
) -> Result<DefinitionVersions, Problem> {
    let mut programs = scope.programs().all();
    // The built-in sagas are not definitions: they are neither deployed nor migrated.
    let is_definition = !orlog_program::is_built_in(saga.as_str());
    programs.retain(|owned| {
        is_definition && owned.is_usable_by(tenant) && owned.program.definition_ref().saga == *saga
    });
    // A definition of another context has the same response as a missing one.
    if programs.is_empty() {
        return Err(Problem::new(
            Code::DefinitionNotFound,
            format!("no definition of saga {saga}"),
        ));
    }

    let context = DefinitionContext::of(scope, tenant, query, sees_node)?;
    programs.sort_by_key(|owned| {
        let reference = owned.program.definition_ref();
        let active = context.active(owned.context.as_ref(), &reference.hash);
        (active.is_none(), std::cmp::Reverse(reference.version))
    });

    let mut page = PageBuilder::new(limits);
    let mut skips = query.cursor.as_deref();
    for owned in &programs {
        let cursor = version_cursor(owned);
        // The list has no order that a cursor could be compared with, so that it resumes behind the
        // exact version.
        if let Some(last) = skips {
            skips = (last != cursor).then_some(last);
            continue;
        }

        // A source is read only for the page: it can have 1 MiB.
        if !page.push(version(scope, &context, owned)?, cursor) {
            break;
        }
    }

    // An empty page would look like the end of the list.
    if skips.is_some() {
        let detail = "the definition of the cursor is no longer loaded; start without a cursor";
        return Err(invalid_parameter("cursor", detail));
    }

    let page = page.finish(None);
    Ok(DefinitionVersions {
        saga: saga.to_string(),
        versions: page.entries,
        next_cursor: page.next,
        count_complete: context.count_complete(),
    })
}

/// Returns the cursor after a version. The context and the shared definitions can have the same
/// one.
fn version_cursor(owned: &OwnedProgram) -> String {
    let hash = hex::encode(owned.program.definition_ref().hash);
    let kind = owned.context.as_ref().map_or("shared", |_| "own");
    format!("{kind}.{hash}")
}

fn version(
    scope: &ReadScope,
    context: &DefinitionContext,
    owned: &OwnedProgram,
) -> Result<DefinitionView, Problem> {
    let of_context = owned.context.as_ref();
    let hash = &owned.program.definition_ref().hash;
    let mut version = context.describe(of_context, owned.program.as_ref());
    // The source of a shared definition is data of the node, as are its file and its user.
    if context.sees(of_context) {
        (version.source, version.module_bytes) = source(scope, hash)?;
    }

    if let Some(active) = context.active(of_context, hash) {
        add_examples(active, &mut version.events);
    }
    Ok(version)
}

/// Adds an example to each start event of an active YAML definition.
fn add_examples(active: &LoadedDefinition, events: &mut [EventSubscriptionView]) {
    let Some(compiled) = &active.compiled else {
        return;
    };
    for event in events.iter_mut().filter(|event| event.starts) {
        let kind = EventType::new(event.kind.as_str()).expect("the manifest has valid event types");
        let (dataversion, data) = sample::start_data(compiled, &kind);
        event.example = Some(StartExample { dataversion, data });
    }
}

/// Returns the source as text, or the size of a binary module.
fn source(scope: &ReadScope, hash: &[u8; 16]) -> Result<(Option<String>, Option<usize>), Problem> {
    // Rows of sources are addressed by their hash, so that the first row found is the text of every
    // owner.
    for reader in scope.readers() {
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
