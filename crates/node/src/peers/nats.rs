//! Requests to other nodes over NATS: the signed requests of HTTP as request and reply on the
//! subject of the node.
//!
//! Method and path are in one header, the headers of HTTP in headers of the same names, the body is
//! the body. The signature covers the name of the receiving node in place of a host, because the
//! subject of a node can differ between accounts.
//!
//! No TLS proves who answers: every client that can subscribe to the subject, and every server
//! between the nodes, can. The node therefore signs its response together with the whole request,
//! so that it is the response to no other one.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName};
use orlog_bus::Message;
use orlog_bus::nats::Connection;
use orlog_bus::requests::{RequestClient as _, RequestError, Response};
use orlog_signature::{
    CONTENT_DIGEST, ContentDigest, PublicKey, RequestTarget, SIGNATURE, SIGNATURE_INPUT, SignError,
    SigningKey,
};

use super::request::{NodeRequest, NodeResponse, SendError, too_large};
use crate::http_client::{SIGNATURE_LIFETIME, created};

/// Header with method and path, for example `POST /v1/peer/messages`.
pub const REQUEST_HEADER: &str = "orlog-request";
/// Header of a response: the HTTP status.
pub const STATUS_HEADER: &str = "orlog-status";
/// Header of the response to a signed request: its signature, in base64url.
pub const RESPONSE_SIGNATURE_HEADER: &str = "orlog-signature";
/// Start of the signed bytes of a response, so that the signature cannot be one of another kind.
const RESPONSE_PURPOSE: &str = "orlog-node-response-1";
/// Headers of HTTP that a request can have.
pub const HTTP_HEADERS: [HeaderName; 4] = [
    CONTENT_TYPE,
    HeaderName::from_static(CONTENT_DIGEST),
    HeaderName::from_static(SIGNATURE),
    HeaderName::from_static(SIGNATURE_INPUT),
];
/// Time in which a node must respond. No client notices that a server between the nodes has lost a
/// request, so it is shorter than that of HTTP; a repetition has no further effect.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// NATS client for other nodes.
pub(super) struct NatsTransport(pub(super) Connection);

impl NatsTransport {
    /// Sends a request to the node at a subject. The response has at most `limit` bytes.
    ///
    /// # Errors
    /// [`SendError`].
    pub(super) async fn send(
        &self,
        subject: &str,
        request: NodeRequest<'_>,
        limit: usize,
    ) -> Result<NodeResponse, SendError> {
        let Self(connection) = self;

        // Here the outcome is certain: nothing was sent. A request that waits for the connection
        // would end with an unknown one.
        if !connection.is_up() {
            return Err(SendError::NotSent(
                "this node has no connection to its NATS servers".to_owned(),
            ));
        }

        let message =
            message(subject, &request).map_err(|error| SendError::NotSent(error.to_string()))?;
        let response = connection.request(message.clone(), REQUEST_TIMEOUT).await;
        let response =
            response.map_err(|error| failure(error, message.size(), connection.max_payload()))?;
        let keys = request.signature.map(|signature| signature.receiver_keys);

        response_of_node(
            response,
            limit,
            keys.as_deref().map(|keys| (&message, keys)),
        )
    }
}

/// Returns whether the response to a request is signed.
pub fn is_signed(request: &Message) -> bool {
    request.headers.iter().any(|(name, _)| name == SIGNATURE)
}

/// Returns the signature of the response to a request.
pub fn sign_response(key: &SigningKey, request: &Message, status: u16, body: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(key.sign_message(&response_message(request, status, body)))
}

/// Returns the signed bytes of a response. They contain everything of the request, so that a client
/// cannot obtain the response to a request by sending another one with the same signature.
fn response_message(request: &Message, status: u16, body: &[u8]) -> Vec<u8> {
    let values = |name: &str| {
        let values = request.headers.iter().filter(|(found, _)| found == name);
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    let headers = HTTP_HEADERS.each_ref().map(|name| values(name.as_str()));
    let [sent, returned] = [&request.payload, body].map(|body| ContentDigest::of(body).header());
    let parts = (
        RESPONSE_PURPOSE,
        values(REQUEST_HEADER),
        headers,
        sent,
        status,
        returned,
    );

    serde_json::to_vec(&parts).expect("texts serialize to JSON")
}

/// Returns the message of a request.
fn message(subject: &str, request: &NodeRequest<'_>) -> Result<Message, SignError> {
    let NodeRequest {
        method,
        path,
        body,
        signature,
    } = request;

    let mut headers = HeaderMap::new();
    if !body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }

    if let Some(signature) = signature {
        // The name of the receiver in place of a host: imports rename subjects, so that sender and
        // receiver would sign and verify different ones.
        let authority = signature.receiver.as_str();
        let target = RequestTarget {
            method: method.as_str(),
            authority,
            path,
            query: None,
        };

        signature.key.sign(
            &target,
            &mut headers,
            body,
            created(signature.now),
            SIGNATURE_LIFETIME,
        )?;
    }

    let text = |value: &HeaderValue| value.to_str().expect("the headers are ASCII").into();
    let of_http = headers
        .iter()
        .map(|(name, value)| (name.as_str().into(), text(value)));
    let target = (REQUEST_HEADER.into(), format!("{method} {path}").into());
    let headers = of_http.chain([target]).collect();

    Ok(Message {
        subject: subject.to_owned(),
        id: None,
        headers,
        payload: body.clone().into(),
    })
}

/// Returns the response of a node; that to a signed request is signed by one of the keys. A stream
/// that stores the subject responds, too, but not as a node.
fn response_of_node(
    response: Response,
    limit: usize,
    signed: Option<(&Message, &[PublicKey])>,
) -> Result<NodeResponse, SendError> {
    let status = response
        .header(STATUS_HEADER)
        .and_then(|status| status.parse().ok());
    let status = status
        .filter(|status| (100..1000).contains(status))
        .ok_or_else(|| {
            SendError::Invalid(format!(
                "it has no header {STATUS_HEADER}, so that it is not from a node"
            ))
        })?;

    // Before the verification, which hashes the whole body.
    if response.payload.len() > limit {
        return Err(SendError::NoResponse(too_large(limit)));
    }

    // Every subscriber and every server between the nodes can answer; a false report would end a
    // message.
    if let Some((request, keys)) = signed {
        let signature = response
            .header(RESPONSE_SIGNATURE_HEADER)
            .unwrap_or_default();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
        let message = response_message(request, status, &response.payload);

        if !keys.iter().any(|key| key.verifies(&message, &signature)) {
            let reason = "no valid key of the peer signed it: another client answers on the \
                subject, or the peer has another key (`orlog peer refresh`)";
            return Err(SendError::Invalid(reason.to_owned()));
        }
    }

    Ok(NodeResponse {
        status,
        body: response.payload,
    })
}

fn failure(error: RequestError, size: usize, max_payload: usize) -> SendError {
    match error {
        // The server has no subscriber for the subject, so that it delivered nothing.
        RequestError::NoResponders(_) => SendError::NotSent(
            "no node receives requests on this subject: it does not run, its NATS user lacks the \
             permission to subscribe, or no import or leaf node leads to it"
                .to_owned(),
        ),
        RequestError::TooLarge(_) => SendError::NotSent(format!(
            "the request has {size} bytes, and the NATS server accepts {max_payload}; raise \
             max_payload on all servers between the nodes"
        )),
        RequestError::TimedOut(_) => SendError::NoResponse(format!(
            "none within {}s: the node does not run, a server between the nodes is away, or the \
             NATS user of this node lacks the permission to publish",
            REQUEST_TIMEOUT.as_secs()
        )),
        RequestError::Unavailable(reason) => SendError::NoResponse(reason),
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{NodeName, Timestamp};
    use orlog_signature::RequestSignature;

    use super::super::request;
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    fn response(headers: &[(&str, &str)], body: &'static [u8]) -> Result<(u16, usize), SendError> {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let response = response_of_node(
            Response {
                headers,
                payload: body.into(),
            },
            8,
            None,
        )?;
        Ok((response.status, response.body.len()))
    }

    #[test]
    fn request_is_signed_for_the_name_of_its_receiver() {
        let (key, receiver) = (key(), NodeName::new("B_1.example").unwrap());
        let signature = request::RequestSignature {
            key: &key,
            receiver: &receiver,
            receiver_keys: Vec::new(),
            now: Timestamp::from_millis(5_000),
        };
        let (path, body) = ("/v1/peer/check", b"{}".to_vec());
        let request = NodeRequest {
            method: http::Method::POST,
            path,
            body,
            signature: Some(signature),
        };
        let message = message("orlog.node.other", &request).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in &message.headers {
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        assert_eq!(
            headers.remove(REQUEST_HEADER).unwrap(),
            "POST /v1/peer/check"
        );
        assert!(
            headers.keys().all(|name| HTTP_HEADERS.contains(name)),
            "{headers:?}"
        );
        let is_valid = |authority: &str| {
            let target = RequestTarget {
                method: "POST",
                authority,
                path: "/v1/peer/check",
                query: None,
            };
            let read = RequestSignature::read(&target, &headers, true)
                .unwrap()
                .unwrap();
            read.is_by(&key.public_key())
        };
        assert!(is_valid("B_1.example") && !is_valid("c.example"));
    }

    #[test]
    fn response_without_a_status_is_not_of_a_node() {
        assert_eq!(response(&[(STATUS_HEADER, "200")], b"{}"), Ok((200, 2)));
        for headers in [
            &[][..],
            &[(STATUS_HEADER, "fine")],
            &[(STATUS_HEADER, "99")],
        ] {
            let error = response(headers, b"{\"stream\":\"S\",\"seq\":1}").unwrap_err();
            assert!(
                matches!(&error, SendError::Invalid(reason) if reason.contains("orlog-status")),
                "{error:?}"
            );
        }
        let large = response(&[(STATUS_HEADER, "200")], b"123456789").unwrap_err();
        assert_eq!(
            large,
            SendError::NoResponse("the response has more than 8 bytes".to_owned())
        );
    }

    #[test]
    fn response_to_a_signed_request_is_signed_by_the_peer_for_this_request() {
        let (key, other) = (key(), key());
        let request = |headers: &[(&str, &str)], body: &'static str| {
            let headers = headers
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect();
            Message {
                subject: String::new(),
                id: None,
                headers,
                payload: body.into(),
            }
        };
        let [target, proof] = [
            (REQUEST_HEADER, "POST /v1/peer/messages"),
            (SIGNATURE, "sig"),
        ];
        let sent = request(&[target, proof], "{}");
        let check = |signature: Option<String>, status: &str, body: &'static str| {
            let headers = [
                (STATUS_HEADER, Some(status.to_owned())),
                (RESPONSE_SIGNATURE_HEADER, signature),
            ];
            let headers = headers
                .into_iter()
                .filter_map(|(name, value)| Some((name.into(), value?.into())));
            let response = Response {
                headers: headers.collect(),
                payload: body.into(),
            };
            let keys = [other.public_key(), key.public_key()];
            response_of_node(response, 100, Some((&sent, &keys[1..])))
                .map(|response| response.status)
        };
        let signature = |request: &Message| Some(sign_response(&key, request, 200, b"yes"));
        assert_eq!(check(signature(&sent), "200", "yes"), Ok(200));
        let other_target = (REQUEST_HEADER, "GET /.well-known/orlog-node");
        for (signature, status, body) in [
            (None, "200", "yes"),
            (Some("!".to_owned()), "200", "yes"),
            (signature(&sent), "200", "no"),
            (signature(&sent), "403", "yes"),
            (
                Some(sign_response(&other, &sent, 200, b"yes")),
                "200",
                "yes",
            ),
            // Another request with the signature of this one.
            (
                signature(&request(&[other_target, proof], "{}")),
                "200",
                "yes",
            ),
            (
                signature(&request(&[target, target, proof], "{}")),
                "200",
                "yes",
            ),
            (signature(&request(&[target, proof], "{ }")), "200", "yes"),
            (
                signature(&request(&[target, proof, ("content-type", "x")], "{}")),
                "200",
                "yes",
            ),
            (
                signature(&request(&[target, (SIGNATURE, "other")], "{}")),
                "200",
                "yes",
            ),
        ] {
            let error = check(signature, status, body).unwrap_err();
            assert!(
                matches!(&error, SendError::Invalid(reason) if reason.contains("peer refresh")),
                "{error:?}"
            );
        }
    }

    #[test]
    fn failure_states_whether_the_request_was_sent_and_the_remedy() {
        let reason = |error: RequestError| match failure(error, 2_000, 1_000) {
            SendError::NotSent(reason) => format!("not sent: {reason}"),
            SendError::NoResponse(reason) => format!("no response: {reason}"),
            SendError::Invalid(reason) => panic!("{reason}"),
        };
        for (error, start, remedy) in [
            (
                RequestError::NoResponders(String::new()),
                "not sent: ",
                "permission to subscribe",
            ),
            (
                RequestError::TooLarge(String::new()),
                "not sent: ",
                "accepts 1000; raise max_payload",
            ),
            (
                RequestError::TimedOut(String::new()),
                "no response: ",
                "within 5s",
            ),
            (
                RequestError::Unavailable("gone".to_owned()),
                "no response: ",
                "gone",
            ),
        ] {
            let found = reason(error);
            assert!(
                found.starts_with(start) && found.contains(remedy),
                "{found}"
            );
        }
    }
}
