//! `POST /v1/peer/messages`: receives messages, and reports about messages, from the nodes of other
//! contexts.
//!
//! The signature of the request proves which node sends it; [`MessageExchange`] decides what it may
//! send.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::server::body::{self, CheckedBody};
use crate::server::context::RequestContext;
use crate::server::forward;
use crate::server::parts::cluster::Cluster;
use crate::server::problem::Problem;
use orlog_node::auth::Caller;
use orlog_node::messages::exchange::{MessageExchange, Origin};
use orlog_node::messages::peer_message::PeerMessage;

/// Receive a message or a report of another node
///
/// A peer signs the request. The response follows when its effect is durable; a repetition has no
/// further effect.
#[utoipa::path(
    post,
    path = "/v1/peer/messages",
    tag = "messages",
    request_body(content = Value, description = "A delivery, a withdrawal or a report"),
    responses((
        status = 200,
        description = "Durable; the response to a delivery is the status of the message",
        body = Value
    ))
)]
pub(crate) async fn receive(
    State(messages): State<Arc<MessageExchange>>,
    request: RequestContext,
    cluster: Cluster,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    CheckedBody(bytes): CheckedBody,
) -> Result<Response, Problem> {
    let peer = caller.peer.ok_or_else(Problem::not_a_peer)?;
    let message: PeerMessage = request.bodies().parse(&bytes, body::parse).await?;
    let key = messages.subject(&peer, &message)?;
    if let Some(response) = forward::to_owner(&cluster, &key, &uri, None, &headers, &bytes).await? {
        return Ok(response);
    }

    let origin = Origin {
        reads: request.scope.caller.as_ref().map(|caller| &caller.reads),
        trace: request.scope.trace.as_ref(),
    };
    let response = messages.apply(&peer, key, message, origin).await?;
    Ok(Json(response).into_response())
}
