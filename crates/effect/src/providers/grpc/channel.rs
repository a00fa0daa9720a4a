//! Connection of a gRPC provider: sends messages as bytes and returns bytes or an error.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use reqwest::Url;
use reqwest::header::HeaderMap;
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status};

use crate::egress::{self, EgressDenied};
use crate::http::{CertificateCache, Certificates, TlsConfig};
use crate::provider::ProviderError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of keep-alive pings on a connection with active calls, and timeout of the response.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Maximum timeout of a call: `grpc-timeout` has eight digits.
const LONGEST: Duration = Duration::from_hours(24 * 365);

#[derive(Clone, Debug)]
pub(crate) struct GrpcEndpoint {
    pub(crate) endpoint: Url,
    pub(crate) tls: TlsConfig,
    /// Whether the endpoint must have a public address.
    pub(crate) guarded: bool,
    pub(crate) max_request: usize,
    pub(crate) max_response: usize,
}

/// Connection to one upstream; created on first use, and recreated after a change of certificates.
pub(crate) struct GrpcChannel {
    endpoint: GrpcEndpoint,
    connections: CertificateCache<Channel>,
}

pub(crate) struct GrpcCall {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) message: Vec<u8>,
    pub(crate) timeout: Duration,
}

/// Error of a call without a response.
#[derive(Debug)]
pub(crate) enum GrpcError {
    /// No connection was established: nothing was executed.
    Unreachable(String),
    /// Egress rules deny the endpoint.
    Forbidden(EgressDenied),
    /// The response was lost: the outcome is unknown.
    ConnectionLost(String),
    /// The response exceeds the size limit.
    ResponseTooLarge,
    /// The request exceeds the size limit: nothing was executed.
    Oversized(String),
    /// The upstream returned this status.
    Status(Box<Status>),
}

impl GrpcError {
    /// Returns the provider error; `label` names the call.
    pub(crate) fn into_provider_error(self, label: &str) -> ProviderError {
        match self {
            Self::Unreachable(reason) => {
                ProviderError::unavailable("unreachable", format!("{label}: {reason}"))
            }
            Self::Forbidden(denied) => {
                ProviderError::permanent("egress_denied", format!("{label}: {denied}"))
            }
            Self::Oversized(reason) => {
                ProviderError::permanent("invalid_payload", format!("{label}: {reason}"))
            }
            Self::ConnectionLost(reason) => {
                ProviderError::response_lost("transport", format!("{label}: {reason}"))
            }
            Self::ResponseTooLarge => ProviderError::response_lost(
                "transport",
                format!("{label}: the response is too large"),
            ),
            Self::Status(status) => {
                ProviderError::response_lost("transport", format!("{label}: {status}"))
            }
        }
    }
}

impl GrpcChannel {
    pub(crate) fn new(endpoint: GrpcEndpoint) -> Self {
        let connections = CertificateCache::new(endpoint.tls.clone());
        Self {
            endpoint,
            connections,
        }
    }

    pub(crate) fn channel(&self) -> Result<Channel, ProviderError> {
        self.connections
            .get(|read| self.endpoint.channel(read).map_err(|error| chain(&error)))
    }

    /// Sends a message and waits for the response message.
    pub(crate) async fn call(&self, channel: Channel, call: GrpcCall) -> Result<Bytes, GrpcError> {
        if call.message.len() > self.endpoint.max_request {
            let length = call.message.len();
            let limit = self.endpoint.max_request;
            return Err(GrpcError::Oversized(format!(
                "the request has {length} bytes, the limit is {limit}"
            )));
        }

        let path: PathAndQuery = call
            .path
            .parse()
            .expect("service and method names are valid paths");

        let mut request = Request::new(Bytes::from(call.message));
        *request.metadata_mut() = MetadataMap::from_headers(call.headers);
        request.set_timeout(call.timeout.min(LONGEST));

        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.endpoint.max_response);
        grpc.ready()
            .await
            .map_err(|error| fault(Status::from_error(Box::new(error))))?;

        let mut responses = grpc
            .server_streaming(request, path, BytesCodec)
            .await
            .map_err(fault)?
            .into_inner();

        // The size limit applies only here: a status before the first message comes from the
        // upstream.
        let response = responses
            .message()
            .await
            .map_err(|status| match status.code() {
                Code::OutOfRange if status.message().contains("message length too large") => {
                    GrpcError::ResponseTooLarge
                }
                _ => fault(status),
            })?;

        // A unary call has one message. A second one means that the method streams, or that the
        // upstream is broken: in either case the call was executed.
        match (response, responses.message().await.map_err(fault)?) {
            (Some(response), None) => Ok(response),
            (None, _) => Err(GrpcError::ConnectionLost(
                "the upstream returned OK without a message".to_owned(),
            )),
            (Some(_), Some(_)) => Err(GrpcError::ConnectionLost(
                "the upstream returned more than one message".to_owned(),
            )),
        }
    }
}

impl GrpcEndpoint {
    fn channel(&self, [ca, cert, key]: &Certificates) -> Result<Channel, tonic::transport::Error> {
        let mut endpoint =
            Endpoint::from_shared(self.endpoint.as_str().trim_end_matches('/').to_owned())?
                .user_agent(concat!("orlog/", env!("CARGO_PKG_VERSION")))?
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE);

        if self.endpoint.scheme() == "https" {
            let tls = ClientTlsConfig::new().timeout(CONNECT_TIMEOUT);
            let tls = match ca {
                Some(ca) => tls.ca_certificate(Certificate::from_pem(ca.expose())),
                None => tls.with_native_roots(),
            };
            let tls = match (cert, key) {
                (Some(cert), Some(key)) => {
                    tls.identity(Identity::from_pem(cert.expose(), key.expose()))
                }
                (Some(_) | None, _) => tls,
            };
            endpoint = endpoint.tls_config(tls)?;
        }

        // The connection is established with the first call: a start of the node does not wait for
        // its upstreams.
        let guarded = self.guarded;
        let dial = tower::service_fn(move |uri: Uri| dial(uri, guarded));
        Ok(endpoint.connect_with_connector_lazy(dial))
    }
}

/// Connects to exactly the checked addresses.
async fn dial(
    uri: Uri,
    guarded: bool,
) -> Result<TokioIo<TcpStream>, Box<dyn StdError + Send + Sync>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri
        .port_u16()
        .unwrap_or(if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        });

    let connected = async {
        let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
        if guarded {
            egress::check_addresses(host, &found)?;
        }
        let stream = TcpStream::connect(found.as_slice()).await?;

        // Nagle's algorithm would delay small messages.
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    };

    tokio::time::timeout(CONNECT_TIMEOUT, connected).await?
}

/// Messages of a status that stands for the HTTP status of a proxy, which may have forwarded the
/// call.
const STATUS_OF_PROXY: [&str; 2] = [
    "grpc-status header missing, mapped from HTTP status code 502",
    "grpc-status header missing, mapped from HTTP status code 504",
];

/// Maps a status. A local status has a source, a status of the upstream has none.
fn fault(status: Status) -> GrpcError {
    // The client library creates this status. It has no source, and would count as one of the
    // upstream.
    if STATUS_OF_PROXY.contains(&status.message()) {
        return GrpcError::ConnectionLost(status.message().to_owned());
    }

    let Some(source) = status.source() else {
        return GrpcError::Status(Box::new(status));
    };

    if let Some(denied) = egress::egress_error(source) {
        return GrpcError::Forbidden(denied.clone());
    }

    if egress::causes(source).any(<dyn StdError>::is::<ConnectError>) {
        GrpcError::Unreachable(chain(source))
    } else {
        GrpcError::ConnectionLost(chain(source))
    }
}

/// Returns an error with its causes, without duplicates.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in egress::causes(error) {
        let text = error.to_string();
        if texts.last().is_none_or(|last| !last.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

/// Codec that passes messages as bytes.
#[derive(Clone, Copy, Debug, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
