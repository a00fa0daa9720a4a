//! `/v1/actors`: actors, their keys, and the invitations to enroll them.

mod view;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use orlog_model::{ActorId, Timestamp};
use serde::Deserialize;
use utoipa::IntoParams;

use super::contexts::ListQuery;
use super::invalid_body;
use super::keys::{ActorKeyBody, AddActorKeyBody, check_is_free, confirm_owner};
use crate::server::authorize;
use crate::server::body::{JsonBody, ObjectOf};
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{PathParams, QueryParams, duration, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::access::Access;
use crate::server::problem::{Code, Problem};
use crate::server::request_info::{ENROLL_ROUTE, RequestId};
use orlog_node::access::{
    Actor, InvitationToken, KEY_OVERLAP, Key, KeyError, Keyed as _, Stored, WriteError,
};
use orlog_node::auth::Caller;
use view::{
    ActorBody, ActorPage, ActorView, AddressesBody, EnrollBody, InvitationBody, InvitationView,
    check_addresses,
};

/// Default validity of an invitation.
const INVITATION_TTL: Duration = Duration::from_hours(24);
/// Maximum validity of an invitation.
const MAX_INVITATION_TTL: Duration = Duration::from_hours(720);
/// Path of an actor.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ActorPath {
    /// Id of the actor, percent-encoded
    actor: String,
}

/// Path of a key.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct KeyPath {
    /// Id of the actor, percent-encoded
    actor: String,
    /// Id of the key, percent-encoded
    key: String,
}

/// List actors
///
/// Ordered by id.
#[utoipa::path(
    get,
    path = "/v1/actors",
    operation_id = "list",
    tag = "actors",
    params(ListQuery),
    responses((status = 200, description = "A page", body = ActorPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    State(access): State<Access>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    let start = match query.cursor.map(ActorId::new) {
        None => Bound::Unbounded,
        Some(Ok(after)) => Bound::Excluded(after),
        Some(Err(error)) => return Err(invalid_parameter("cursor", error.to_string())),
    };
    let limits = page_limits(query.limit, &api);

    api.read_json(move |scope| {
        let directory = access.registry().directory();
        let now = scope.now();
        let mut page = PageBuilder::new(limits);
        for (id, stored) in directory.actors.range((start, Bound::Unbounded)) {
            // A record of a later release cannot be read; it is omitted instead of failing the
            // whole list.
            if let Some(actor) = &stored.value
                && !page.push(ActorView::of(id, actor, now), id.to_string())
            {
                break;
            }
        }

        let page = page.finish(None);
        Ok(ActorPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

/// Create an actor
#[utoipa::path(
    post,
    path = "/v1/actors",
    operation_id = "create",
    tag = "actors",
    request_body = ActorBody,
    responses((status = 200, description = "Durable", body = ActorView))
)]
pub(crate) async fn create(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<ActorBody>>,
) -> Result<Json<ActorView>, Problem> {
    // The id becomes a path segment of all other routes of the actor, where `.` and `..` are not
    // usable.
    let id = ActorId::for_path(body.id.as_str())
        .map_err(|error| invalid_body("/id", error.to_string()))?;
    check_addresses(&body.addresses)?;
    let now = access.now();
    let mut actor = Actor::new(now);
    let mut keys = Vec::new();
    for (index, key) in body.keys.into_iter().enumerate() {
        let key = key.into_key(&access, &id, &format!("/keys/{index}"))?;
        // This check gives most conflicts a clear error; `confirm` finds an owner that is added
        // meanwhile.
        check_is_free(&access, &format!("actor {id}"), &key, Code::ActorExists)?;
        actor.add_key(key.clone(), now, caller.name.clone())?;
        keys.push(key);
    }

    actor.replace_addresses(body.addresses, now, caller.name);
    // Revision 0: an actor that exists is not replaced, because its keys and revocations would be
    // lost.
    let stored = match access.registry().put(&id, Some(actor), 0).await {
        Err(WriteError::Conflict) => {
            return Err(Problem::new(
                Code::ActorExists,
                format!("the actor {id:?} exists; add keys to it"),
            ));
        }
        stored => stored?,
    };

    // After the write: only then the registry shows both of two requests that add one key.
    confirm(&access, &id, &keys).await?;
    view(&id, &stored, now)
}

/// Show an actor
#[utoipa::path(
    get,
    path = "/v1/actors/{actor}",
    operation_id = "show",
    tag = "actors",
    params(ActorPath),
    responses((status = 200, description = "The actor", body = ActorView))
)]
pub(crate) async fn show(
    State(access): State<Access>,
    PathParams(path): PathParams<ActorPath>,
) -> Result<Json<ActorView>, Problem> {
    let id = actor_id(&path.actor)?;
    let directory = access.registry().directory();
    let stored = directory.actors.get(&id).ok_or_else(|| not_found(&id))?;
    view(&id, stored, access.now())
}

/// Replace the addresses of an actor
#[utoipa::path(
    put,
    path = "/v1/actors/{actor}",
    operation_id = "put",
    tag = "actors",
    params(ActorPath),
    request_body = AddressesBody,
    responses((status = 200, description = "Durable", body = ActorView))
)]
pub(crate) async fn put(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<ActorPath>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<AddressesBody>>,
) -> Result<Json<ActorView>, Problem> {
    check_addresses(&body.addresses)?;
    change(
        &access,
        &actor_id(&path.actor)?,
        |actor: &mut Actor, now| {
            // Cloned: the closure runs again after a conflict with another request.
            Ok(actor.replace_addresses(body.addresses.clone(), now, caller.name.clone()))
        },
    )
    .await
}

/// Add a key, or rotate one
///
/// With `replaces`, the other key ends after `overlap`, so that both are valid meanwhile.
#[utoipa::path(
    post,
    path = "/v1/actors/{actor}/keys",
    operation_id = "add_key",
    tag = "actors",
    params(ActorPath),
    request_body = AddActorKeyBody,
    responses((status = 200, description = "Durable", body = ActorView))
)]
pub(crate) async fn add_key(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<ActorPath>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<AddActorKeyBody>>,
) -> Result<Json<ActorView>, Problem> {
    let id = actor_id(&path.actor)?;
    let overlap = duration("overlap", body.overlap.as_deref())?.unwrap_or(KEY_OVERLAP);
    let key = body.key.into_key(&access, &id, "/key")?;
    check_is_free(&access, &format!("actor {id}"), &key, Code::ActorExists)?;

    let apply = |actor: &mut Actor, now: Timestamp| {
        // One change retires the old key and adds the new one, so that a crash cannot leave only
        // one of both effects.
        if let Some(replaced) = &body.replaces {
            actor.keys.retire(
                format_args!("actor {id}"),
                replaced,
                now.saturating_add(overlap),
            )?;
        }
        actor
            .add_key(key.clone(), now, caller.name.clone())
            .map(|()| true)
    };

    add(&access, &id, &key, apply).await
}

/// Revoke a key
///
/// The key is invalid from now on. It stays in the list, and cannot be added again.
#[utoipa::path(
    post,
    path = "/v1/actors/{actor}/keys/{key}/revoke",
    operation_id = "revoke_key",
    tag = "actors",
    params(KeyPath),
    responses((status = 200, description = "Durable", body = ActorView))
)]
pub(crate) async fn revoke_key(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<KeyPath>,
) -> Result<Json<ActorView>, Problem> {
    let id = actor_id(&path.actor)?;
    change(&access, &id, |actor: &mut Actor, now| {
        actor.revoke_key(&id, &path.key, now, caller.name.clone())
    })
    .await
}

/// Invite an actor
///
/// Creates the actor if it does not exist. The token enrolls one key. A later invitation of the
/// actor replaces this one.
#[utoipa::path(
    post,
    path = "/v1/actors/{actor}/invitation",
    operation_id = "invite",
    tag = "actors",
    params(ActorPath),
    request_body = InvitationBody,
    responses((status = 200, description = "Durable", body = InvitationView))
)]
pub(crate) async fn invite(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<ActorPath>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<InvitationBody>>,
) -> Result<Json<InvitationView>, Problem> {
    let id = actor_id(&path.actor)?;
    let ttl = duration("expires_in", body.expires_in.as_deref())?.unwrap_or(INVITATION_TTL);
    // The token alone enrolls a key, so that a lost token must expire.
    if ttl.is_zero() || ttl > MAX_INVITATION_TTL {
        return Err(invalid_body(
            "/expires_in",
            "an invitation is valid for at most 720h",
        ));
    }

    // Created once, outside of the change: a repetition after a conflict stores the hash of the
    // same token.
    let token = InvitationToken::random()
        .map_err(|error| Problem::new(Code::Unavailable, error.to_string()))?;
    let expires_at = access.now().saturating_add(ttl);
    let apply = |actor: &mut Actor, now| {
        actor.invite(&token, expires_at, now, caller.name.clone());
        Ok(true)
    };
    write(&access, &id, Some(Actor::new), apply).await?;

    // The record contains only the hash of the token; this response is the only copy of the token
    // itself.
    let actor = id.to_string();
    let token = token.expose().to_owned();
    Ok(Json(InvitationView {
        actor,
        token,
        expires_at: expires_at.to_string(),
    }))
}

/// Enroll the key of an invited actor
///
/// The token of the invitation authenticates the request.
#[utoipa::path(
    post,
    path = "/v1/actors/{actor}/enroll",
    operation_id = "enroll",
    tag = "actors",
    params(ActorPath),
    request_body = EnrollBody,
    responses((status = 200, description = "Durable", body = ActorView))
)]
pub(crate) async fn enroll(
    api: RequestContext,
    State(access): State<Access>,
    PathParams(path): PathParams<ActorPath>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    // The audit record reads the head of the request, and the body is consumed before the record
    // starts.
    let (parts, body) = request.into_parts();
    let recorded = Request::from_parts(parts.clone(), Body::empty());
    let body =
        JsonBody::<ObjectOf<EnrollBody>>::read(Request::from_parts(parts, body), &api).await?;
    let JsonBody(ObjectOf(EnrollBody { token, key })) = body;
    // Checked here to select the kind of record, and again in the write, because the invitation can
    // be used meanwhile.
    let (id, key) = match check_invitation(&access, path.actor, &token, key) {
        Ok(invited) => invited,
        Err(problem) => {
            // Anyone can send such a request: it is counted, and has no record.
            let response = problem.into_response();
            authorize::deny_unauthenticated(&api, ENROLL_ROUTE, &recorded, &response);
            return Ok(response);
        }
    };

    let enrolled = async |_| {
        add(&access, &id, &key, |actor: &mut Actor, now| {
            actor.enroll(&token, key.clone(), now)
        })
        .await
        .into_response()
    };
    Ok(authorize::audit_authenticated(&api, ENROLL_ROUTE, &request_id, recorded, enrolled).await)
}

/// Checks the token of an invitation, and the key to enroll. A caller without a valid token learns
/// nothing about actors and keys.
fn check_invitation(
    access: &Access,
    id: String,
    token: &str,
    key: ActorKeyBody,
) -> Result<(ActorId, Key), Problem> {
    let denied = || Problem::from(KeyError::Invitation);
    // An invalid id has the response of an unknown actor, so that the route does not reveal ids.
    let id = ActorId::new(id).map_err(|_| denied())?;
    // The error of a proof depends on the request only, so that it may precede the check of the
    // token.
    let key = key.into_key(access, &id, "/key")?;
    let directory = access.registry().directory();
    let actor = directory
        .actors
        .get(&id)
        .and_then(|stored| stored.value.clone());
    // On a copy of the record: nothing is stored here, and the write repeats the check.
    actor
        .ok_or_else(denied)?
        .enroll(token, key.clone(), access.now())?;
    // Last, because its error reveals that a key is in use: only the holder of a token receives it.
    check_is_free(access, &format!("actor {id}"), &key, Code::ActorExists)?;

    Ok((id, key))
}

/// Adds a key with a change; returns the actor when the change is durable, and the key has no other
/// owner.
async fn add(
    access: &Access,
    id: &ActorId,
    key: &Key,
    apply: impl FnMut(&mut Actor, Timestamp) -> Result<bool, KeyError>,
) -> Result<Json<ActorView>, Problem> {
    let added = change(access, id, apply).await?;
    confirm(access, id, std::slice::from_ref(key)).await?;
    Ok(added)
}

async fn confirm(access: &Access, id: &ActorId, keys: &[Key]) -> Result<(), Problem> {
    // `withdraw_key` also frees the invitation that enrolled the key, so that the token is not
    // lost.
    let remove = async |contested: &[&str]| {
        write(access, id, None, |actor: &mut Actor, now| {
            let mut is_changed = false;
            for key in contested {
                is_changed |= actor.withdraw_key(key, now);
            }
            Ok(is_changed)
        })
        .await
        .map(drop)
    };
    confirm_owner(access, keys, Code::ActorExists, remove).await
}

/// Changes an existing actor; returns it when the change is durable.
async fn change(
    access: &Access,
    id: &ActorId,
    apply: impl FnMut(&mut Actor, Timestamp) -> Result<bool, KeyError>,
) -> Result<Json<ActorView>, Problem> {
    let stored = write(access, id, None, apply).await?;
    view(id, &stored, access.now())
}

/// Applies a change to the current record, again if another request changes it at the same time.
/// `create` creates a missing actor. `apply` returns whether it changed the actor.
async fn write(
    access: &Access,
    id: &ActorId,
    create: Option<fn(Timestamp) -> Actor>,
    mut apply: impl FnMut(&mut Actor, Timestamp) -> Result<bool, KeyError>,
) -> Result<Arc<Stored<Actor>>, Problem> {
    let next = |stored: Option<&Stored<Actor>>| {
        let now = access.now();
        // An unreadable record is an error, not a missing one: a write would replace what a later
        // release stored.
        let known = stored
            .map(|stored| stored.value.clone().ok_or_else(|| unreadable(id)))
            .transpose()?;
        let mut actor = known
            .or_else(|| create.map(|create| create(now)))
            .ok_or_else(|| not_found(id))?;
        let is_changed = apply(&mut actor, now)?;
        // `None` writes nothing: a repeated request adds no revision and no entry to the changes.
        Ok::<_, Problem>(is_changed.then_some(actor))
    };

    let stored = access.registry().update(id, next).await?;
    stored.ok_or_else(|| not_found(id))
}

fn actor_id(text: &str) -> Result<ActorId, Problem> {
    ActorId::for_path(text).map_err(|error| invalid_parameter("actor", error.to_string()))
}

fn view(id: &ActorId, stored: &Stored<Actor>, now: Timestamp) -> Result<Json<ActorView>, Problem> {
    let actor = stored.value.as_ref().ok_or_else(|| unreadable(id))?;
    Ok(Json(ActorView::of(id, actor, now)))
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        let code = match &error {
            KeyError::Exists(_) | KeyError::TooMany => Code::ActorExists,
            KeyError::Missing { .. } => Code::ActorNotFound,
            KeyError::Invitation => Code::InvalidInvitation,
        };
        Problem::new(code, error.to_string())
    }
}

fn not_found(id: &ActorId) -> Problem {
    Problem::new(
        Code::ActorNotFound,
        format!("no actor {id:?}; create it with POST /v1/actors, or invite it"),
    )
}

fn unreadable(id: &ActorId) -> Problem {
    let detail = format!(
        "the record of the actor {id:?} cannot be read by this release; the log has the reason"
    );
    Problem::new(Code::Unavailable, detail)
}
