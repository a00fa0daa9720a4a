//! `/v1/peers`: the peers of this node, their keys, and checks of a connection. A response to a
//! change arrives after it is durable.

pub(crate) mod exchange;
pub(crate) mod over_nats;
mod problems;
mod view;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use orlog_model::{NodeName, Timestamp};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::resources::access::contexts::ListQuery;
use crate::resources::access::invalid_body;
use crate::resources::access::keys::{AddKeyBody, check_is_free, confirm_owner};
use crate::server::body::{JsonBody, ObjectOf};
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{PathParams, QueryParams, duration, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::access::Access;
use crate::server::parts::peer_network::PeerNetwork;
use crate::server::problem::{Code, Problem};
use orlog_node::access::{KEY_OVERLAP, Key, Keyed as _, Peer, Stored, WriteError};
use orlog_node::auth::Caller;
use orlog_node::config::{NATS_REQUIRED, NodeAddress};
use problems::{in_configuration, key_problem, missing, not_found, unreadable, unsigned_document};
use view::{AddressBody, PeerBody, PeerPage, PeerView};

/// Path of a peer.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PeerPath {
    /// Name of the peer
    peer: String,
}

/// Path of a key.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct KeyPath {
    /// Name of the peer
    peer: String,
    /// Id of the key
    key: String,
}

/// List peers
///
/// Ordered by name, with those of the configuration.
#[utoipa::path(
    get,
    path = "/v1/peers",
    operation_id = "list",
    tag = "peers",
    params(ListQuery),
    responses((status = 200, description = "A page", body = PeerPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    let start = match query.cursor.map(NodeName::new) {
        None => Bound::Unbounded,
        Some(Ok(after)) => Bound::Excluded(after),
        Some(Err(error)) => return Err(invalid_parameter("cursor", error.to_string())),
    };
    let limits = page_limits(query.limit, &api);

    api.read_json(move |scope| {
        let now = scope.now();
        let stored = &access.registry().directory().peers;
        let stored = stored
            .iter()
            .filter_map(|(name, stored)| Some((name, stored.value.as_ref()?)));
        let mut all: BTreeMap<_, _> = stored
            .map(|(name, peer)| (name.clone(), PeerView::of(name, peer, now)))
            .collect();
        let configured = peers.known().all_configured();
        // The configuration replaces a record with the same name, as it does in the verification of
        // requests.
        all.extend(
            configured
                .iter()
                .map(|(name, peer)| (name.clone(), PeerView::configured(name, peer, now))),
        );

        let mut page = PageBuilder::new(limits);
        for (name, view) in all.range((start, Bound::Unbounded)) {
            if !page.push(view.clone(), name.to_string()) {
                break;
            }
        }

        let page = page.finish(None);
        Ok(PeerPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

/// Add a peer
///
/// The node then accepts its requests, and sends requests to its address.
#[utoipa::path(
    post,
    path = "/v1/peers",
    operation_id = "create",
    tag = "peers",
    request_body = PeerBody,
    responses((status = 200, description = "Durable", body = PeerView))
)]
pub(crate) async fn create(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    Extension(caller): Extension<Caller>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<PeerBody>>,
) -> Result<Json<PeerView>, Problem> {
    let PeerBody {
        name,
        address,
        keys,
    } = body;
    if peers.is_own(&name) {
        let detail =
            format!("{name} is the name of this node (identity.name); a peer has another one");
        return Err(Problem::new(Code::PeerConflict, detail));
    }
    if peers.known().configured(&name).is_some() {
        return Err(in_configuration(&name));
    }
    // Without a key, no request of the peer could be verified.
    if keys.is_empty() {
        return Err(invalid_body("/keys", "a peer has at least one key"));
    }

    check_reachable(&peers, &address)?;
    let now = access.now();
    let mut peer = Peer::new(address, now);
    let mut added = Vec::new();
    for (index, key) in keys.into_iter().enumerate() {
        let key = key.into_key(now, &format!("/keys/{index}"))?;
        check_is_free(&access, &format!("peer {name}"), &key, Code::PeerConflict)?;
        peer.add_key(key.clone(), now, caller.name.clone())
            .map_err(|error| key_problem(&error))?;
        added.push(key);
    }

    // Revision 0: a peer that exists is not replaced, because its keys and revocations would be
    // lost.
    let stored = match access.registry().put(&name, Some(peer), 0).await {
        Err(WriteError::Conflict) => {
            let detail = format!("the peer {name} exists; add keys to it, or remove it first");
            return Err(Problem::new(Code::PeerConflict, detail));
        }
        stored => stored?,
    };
    // After the write: only then the registry shows both of two requests that add one key.
    confirm(&access, &peers, &name, &added).await?;

    view(&name, &stored, now)
}

/// Show a peer
#[utoipa::path(
    get,
    path = "/v1/peers/{peer}",
    operation_id = "show",
    tag = "peers",
    params(PeerPath),
    responses((status = 200, description = "The peer", body = PeerView))
)]
pub(crate) async fn show(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    PathParams(path): PathParams<PeerPath>,
) -> Result<Json<PeerView>, Problem> {
    let name = peer_name(&path.peer)?;
    let now = access.now();
    if let Some(peer) = peers.known().configured(&name) {
        return Ok(Json(PeerView::configured(&name, &peer, now)));
    }

    let directory = access.registry().directory();
    view(
        &name,
        directory.peers.get(&name).ok_or_else(|| not_found(&name))?,
        now,
    )
}

/// Replace the address of a peer
#[utoipa::path(
    put,
    path = "/v1/peers/{peer}",
    operation_id = "put",
    tag = "peers",
    params(PeerPath),
    request_body = AddressBody,
    responses((status = 200, description = "Durable", body = PeerView))
)]
pub(crate) async fn put(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<PeerPath>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<AddressBody>>,
) -> Result<Json<PeerView>, Problem> {
    check_reachable(&peers, &body.address)?;
    change(
        &access,
        &peers,
        &peer_name(&path.peer)?,
        |peer: &mut Peer, now| {
            Ok(peer.replace_address(body.address.clone(), now, caller.name.clone()))
        },
    )
    .await
}

/// Remove a peer
///
/// The node accepts no further requests of it, and sends it none.
#[utoipa::path(
    delete,
    path = "/v1/peers/{peer}",
    operation_id = "delete",
    tag = "peers",
    params(PeerPath),
    responses((status = 204, description = "Durable"))
)]
pub(crate) async fn delete(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    PathParams(path): PathParams<PeerPath>,
) -> Result<StatusCode, Problem> {
    let name = peer_name(&path.peer)?;
    let found = access
        .registry()
        .directory()
        .peers
        .get(&name)
        .map(|stored| stored.revision);
    let found = found.ok_or_else(|| missing(&peers, &name))?;
    access.registry().put::<Peer>(&name, None, found).await?;

    Ok(StatusCode::NO_CONTENT)
}

/// Add a key, or rotate one
///
/// With `replaces`, the other key ends after `overlap`, so that both are valid meanwhile.
#[utoipa::path(
    post,
    path = "/v1/peers/{peer}/keys",
    operation_id = "add_key",
    tag = "peers",
    params(PeerPath),
    request_body = AddKeyBody,
    responses((status = 200, description = "Durable", body = PeerView))
)]
pub(crate) async fn add_key(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<PeerPath>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<AddKeyBody>>,
) -> Result<Json<PeerView>, Problem> {
    let name = peer_name(&path.peer)?;
    let overlap = duration("overlap", body.overlap.as_deref())?.unwrap_or(KEY_OVERLAP);
    let owner = format!("peer {name}");
    let key = body.key.into_key(access.now(), "/key")?;
    check_is_free(&access, &owner, &key, Code::PeerConflict)?;

    let apply = |peer: &mut Peer, now: Timestamp| {
        if let Some(replaced) = &body.replaces {
            peer.keys
                .retire(&owner, replaced, now.saturating_add(overlap))
                .map_err(|error| key_problem(&error))?;
        }
        peer.add_key(key.clone(), now, caller.name.clone())
            .map_err(|error| key_problem(&error))?;
        Ok(true)
    };
    let added = change(&access, &peers, &name, apply).await?;
    confirm(&access, &peers, &name, std::slice::from_ref(&key)).await?;

    Ok(added)
}

/// Revoke a key
///
/// The key is invalid from now on. It stays in the list, and cannot be added again.
#[utoipa::path(
    post,
    path = "/v1/peers/{peer}/keys/{key}/revoke",
    operation_id = "revoke_key",
    tag = "peers",
    params(KeyPath),
    responses((status = 200, description = "Durable", body = PeerView))
)]
pub(crate) async fn revoke_key(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<KeyPath>,
) -> Result<Json<PeerView>, Problem> {
    let name = peer_name(&path.peer)?;
    change(&access, &peers, &name, |peer: &mut Peer, now| {
        peer.revoke_key(&name, &path.key, now, caller.name.clone())
            .map_err(|error| key_problem(&error))
    })
    .await
}

/// Read the keys of a peer again
///
/// Reads the document at its address, which a key that this node knows must have signed. New keys
/// are added; a key that the document omits ends after 1h.
#[utoipa::path(
    post,
    path = "/v1/peers/{peer}/refresh",
    operation_id = "refresh",
    tag = "peers",
    params(PeerPath),
    responses((status = 200, description = "Durable", body = PeerView))
)]
pub(crate) async fn refresh(
    State(access): State<Access>,
    State(peers): State<PeerNetwork>,
    Extension(caller): Extension<Caller>,
    PathParams(path): PathParams<PeerPath>,
) -> Result<Json<PeerView>, Problem> {
    let name = peer_name(&path.peer)?;
    let directory = access.registry().directory();
    let known = directory
        .peers
        .get(&name)
        .ok_or_else(|| missing(&peers, &name))?;
    let known = known.value.as_ref().ok_or_else(|| unreadable(&name))?;
    // Read before the change, whose closure can run several times and must send no requests.
    let (document, keys) = peers.client().document(&known.address).await?;
    // The address can lead to another node, whose keys must not become keys of this peer.
    if document.name != name {
        let detail = format!(
            "{}: it is the document of {}, not of {name}",
            known.address, document.name
        );
        return Err(Problem::new(Code::InvalidNodeDocument, detail));
    }

    let stated: Vec<_> = keys
        .iter()
        .map(|key| Key::new(*key, access.now()))
        .collect();

    for key in &stated {
        check_is_free(&access, &format!("peer {name}"), key, Code::PeerConflict)?;
    }
    let apply = |peer: &mut Peer, now| {
        // Evaluated within the write: a key that is revoked meanwhile must not vouch for the
        // document.
        let is_known = |key: &&Key| key.is_valid(now) && keys.contains(&key.public_key);
        if !peer.keys.iter().any(|key| is_known(&key)) {
            return Err(unsigned_document(&name, &known.address));
        }

        let by = caller.name.clone();
        let is_moved = peer.replace_address(document.address_from(&peer.address), now, by.clone());
        let is_changed = peer.replace_keys(&keys, now, by);
        Ok(is_changed.map_err(|error| key_problem(&error))? || is_moved)
    };
    let stored = write(&access, &peers, &name, apply).await?;
    confirm(&access, &peers, &name, &stated).await?;

    view(&name, &stored, access.now())
}

/// Checks that no other request has given added keys to another owner at the same time; otherwise
/// it removes them again.
async fn confirm(
    access: &Access,
    peers: &PeerNetwork,
    name: &NodeName,
    added: &[Key],
) -> Result<(), Problem> {
    let remove = async |contested: &[&str]| {
        write(access, peers, name, |peer: &mut Peer, now| {
            let mut is_changed = false;
            for key in contested {
                is_changed |= peer.remove_key(key, now);
            }
            Ok(is_changed)
        })
        .await
        .map(drop)
    };
    confirm_owner(access, added, Code::PeerConflict, remove).await
}

/// Changes an existing peer; returns it when the change is durable.
async fn change(
    access: &Access,
    peers: &PeerNetwork,
    name: &NodeName,
    apply: impl FnMut(&mut Peer, Timestamp) -> Result<bool, Problem>,
) -> Result<Json<PeerView>, Problem> {
    let stored = write(access, peers, name, apply).await?;
    view(name, &stored, access.now())
}

/// Applies a change to the current record, again if another request changes it at the same time.
/// `apply` returns whether it changed the peer.
async fn write(
    access: &Access,
    peers: &PeerNetwork,
    name: &NodeName,
    mut apply: impl FnMut(&mut Peer, Timestamp) -> Result<bool, Problem>,
) -> Result<Arc<Stored<Peer>>, Problem> {
    let next = |stored: Option<&Stored<Peer>>| {
        let stored = stored.ok_or_else(|| missing(peers, name))?;
        let mut peer = stored.value.clone().ok_or_else(|| unreadable(name))?;
        let is_changed = apply(&mut peer, access.now())?;
        // `None` writes nothing: a repeated request adds no revision and no entry to the changes.
        Ok::<_, Problem>(is_changed.then_some(peer))
    };

    let stored = access.registry().update(name, next).await?;
    stored.ok_or_else(|| missing(peers, name))
}

fn peer_name(text: &str) -> Result<NodeName, Problem> {
    NodeName::new(text).map_err(|error| invalid_parameter("peer", error.to_string()))
}

/// Checks whether this node has what requests to the address need.
fn check_reachable(peers: &PeerNetwork, address: &NodeAddress) -> Result<(), Problem> {
    if address.subject().is_none() || peers.has_nats() {
        return Ok(());
    }
    Err(invalid_body("/address", NATS_REQUIRED))
}

fn view(name: &NodeName, stored: &Stored<Peer>, now: Timestamp) -> Result<Json<PeerView>, Problem> {
    let peer = stored.value.as_ref().ok_or_else(|| unreadable(name))?;
    Ok(Json(PeerView::of(name, peer, now)))
}
