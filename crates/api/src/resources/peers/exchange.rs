//! Routes between nodes: the document of a node, and the check of a connection from both ends.

use std::future::{Future, ready};

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use orlog_model::NodeName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::view::{AddressBody, DocumentView};
use super::{PeerPath, check_reachable, peer_name};
use crate::server::body::{JsonBody, ObjectOf};
use crate::server::context::{ApiState, RequestContext};
use crate::server::extract::PathParams;
use crate::server::parts::peer_network::PeerNetwork;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::peers::client::PeerError;
use orlog_node::peers::document::NodeDocument;

/// Path of the check that a peer requests.
const CHECK_PATH: &str = "/v1/peer/check";

/// Peer that signed the request.
pub(crate) struct PeerRequest(pub(crate) NodeName);

impl FromRequestParts<ApiState> for PeerRequest {
    type Rejection = Problem;

    fn from_request_parts(
        parts: &mut Parts,
        _api: &ApiState,
    ) -> impl Future<Output = Result<Self, Problem>> + Send {
        let peer = parts
            .extensions
            .get::<Caller>()
            .and_then(|caller| caller.peer.clone());
        ready(peer.map(Self).ok_or_else(Problem::not_a_peer))
    }
}

/// Result of a check.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckView {
    /// Name of the peer.
    peer: String,
    /// Name by which the peer knows this node.
    known_as: String,
    /// Version of the peer.
    version: String,
}

/// Response to the check of a peer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PeerCheck {
    /// Name of this node; null if it has no identity.
    #[schema(value_type = Option<String>)]
    node: Option<NodeName>,
    /// Name by which it knows the caller.
    #[schema(value_type = String)]
    caller: NodeName,
    /// Version of the build.
    version: String,
}

/// Show the document of this node: its name, address and public keys, signed by each key
#[utoipa::path(
    get,
    path = "/.well-known/orlog-node",
    operation_id = "document",
    tag = "peers",
    responses((status = 200, description = "The document", body = NodeDocument))
)]
pub(crate) async fn document(
    api: RequestContext,
    State(peers): State<PeerNetwork>,
) -> Result<Json<NodeDocument>, Problem> {
    let identity = peers.known().identity().map_err(PeerError::from)?;
    Ok(Json(NodeDocument::of(identity, api.now())))
}

/// Read and verify the document of another node
///
/// Compare the fingerprint of its key with its administrator before you add it as a peer.
#[utoipa::path(
    post,
    path = "/v1/node-documents",
    operation_id = "read_document",
    tag = "peers",
    request_body = AddressBody,
    responses((status = 200, description = "The document", body = DocumentView))
)]
pub(crate) async fn read_document(
    State(peers): State<PeerNetwork>,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<AddressBody>>,
) -> Result<Json<DocumentView>, Problem> {
    check_reachable(&peers, &body.address)?;
    let (document, keys) = peers.client().document(&body.address).await?;
    Ok(Json(DocumentView::of(&document, &keys, &body.address)))
}

/// Check a peer
///
/// Sends a signed request to the peer, which must know this node, and compares its name.
#[utoipa::path(
    post,
    path = "/v1/peers/{peer}/check",
    operation_id = "check",
    tag = "peers",
    params(PeerPath),
    responses((status = 200, description = "Both nodes know each other", body = CheckView))
)]
pub(crate) async fn check(
    State(peers): State<PeerNetwork>,
    PathParams(path): PathParams<PeerPath>,
) -> Result<Json<CheckView>, Problem> {
    let peer = peer_name(&path.peer)?;
    let body = b"{}".to_vec();
    let found: PeerCheck = peers.client().post_json(&peer, CHECK_PATH, body).await?;

    // The address can lead to another node that accepts this one as a peer, too.
    if found.node.as_ref() != Some(&peer) {
        let other = found.node.map_or_else(
            || "a node without an identity".to_owned(),
            |node| node.to_string(),
        );
        let detail =
            format!("the address of {peer} leads to {other}; correct its address or its name");
        return Err(Problem::new(Code::PeerRequestFailed, detail));
    }

    let known_as = found.caller.to_string();
    let version = found.version;
    Ok(Json(CheckView {
        peer: peer.to_string(),
        known_as,
        version,
    }))
}

/// Answer the check of a peer
#[utoipa::path(
    post,
    path = "/v1/peer/check",
    operation_id = "answer_check",
    tag = "peers",
    responses((status = 200, description = "This node knows the caller", body = PeerCheck))
)]
pub(crate) async fn answer_check(
    State(peers): State<PeerNetwork>,
    PeerRequest(caller): PeerRequest,
) -> Json<PeerCheck> {
    let node = peers.known().identity().ok().map(|own| own.name.clone());
    Json(PeerCheck {
        node,
        caller,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}
