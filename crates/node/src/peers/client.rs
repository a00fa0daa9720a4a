//! Client for requests to peers: signed with the key of this node, over HTTP or NATS, with limits
//! of time and size.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use orlog_bus::nats::Connection;
use orlog_model::{Clock, NodeName};
use orlog_signature::PublicKey;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::directory::Peers;
use super::document::{self, DOCUMENT_PATH, DocumentError, NodeDocument};
use super::http::HttpTransport;
use super::identity::NoIdentity;
use super::nats::NatsTransport;
use super::request::{NodeRequest, NodeResponse, RequestSignature, SendError};
use crate::config::{Config, NATS_REQUIRED, NodeAddress};

/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 1 << 20;
/// Maximum length of the reason of a peer in a message, in characters.
const MAX_REASON_CHARS: usize = 1000;

/// Client for requests to peers.
pub struct PeerClient {
    peers: Arc<Peers>,
    clock: Arc<dyn Clock>,
    http: HttpTransport,
    /// `None` without NATS.
    nats: Option<NatsTransport>,
}

/// Reason why a request to a peer has no result.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// This node cannot sign requests.
    #[error(transparent)]
    NoIdentity(#[from] NoIdentity),
    /// The node is no peer.
    #[error("{0} is no peer of this node; add it with `orlog peer add`")]
    Unknown(NodeName),
    /// Nothing was sent.
    #[error("{address} cannot be reached: {reason}")]
    NotSent {
        /// Address of the peer.
        address: NodeAddress,
        /// Error of the connection.
        reason: String,
    },
    /// It is unknown whether the peer has executed the request.
    #[error("no complete response from {address}: {reason}")]
    NoResponse {
        /// Address of the peer.
        address: NodeAddress,
        /// Error of the connection.
        reason: String,
    },
    /// The peer rejected the request.
    #[error("{address} rejected the request with HTTP status {status}: {reason}")]
    Rejected {
        /// Address of the peer.
        address: NodeAddress,
        /// HTTP status.
        status: u16,
        /// Error code of the peer; empty if its response is no problem.
        code: String,
        /// Reason that the peer states.
        reason: String,
    },
    /// The peer accepted the request, but its response is not the expected one.
    #[error(
        "{address} returned an unexpected response: {reason}; check the address, and the versions \
         of both nodes"
    )]
    Invalid {
        /// Address of the peer.
        address: NodeAddress,
        /// Reason.
        reason: String,
    },
    /// The document of the node is invalid.
    #[error("{address}: {reason}")]
    Document {
        /// Address of the node.
        address: NodeAddress,
        /// Reason.
        reason: DocumentError,
    },
}

/// Problem in the response of a peer.
#[derive(Deserialize)]
struct PeerProblem {
    code: String,
    detail: String,
}

impl PeerClient {
    /// Creates the client.
    ///
    /// # Errors
    /// If the certificates of `identity.ca_file` cannot be used.
    pub(crate) fn new(
        config: &Config,
        connection: Option<&Connection>,
        peers: Arc<Peers>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let nats = connection.cloned().map(NatsTransport);
        Ok(Self {
            peers,
            clock,
            http: HttpTransport::new(config)?,
            nats,
        })
    }

    /// Sends a signed request with a JSON body to a peer, and returns the body of its successful
    /// response. The path starts with `/`.
    ///
    /// # Errors
    /// [`PeerError`].
    pub(crate) async fn post(
        &self,
        peer: &NodeName,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Bytes, PeerError> {
        let identity = self.peers.identity()?;
        let address = self
            .peers
            .address(peer)
            .ok_or_else(|| PeerError::Unknown(peer.clone()))?;
        let now = self.clock.now();

        // Over NATS, no certificate proves the identity of the peer: one of these keys signs the
        // response.
        let receiver_keys = self.peers.valid_keys(peer, now);
        let signature = RequestSignature {
            key: &identity.key,
            receiver: peer,
            receiver_keys,
            now,
        };

        let request = NodeRequest {
            method: Method::POST,
            path,
            body,
            signature: Some(signature),
        };
        self.send(&address, request, MAX_RESPONSE).await
    }

    /// Sends a request as `post`, and parses the response.
    ///
    /// # Errors
    /// [`PeerError`]; [`PeerError::Invalid`] if the response has another form.
    pub async fn post_json<T: DeserializeOwned>(
        &self,
        peer: &NodeName,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, PeerError> {
        let response = self.post(peer, path, body).await?;
        let address = || {
            self.peers
                .address(peer)
                .ok_or_else(|| PeerError::Unknown(peer.clone()))
        };

        match serde_json::from_slice(&response) {
            Ok(found) => Ok(found),
            Err(error) => Err(PeerError::Invalid {
                address: address()?,
                reason: error.to_string(),
            }),
        }
    }

    /// Reads the document of a node. Returns it with its keys.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn document(
        &self,
        address: &NodeAddress,
    ) -> Result<(NodeDocument, Vec<PublicKey>), PeerError> {
        let request = NodeRequest {
            method: Method::GET,
            path: DOCUMENT_PATH,
            body: Vec::new(),
            signature: None,
        };
        let bytes = self.send(address, request, document::MAX_BYTES).await?;
        let verified = NodeDocument::verified(&bytes, self.clock.now());

        verified.map_err(|reason| PeerError::Document {
            address: address.clone(),
            reason,
        })
    }

    /// Sends a request, and returns the body of its successful response.
    async fn send(
        &self,
        address: &NodeAddress,
        request: NodeRequest<'_>,
        limit: usize,
    ) -> Result<Bytes, PeerError> {
        let sent = match (address.subject(), &self.nats) {
            (None, _) => self.http.send(address, request, limit).await,
            (Some(subject), Some(nats)) => nats.send(subject, request, limit).await,
            (Some(_), None) => Err(SendError::NotSent(NATS_REQUIRED.to_owned())),
        };
        let address = address.clone();

        match sent {
            Ok(response) => successful(address, response),
            Err(SendError::NotSent(reason)) => Err(PeerError::NotSent { address, reason }),
            Err(SendError::NoResponse(reason)) => Err(PeerError::NoResponse { address, reason }),
            Err(SendError::Invalid(reason)) => Err(PeerError::Invalid { address, reason }),
        }
    }
}

/// Returns the body of a successful response.
fn successful(
    address: NodeAddress,
    NodeResponse { status, body }: NodeResponse,
) -> Result<Bytes, PeerError> {
    if (200..300).contains(&status) {
        return Ok(body);
    }

    let problem = serde_json::from_slice::<PeerProblem>(&body).ok();
    let (code, reason) = problem.map_or_else(
        || {
            (
                String::new(),
                "its response is no problem of a node".to_owned(),
            )
        },
        |problem| (problem.code, problem.detail),
    );
    // The peer chooses this text, which becomes a part of errors and logs.
    let reason = reason.chars().take(MAX_REASON_CHARS).collect();

    Err(PeerError::Rejected {
        address,
        status,
        code,
        reason,
    })
}
