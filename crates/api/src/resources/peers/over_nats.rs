//! Requests of other nodes over NATS: those of HTTP, on the subject of this node.
//!
//! - Only the routes for peers and the document of the node are reachable, only headers that these
//!   need are kept.
//! - The authority of a request is the name of this node, so that no signature for another node is
//!   valid.
//! - The response to a signed request is signed with the key of this node.
//! - The pods of the node share the requests; each has a limit of requests in progress.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse as _, Response};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use orlog_bus::Message;
use orlog_bus::nats::{Connection, ReceivedRequest, Requests};
use orlog_bus::requests;
use orlog_model::NodeName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::permissions::{self, Permission};
use crate::server::problem::{Code, Problem};
use crate::server::request_info::OverNats;
use orlog_node::app::App;
use orlog_node::config::node_subject;
use orlog_node::peers::document::DOCUMENT_PATH;
use orlog_node::peers::nats::{
    HTTP_HEADERS, REQUEST_HEADER, RESPONSE_SIGNATURE_HEADER, STATUS_HEADER, is_signed,
    sign_response,
};
use orlog_node::peers::{PeerError, Peers};

/// Queue group of the pods of a node.
const QUEUE_GROUP: &str = "orlog";
/// Maximum number of requests in progress. Above it, a request is rejected at once, because the
/// sender would wait for its timeout.
const MAX_IN_PROGRESS: usize = 128;
/// Maximum size of a response with its headers, in bytes: the limit of the sender of the request.
const MAX_RESPONSE: usize = 1 << 20;
/// Size that is reserved for the headers of a response: status and signature.
const HEADER_BYTES: usize = 4 << 10;
/// Grace period of requests in progress when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// Server of the requests of other nodes.
struct Server {
    connection: Connection,
    peers: Arc<Peers>,
    service: TowerToHyperService<Router>,
    places: Arc<Semaphore>,
}

/// Serves until `shutdown` resolves and the requests in progress end, or their grace period
/// expires. Returns at once without NATS, without sagas, and without an identity, by which peers
/// know the node.
pub(crate) async fn serve(app: &App, router: Router, shutdown: impl Future<Output = ()>) {
    let (Some(connection), Ok(identity)) = (app.transport.connection(), app.peers.identity())
    else {
        return;
    };
    // A node that only executes effects has no shard that could store a message.
    if !app.config.role.runs_sagas() {
        return;
    }

    let subject = node_subject(&identity.name);
    let mut requests = match connection.requests(&subject, QUEUE_GROUP).await {
        Ok(requests) => requests,
        // Logged, no error of the start: peers over HTTP do not depend on the subscription.
        Err(error) => {
            tracing::error!(subject, %error, "requests of peers over NATS are not received");
            return;
        }
    };
    tracing::info!(subject, "serving peers over NATS");

    let server = Arc::new(Server {
        connection: connection.clone(),
        peers: Arc::clone(&app.peers),
        service: TowerToHyperService::new(router),
        places: Arc::new(Semaphore::new(MAX_IN_PROGRESS)),
    });
    tokio::select! {
        () = server.receive(&mut requests) => {}
        () = shutdown => {}
    }
    // The subscription ends first, so that the servers deliver new requests to the other pods.
    requests.drain().await;

    // The last request in progress has ended when all places are free.
    let rest = async {
        server.receive(&mut requests).await;
        let all = u32::try_from(MAX_IN_PROGRESS).expect("the number is small");
        drop(server.places.acquire_many(all).await);
    };

    if tokio::time::timeout(GRACE, rest).await.is_err() {
        tracing::warn!("server stopped with requests of peers in progress");
    }
}

impl Server {
    /// Answers requests until the subscription ends.
    async fn receive(self: &Arc<Self>, requests: &mut Requests) {
        while let Some(request) = requests.next().await {
            let server = Arc::clone(self);
            // Without a place, the request is rejected at once: unanswered, it would hold a place
            // of its sender for the whole timeout.
            let place = Arc::clone(&self.places).try_acquire_owned().ok();
            tokio::spawn(async move { server.answer(request, place).await });
        }
    }

    async fn answer(&self, request: ReceivedRequest, place: Option<OwnedSemaphorePermit>) {
        let response = match place {
            Some(_) => self.respond(&request.message).await,
            None => busy().into_response(),
        };
        // Read for each response: after a reconnect, the server can have another limit.
        let limit = max_body(self.connection.max_payload());
        let Some(SizedResponse { status, payload }) = SizedResponse::of(response, limit).await
        else {
            return;
        };

        let mut headers = vec![(STATUS_HEADER.into(), status.to_string().into())];
        // Every subscriber and server between the nodes can answer; the sender trusts only a
        // response that this node signed.
        if is_signed(&request.message)
            && let Ok(own) = self.peers.identity()
        {
            let signature = sign_response(&own.key, &request.message, status, &payload);
            headers.push((RESPONSE_SIGNATURE_HEADER.into(), signature.into()));
        }

        if let Err(error) = request
            .respond(requests::Response { headers, payload })
            .await
        {
            tracing::warn!(status, %error, "response to a peer not sent");
        }
        drop(place);
    }

    async fn respond(&self, message: &Message) -> Response {
        let own = self
            .peers
            .identity()
            .map_err(|error| PeerError::from(error).into());
        match own.and_then(|own| http_request(&own.name, message)) {
            Ok(request) => self
                .service
                .call(request)
                .await
                .unwrap_or_else(|never| match never {}),
            Err(problem) => problem.into_response(),
        }
    }
}

/// Response that fits into a message.
struct SizedResponse {
    status: u16,
    payload: Bytes,
}

impl SizedResponse {
    /// Reads a response. One that does not fit is replaced by a problem: the sender would wait for
    /// its timeout and repeat the request without an end.
    async fn of(response: Response, limit: usize) -> Option<Self> {
        let status = response.status().as_u16();
        let error = match to_bytes(response.into_body(), limit).await {
            Ok(payload) => return Some(Self { status, payload }),
            // A truncated body would be signed as the complete response.
            Err(error) => error,
        };

        tracing::warn!(status, limit, %error, "response to a peer is incomplete");
        let problem = unsendable(status, limit).into_response();
        let status = problem.status().as_u16();
        let payload = match to_bytes(problem.into_body(), limit).await {
            Ok(payload) => payload,
            // The limit of the server is below that of any useful message. The status alone still
            // ends the wait of the sender.
            Err(_) => Bytes::new(),
        };
        Some(Self { status, payload })
    }
}

/// Returns the maximum size of the body of a response over a server with this limit of a message.
fn max_body(max_payload: usize) -> usize {
    max_payload.min(MAX_RESPONSE).saturating_sub(HEADER_BYTES)
}

fn unsendable(status: u16, limit: usize) -> Problem {
    let detail = format!(
        "the response with the status {status} cannot be sent over NATS: it is incomplete or has \
         more than {limit} bytes; the log of this node has the reason"
    );
    Problem::new(Code::Internal, detail)
}

fn busy() -> Problem {
    let detail =
        format!("{MAX_IN_PROGRESS} requests of peers over NATS are in progress; retry later");
    Problem::new(Code::Unavailable, detail)
}

/// Returns the request that a message carries.
fn http_request(node: &NodeName, message: &Message) -> Result<Request, Problem> {
    let mut headers = message.headers.iter();
    let target = headers
        .find(|(name, _)| name == REQUEST_HEADER)
        .map(|(_, target)| target.as_str());
    let unreachable = || {
        let found: String = target.unwrap_or_default().chars().take(100).collect();
        let detail =
            format!("{found:?} is not reachable over NATS; only requests between peers are");
        Problem::new(Code::RouteNotFound, detail)
    };

    let (method, path) = target
        .and_then(|target| target.split_once(' '))
        .ok_or_else(unreachable)?;
    let is_document = (method, path) == ("GET", DOCUMENT_PATH);
    // Routes for peers have no parameters, so that a path equals its route; any other path is
    // rejected.
    if !is_document && permissions::required_permission(method, path, &[]) != Permission::Peer {
        return Err(unreachable());
    }

    let mut request = Request::new(Body::from(message.payload.clone()));
    *request.method_mut() = method.parse().map_err(|_| unreachable())?;
    *request.uri_mut() = Uri::try_from(path).map_err(|_| unreachable())?;
    // No other header: a grant of a pod or the identity of a gateway has no meaning over NATS,
    // where any publisher could set it.
    for (name, value) in &message.headers {
        if let Some(name) = HTTP_HEADERS
            .iter()
            .find(|known| known.as_str() == name.as_str())
        {
            let value = HeaderValue::from_str(value);
            request
                .headers_mut()
                .append(name, value.map_err(|_| unreachable())?);
        }
    }

    // The subject can be renamed by an import, so that the name of the node is the authority that
    // signatures cover.
    let host = HeaderValue::from_str(node.as_str()).expect("the name of a node is ASCII");
    request.headers_mut().insert(header::HOST, host);
    // The marker replaces the checks of browsers and of the connection, which such a request does
    // not have.
    request.extensions_mut().insert(OverNats);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn response_that_exceeds_a_message_is_sent_as_a_problem() {
        // The default of a server, and a lower limit.
        for max_payload in [1 << 20, 64 << 10] {
            let limit = max_body(max_payload);
            let sized = async |bytes: usize| {
                let response = Response::new(Body::from(vec![b'x'; bytes]));
                SizedResponse::of(response, limit).await.unwrap()
            };
            let largest = sized(limit).await;
            assert_eq!((largest.status, largest.payload.len()), (200, limit));

            let SizedResponse { status, payload } = sized(limit + 1).await;
            assert_eq!(status, 500);
            let problem: serde_json::Value = serde_json::from_slice(&payload).unwrap();
            let detail = problem["detail"].as_str().unwrap();
            let reason = format!("more than {limit} bytes");
            assert!(detail.contains("cannot be sent over NATS"), "{detail}");
            assert!(detail.contains(&reason), "{detail}");
        }
    }

    #[test]
    fn response_fits_into_the_message_of_the_server_and_of_the_sender() {
        assert_eq!(max_body(512 << 10), (512 << 10) - HEADER_BYTES);
        assert_eq!(max_body(8 << 20), MAX_RESPONSE - HEADER_BYTES);
        assert_eq!(max_body(1), 0);
    }
}
