//! Response to a unary call: the message, or the reason why there is none.
//!
//! A status counts as one of the upstream only if the headers or the trailers contain
//! `grpc-status`. The client of tonic also creates statuses of its own, for example for an
//! unsupported encoding, and they look the same. So this module reads the response itself.
//!
//! | response | result |
//! |---|---|
//! | `grpc-status` other than 0 | this status |
//! | HTTP status other than 200 without `grpc-status` | [`GrpcError::Proxy`], by [`grpc_of_http`] |
//! | `grpc-status` 0 with one message, plain or gzip | the message |
//! | message above the size limit, also after decompression | [`GrpcError::ResponseTooLarge`] |
//! | every other | [`GrpcError::ConnectionLost`]: in doubt |

use std::io::Read as _;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use percent_encoding::percent_decode;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::error::GrpcError;
use super::status;
use crate::decisions::grpc_of_http;

/// Length of the prefix of a message: the compressed flag, and the length in four bytes.
const PREFIX_LENGTH: usize = 5;

/// Reads a response; `limit` is the maximum size of the message in bytes.
pub(super) async fn read(response: Response<Body>, limit: usize) -> Result<Bytes, GrpcError> {
    let (head, mut body) = response.into_parts();
    let is_ok = head.status == StatusCode::OK;

    let early_status = received_status(&head.headers);
    match &early_status {
        Some(status) if status.code() != Code::Ok => return Err(status_error(status)),
        // The body is not one of gRPC, for example an HTML page. One of gRPC may end with a status.
        None if !is_ok && !is_grpc(&head.headers) => return Err(proxy_error(head.status)),
        Some(_) | None => {}
    }

    let mut buffer = MessageBuffer::new(limit);
    let mut late_status = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| GrpcError::in_response(&error))?;
        match frame.into_data() {
            Ok(data) => buffer.push(&data)?,
            Err(frame) => {
                late_status = frame.trailers_ref().and_then(received_status);
            }
        }
    }

    match late_status.or(early_status) {
        Some(status) if status.code() == Code::Ok => {
            buffer.into_message(head.headers.get("grpc-encoding"))
        }
        Some(status) => Err(status_error(&status)),
        None if !is_ok => Err(proxy_error(head.status)),
        None => Err(lost("the response ended without a gRPC status")),
    }
}

/// Returns the status in the headers or in the trailers.
fn received_status(headers: &HeaderMap) -> Option<Status> {
    let details = Status::GRPC_STATUS_DETAILS;
    let metadata = MetadataMap::from_headers(headers.clone());
    let is_valid = metadata
        .get_bin(details.as_str())
        .is_none_or(|value| value.to_bytes().is_ok());

    let mut headers = metadata.into_headers();
    if !is_valid {
        // tonic panics if the details are not base64.
        headers.remove(details);
    }

    let message = headers.get(Status::GRPC_MESSAGE);
    if message.is_some_and(|message| percent_decode(message.as_bytes()).decode_utf8().is_err()) {
        // tonic would replace the code, which decides whether the call was executed.
        headers.remove(Status::GRPC_MESSAGE);
    }
    Status::from_header_map(&headers)
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn status_error(status: &Status) -> GrpcError {
    GrpcError::Status(Box::new(status.clone()))
}

fn proxy_error(http: StatusCode) -> GrpcError {
    let message = format!(
        "proxy returned HTTP {} without a gRPC status",
        http.as_u16()
    );
    let code = status::code(grpc_of_http(http.as_u16()));
    GrpcError::Proxy(Box::new(Status::new(code, message)))
}

fn lost(reason: &str) -> GrpcError {
    GrpcError::ConnectionLost(reason.to_owned())
}

/// Received bytes of the only message, with its prefix.
struct MessageBuffer {
    received: BytesMut,
    limit: usize,
}

/// Prefix of a message.
struct Prefix {
    is_compressed: bool,
    length: usize,
}

impl MessageBuffer {
    fn new(limit: usize) -> Self {
        Self {
            received: BytesMut::new(),
            limit,
        }
    }

    /// Appends a part of the body, and rejects a message that is too large or not the only one.
    fn push(&mut self, data: &[u8]) -> Result<(), GrpcError> {
        self.received.extend_from_slice(data);
        let Some(prefix) = Prefix::parse(&self.received)? else {
            return Ok(());
        };

        let mut limit = self.limit;
        if prefix.is_compressed {
            // The limit is that of the decompressed message. Random bytes become a little longer
            // when they are compressed.
            limit = limit.saturating_add(limit / 1000 + 100);
        }
        if prefix.length > limit {
            return Err(GrpcError::ResponseTooLarge);
        }

        // A second message means that the method streams, or that the upstream is broken: in either
        // case the call was executed.
        if self.received.len() > PREFIX_LENGTH + prefix.length {
            return Err(lost("the upstream returned more than one message"));
        }
        Ok(())
    }

    /// Returns the message, decompressed.
    fn into_message(self, encoding: Option<&HeaderValue>) -> Result<Bytes, GrpcError> {
        let Some(prefix) = Prefix::parse(&self.received)? else {
            return Err(lost("the upstream returned OK without a message"));
        };

        let message = self.received.freeze().slice(PREFIX_LENGTH..);
        if message.len() < prefix.length {
            return Err(lost("the upstream returned OK with an incomplete message"));
        }

        if !prefix.is_compressed {
            return Ok(message);
        }
        match encoding.map(HeaderValue::as_bytes) {
            Some(b"gzip") => gunzip(&message, self.limit),
            Some(_) => Err(lost("the response has an encoding other than gzip")),
            None => Err(lost("the response is compressed without grpc-encoding")),
        }
    }
}

impl Prefix {
    /// Parses the prefix; `None`: it is not complete yet.
    fn parse(received: &[u8]) -> Result<Option<Self>, GrpcError> {
        let Some(([flag, length @ ..], _)) = received.split_first_chunk::<PREFIX_LENGTH>() else {
            return Ok(None);
        };

        let is_compressed = match flag {
            0 => false,
            1 => true,
            _ => {
                let reason = format!("the response has no gRPC message: compressed flag {flag}");
                return Err(GrpcError::ConnectionLost(reason));
            }
        };
        Ok(Some(Self {
            is_compressed,
            length: u32::from_be_bytes(*length) as usize,
        }))
    }
}

/// Decompresses a message. It stops above the limit, because a small message may become any size.
fn gunzip(message: &[u8], limit: usize) -> Result<Bytes, GrpcError> {
    let one_too_many = (limit as u64).saturating_add(1);
    let mut decompressed = Vec::new();
    MultiGzDecoder::new(message)
        .take(one_too_many)
        .read_to_end(&mut decompressed)
        .map_err(|error| GrpcError::ConnectionLost(format!("invalid gzip message: {error}")))?;

    if decompressed.len() > limit {
        return Err(GrpcError::ResponseTooLarge);
    }
    Ok(decompressed.into())
}
