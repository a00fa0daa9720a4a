//! `/v1/contexts`: the lists of members of each context.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::ETAG;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use orlog_model::TenantId;
use orlog_store::InstanceQuery;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{ChangeView, change_views, expected_revision, invalid_body};
use crate::server::body::{JsonBody, ObjectOf};
use crate::server::context::RequestContext;
use crate::server::extract::{QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::access::Access;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem};
use orlog_node::access::{Context, Directory, Member, Stored};
use orlog_node::auth::{Caller, Right};

/// Maximum number of members of a list.
const MAX_MEMBERS: usize = 256;

/// Context of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextView {
    tenant: String,
    /// Members with all rights in the context.
    admins: Vec<String>,
    /// Members who read it.
    readers: Vec<String>,
    /// Members who execute its jobs.
    executors: Vec<String>,
    /// Whether events and signals must be signed by a member who may publish.
    require_signed_events: bool,
    /// Revision for `if-match`; also in `ETag`.
    revision: u64,
    #[schema(format = "date-time")]
    created_at: String,
    /// The last changes, newest first.
    changes: Vec<ChangeView>,
}

/// Page of contexts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextPage {
    items: Vec<ContextView>,
    next_cursor: Option<String>,
}

/// Lists of a context. Each entry is `actor:<id>`, `context:<context>@<node>`, `group:<name>` or
/// `user:<name>`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextBody {
    /// Members with all rights in the context; at least one.
    #[schema(value_type = Vec<String>)]
    admins: BTreeSet<Member>,
    /// Members who read it.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    readers: BTreeSet<Member>,
    /// Members who execute its jobs.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    executors: BTreeSet<Member>,
    /// Whether events and signals must be signed by a member who may publish. Default: unchanged;
    /// `false` for a new context.
    require_signed_events: Option<bool>,
}

/// Page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Maximum number of entries. Default: 100.
    pub(crate) limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    pub(crate) cursor: Option<String>,
}

/// List contexts
///
/// Contexts that the caller may read, ordered by tenant.
#[utoipa::path(
    get,
    path = "/v1/contexts",
    operation_id = "list",
    tag = "contexts",
    params(ListQuery),
    responses((status = 200, description = "A page", body = ContextPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    let start = match query.cursor.map(TenantId::new) {
        None => Bound::Unbounded,
        Some(Ok(after)) => Bound::Excluded(after),
        Some(Err(error)) => {
            return Err(Problem::new(Code::BadParameter, format!("cursor: {error}")));
        }
    };
    let limits = page_limits(query.limit, &api);

    api.read_json(move |_| {
        let directory = access.registry().directory();
        let mut page = PageBuilder::new(limits);
        for (tenant, stored) in directory.contexts.range((start, Bound::Unbounded)) {
            // `enter` restricts a caller to one context, so that each context needs a copy of the
            // original caller.
            let mut member = caller.clone();
            access.registry().enter(&mut member, tenant)?;
            // A context without a role for the caller is omitted, as if it did not exist.
            if !member.tenants.contains(tenant) || !member.roles.allow(Right::Read) {
                continue;
            }

            // A record that this release cannot read has no members, and no view.
            if let Some(view) = view(tenant, stored)
                && !page.push(view, tenant.to_string())
            {
                break;
            }
        }

        let page = page.finish(None);
        Ok(ContextPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

/// Show a context
#[utoipa::path(
    get,
    path = "/v1/contexts/{tenant}",
    operation_id = "show",
    tag = "contexts",
    params(("tenant" = String, Path, description = "Tenant, percent-encoded")),
    responses((status = 200, description = "The context", body = ContextView))
)]
pub(crate) async fn show(
    State(access): State<Access>,
    Tenant(tenant): Tenant,
) -> Result<Response, Problem> {
    let directory = access.registry().directory();
    let found = directory
        .contexts
        .get(&tenant)
        .and_then(|stored| view(&tenant, stored));
    found.map(tagged).ok_or_else(|| not_found(&tenant))
}

/// Create or replace a context
///
/// Creates the context of a tenant without one. To replace the lists of an existing context, state
/// its revision in `if-match`. Equal lists change nothing.
#[utoipa::path(
    put,
    path = "/v1/contexts/{tenant}",
    operation_id = "put",
    tag = "contexts",
    params(
        ("tenant" = String, Path, description = "Tenant, percent-encoded"),
        ("if-match" = Option<String>, Header, description = "Revision of the context to replace")
    ),
    request_body = ContextBody,
    responses((status = 200, description = "Durable", body = ContextView))
)]
pub(crate) async fn put(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<ContextBody>>,
) -> Result<Response, Problem> {
    let directory = access.registry().directory();
    let stored = directory.contexts.get(&tenant);
    // Revision 0 means that there is no record: the write fails if another request creates one
    // meanwhile.
    let found = stored.map_or(0, |stored| stored.revision);
    let known = stored.and_then(|stored| stored.value.as_ref());
    check(&body, &directory, known)?;

    let expected = expected_revision(&headers)?;
    let now = access.now();
    let mut context = known.cloned().unwrap_or_else(|| Context::new(now));
    let required = body
        .require_signed_events
        .unwrap_or(context.require_signed_events);
    let is_required = context.set_require_signed_events(required, now, caller.name.clone());
    // Checked only when the requirement is switched on: changes of the lists stay possible without
    // signing keys.
    if is_required && required {
        check_signing(&access)?;
    }

    // `replace` comes first, because `||` must not skip it when only the requirement has changed.
    let is_change = context.replace(
        [body.admins, body.readers, body.executors],
        now,
        caller.name,
    ) || is_required;
    // Precedes the comparison of revisions: a repeated request succeeds, because its result is
    // stored already.
    let stored = if !is_change && known.is_some() {
        Arc::new(Stored {
            revision: found,
            value: Some(context),
        })
    } else if expected.unwrap_or(0) == found {
        // Without `if-match` only a new context is written, so that no request overwrites lists
        // that it has not read.
        access.registry().put(&tenant, Some(context), found).await?
    } else {
        return Err(mismatch(&tenant, expected, found));
    };

    view(&tenant, &stored)
        .map(tagged)
        .ok_or_else(|| not_found(&tenant))
}

/// Delete a context
///
/// The tenant must have no instances, no dead letters and no active definitions of its own. Then
/// the roles of tokens decide about it again.
#[utoipa::path(
    delete,
    path = "/v1/contexts/{tenant}",
    operation_id = "delete",
    tag = "contexts",
    params(
        ("tenant" = String, Path, description = "Tenant, percent-encoded"),
        ("if-match" = Option<String>, Header, description = "Revision of the context")
    ),
    responses((status = 204, description = "Durable"))
)]
pub(crate) async fn delete(
    api: RequestContext,
    State(access): State<Access>,
    State(definitions): State<Definitions>,
    cluster: Cluster,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let found = access
        .registry()
        .directory()
        .contexts
        .get(&tenant)
        .map(|stored| stored.revision);
    let found = found.ok_or_else(|| not_found(&tenant))?;
    let expected = expected_revision(&headers)?;
    if expected.is_some_and(|expected| expected != found) {
        return Err(mismatch(&tenant, expected, found));
    }
    // The search for instances reads local stores only; a missing shard would hide instances.
    if !cluster.has_all_shards_of(&tenant) {
        let detail = "the shards of the tenant are on other pods or moving, so that this pod \
                      cannot look for its instances; try again on a pod that owns all of them";
        return Err(Problem::new(Code::Unavailable, detail));
    }

    // Without the record, the definitions would stay active, and a deployment of files would be
    // rejected.
    let owned = definitions.active().of(Some(&tenant));
    if owned
        .deployment
        .is_some_and(|deployment| deployment.active().next().is_some())
    {
        let detail = format!(
            "the context {tenant:?} has definitions, which would stay active for the tenant; \
             retire them first: deploy no files to it (orlog deploy --context {tenant} --none)"
        );
        return Err(Problem::new(Code::ContextNotEmpty, detail));
    }
    // After the deletion the roles of tokens decide, so that stored data would be open to callers
    // outside of the lists.
    if let Some(rest) = rest(&api, &tenant).await? {
        let detail = format!(
            "the tenant {tenant:?} has {rest}, which other callers could read without the context"
        );
        return Err(Problem::new(Code::ContextNotEmpty, detail));
    }

    access
        .registry()
        // With the revision of the checks above: a change of the record in between rejects the
        // deletion.
        .put::<Context>(&tenant, None, found)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks that the events of nodes are known by their signature, if others can publish to the bus.
fn check_signing(access: &Access) -> Result<(), Problem> {
    if access.can_require_signed_events() {
        return Ok(());
    }

    let reason = "the nodes do not sign their own messages, so that facts and child sagas could \
                  not be distinguished from forged ones; set nats.signing.keys on all nodes, with \
                  nats.signing.required = true";
    Err(invalid_body("/require_signed_events", reason))
}

/// Returns what the tenant still has, and the remedy; `None` if it has neither instances nor dead
/// letters.
async fn rest(api: &RequestContext, tenant: &TenantId) -> Result<Option<&'static str>, Problem> {
    let tenant = tenant.clone();
    // One instance is enough for a rejection, so that the read does not scan the tenant.
    let query = InstanceQuery {
        tenant,
        limit: 1,
        scan_limit: 1,
        ..InstanceQuery::default()
    };
    let found = api.read(move |scope| {
        for reader in scope.readers() {
            if !reader.instances(&query)?.items.is_empty() {
                return Ok(Some(
                    "instances (end them, and wait until retention purges them)",
                ));
            }
            // Dead letters contain payloads, and a redrive would create instances after the
            // deletion.
            if !reader.dead_letters(&query.tenant, None, 1)?.is_empty() {
                return Ok(Some("dead letters (redrive or discard them)"));
            }
        }
        Ok(None)
    });

    found.await
}

/// Checks the lists. Actors that the context contains already need not exist.
fn check(
    body: &ContextBody,
    directory: &Directory,
    known: Option<&Context>,
) -> Result<(), Problem> {
    if body.admins.is_empty() {
        return Err(invalid_body("/admins", "a context has at least one admin"));
    }

    let is_known = |member| {
        known.is_some_and(|known| known.lists().iter().any(|(.., list)| list.contains(member)))
    };
    for (name, list) in [
        ("admins", &body.admins),
        ("readers", &body.readers),
        ("executors", &body.executors),
    ] {
        // Every pod holds the lists of all contexts in memory and searches them for each request.
        if list.len() > MAX_MEMBERS {
            return Err(invalid_body(
                &format!("/{name}"),
                format!("at most {MAX_MEMBERS} members; use a group"),
            ));
        }
        for member in list {
            // Groups, users and contexts of other nodes have no record here that could be missing.
            let Member::Actor(id) = member else { continue };
            if !directory.actors.contains_key(id) && !is_known(member) {
                let reason =
                    format!("no actor {id:?}; create it with POST /v1/actors, or invite it");
                return Err(invalid_body(&format!("/{name}"), reason));
            }
        }
    }

    Ok(())
}

fn view(tenant: &TenantId, stored: &Stored<Context>) -> Option<ContextView> {
    let context = stored.value.as_ref()?;
    let names = |list: &BTreeSet<Member>| list.iter().map(ToString::to_string).collect();
    Some(ContextView {
        tenant: tenant.to_string(),
        admins: names(&context.admins),
        readers: names(&context.readers),
        executors: names(&context.executors),
        require_signed_events: context.require_signed_events,
        revision: stored.revision,
        created_at: context.created_at.to_string(),
        changes: change_views(&context.changes),
    })
}

fn tagged(view: ContextView) -> Response {
    ([(ETAG, format!("\"{}\"", view.revision))], Json(view)).into_response()
}

fn not_found(tenant: &TenantId) -> Problem {
    Problem::new(
        Code::ContextNotFound,
        format!("the tenant {tenant:?} has no context; the roles of tokens decide"),
    )
}

fn mismatch(tenant: &TenantId, expected: Option<u64>, found: u64) -> Problem {
    let detail = match (expected, found) {
        (None, found) => {
            format!("the context {tenant:?} exists; send if-match: \"{found}\" to replace it")
        }
        (Some(expected), 0) => {
            format!("the context {tenant:?} does not exist, so it has no revision {expected}")
        }
        (Some(expected), found) => {
            format!(
                "the context {tenant:?} has revision {found}, not {expected}; read it again, then \
                 change it"
            )
        }
    };
    Problem::new(Code::RevisionMismatch, detail)
}
