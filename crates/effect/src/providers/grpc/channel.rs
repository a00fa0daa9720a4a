//! Connection of a gRPC provider: sends messages as bytes and returns bytes or an error.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use futures::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::uri::PathAndQuery;
use http::{Method, Uri, Version};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use tokio::net::TcpStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{EncodeBody, EncodeBuf, Encoder};
use tonic::metadata::{GRPC_CONTENT_TYPE, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt as _;

use super::error::{GrpcError, chain};
use super::response;
use crate::egress;
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

        let response = channel
            .oneshot(request(call))
            .await
            .map_err(|error| GrpcError::before_response(&error))?;
        response::read(response, self.endpoint.max_response).await
    }
}

/// Returns the HTTP request of a call, with the headers that the client of tonic sends.
fn request(call: GrpcCall) -> http::Request<Body> {
    let path: PathAndQuery = call
        .path
        .parse()
        .expect("service and method names are valid paths");

    let mut metadata = tonic::Request::new(());
    *metadata.metadata_mut() = MetadataMap::from_headers(call.headers);
    metadata.set_timeout(call.timeout.min(LONGEST));

    let message = stream::iter([Ok(Bytes::from(call.message))]);
    let body = EncodeBody::new_client(BytesEncoder, message, None, None);

    let mut request = http::Request::new(Body::new(body));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = path.into();

    let (metadata, _, ()) = metadata.into_parts();
    let headers = request.headers_mut();
    *headers = metadata.into_headers();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    request
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

/// Encoder that passes messages as bytes.
struct BytesEncoder;

impl Encoder for BytesEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Calls to a server that writes HTTP/2 frames by hand: libraries do not write most of them.

    use std::io::Write as _;
    use std::sync::Arc;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use orlog_testkit::grpc_server::{GrpcServerBuilder, Handler, Reflection};
    use orlog_testkit::wait::within;
    use parking_lot::Mutex;
    use prost_reflect::DescriptorPool;
    use serde_json::json;
    use tokio::io::{self, AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::super::schema::Schema;
    use super::super::status::GrpcStatus;
    use super::*;
    use crate::provider::TransientCause;
    use crate::secret::SecretScrubber;

    const PROTO: &str = include_str!("../../../../../tests/protos/payments.proto");

    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;

    const ACK: u8 = 1;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;

    /// Stream of the only call of a connection.
    const STREAM: u32 = 1;

    const MAX_RESPONSE: usize = 1000;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// Returns a frame of headers or trailers, without compression.
    fn headers(flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        frame(HEADERS, flags | END_HEADERS, STREAM, &block)
    }

    fn message(flag: u8, bytes: &[u8]) -> Vec<u8> {
        let mut message = vec![flag];
        message.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        message.extend(bytes);
        message
    }

    /// Returns a response with status 200, a body and trailers.
    fn response(encoding: Option<&str>, body: &[u8], trailers: &[(&str, &str)]) -> Vec<u8> {
        let mut fields = vec![(":status", "200"), ("content-type", "application/grpc")];
        fields.extend(encoding.map(|encoding| ("grpc-encoding", encoding)));

        let frames = [
            headers(0, &fields),
            frame(DATA, 0, STREAM, body),
            headers(END_STREAM, trailers),
        ];
        frames.concat()
    }

    const OK: &[(&str, &str)] = &[("grpc-status", "0")];

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn gzip_response(bytes: &[u8]) -> Vec<u8> {
        response(Some("gzip"), &message(1, &gzip(bytes)), OK)
    }

    fn go_away(last_stream: u32) -> Vec<u8> {
        let mut payload = last_stream.to_be_bytes().to_vec();
        payload.extend(u32::from(h2::Reason::NO_ERROR).to_be_bytes());
        frame(GOAWAY, 0, 0, &payload)
    }

    /// Receives one call and writes the response, then closes the connection.
    async fn serve(listener: TcpListener, response: Vec<u8>) -> io::Result<()> {
        let (mut stream, _) = listener.accept().await?;
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;

        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await?;

            let kind = head[3];
            let flags = head[4];
            if kind == SETTINGS && flags & ACK == 0 {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
            } else if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
                break;
            }
        }

        stream.write_all(&response).await?;
        stream.shutdown().await?;
        // A closed socket would discard what the client has not read yet.
        io::copy(&mut stream, &mut io::sink()).await?;
        Ok(())
    }

    /// Sends a call to a server that writes these frames.
    async fn call(response: Vec<u8>) -> Result<Bytes, GrpcError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, response));

        send(&format!("http://{address}"), Vec::new()).await
    }

    /// Sends a call with an encoded message.
    async fn send(endpoint: &str, message: Vec<u8>) -> Result<Bytes, GrpcError> {
        let grpc = GrpcChannel::new(GrpcEndpoint {
            endpoint: endpoint.parse().unwrap(),
            tls: TlsConfig::default(),
            guarded: false,
            max_request: 100,
            max_response: MAX_RESPONSE,
        });
        let call = GrpcCall {
            path: "/payments.v1.Payments/Charge".to_owned(),
            headers: HeaderMap::new(),
            message,
            timeout: Duration::from_secs(30),
        };

        let channel = grpc.channel().unwrap();
        within("call", grpc.call(channel, call)).await
    }

    /// Sends a call whose response is in doubt, and returns the reason.
    async fn call_in_doubt(response: Vec<u8>) -> String {
        match call(response).await {
            Err(GrpcError::ConnectionLost(reason)) => reason,
            other => panic!("not in doubt: {other:?}"),
        }
    }

    /// Returns the provider error of a status by the table of statuses.
    fn classify(result: Result<Bytes, GrpcError>) -> ProviderError {
        let Err(GrpcError::Status(status) | GrpcError::Proxy(status)) = result else {
            panic!("no status: {result:?}");
        };
        let schema = Schema::new(DescriptorPool::new());
        GrpcStatus::new("pay", &status, &schema, &SecretScrubber::default())
            .classify(&[])
            .unwrap_err()
    }

    fn trouble(error: &ProviderError) -> Option<TransientCause> {
        match error {
            ProviderError::Transient { trouble, .. } => Some(*trouble),
            ProviderError::Permanent { .. } | ProviderError::Abandoned { .. } => None,
        }
    }

    #[tokio::test]
    async fn server_receives_the_message_and_the_metadata() {
        let (sender, received) = oneshot::channel();
        let sender = Mutex::new(Some(sender));
        let handler: Handler = Arc::new(move |call| {
            let sender = sender.lock().take().expect("one call");
            sender.send(call).expect("the test waits for the call");
            Box::pin(std::future::ready(Ok(json!({ "receipt": "r-1" }))))
        });
        let server = GrpcServerBuilder::new(PROTO, Reflection::No)
            .start(handler)
            .await;

        // Field 2 of the request is the amount, field 1 of the response the receipt.
        let response = send(&server.endpoint(), vec![0x10, 5]).await.unwrap();
        assert_eq!(response, b"\x0a\x03r-1".as_slice());

        let received = received.await.unwrap();
        assert_eq!(received.message["amount"], "5");
        for (name, expected) in [("te", "trailers"), ("grpc-timeout", "30000000u")] {
            assert_eq!(received.metadata.get(name).unwrap(), expected);
        }
        assert!(received.metadata.get("content-length").is_none());
    }

    #[tokio::test]
    async fn http_status_of_a_proxy_is_mapped_to_a_code() {
        use TransientCause::{ReportedUnavailable, ResponseLost};

        for (http, code, expected) in [
            ("400", "internal", Some(ResponseLost)),
            ("401", "unauthenticated", None),
            ("403", "permission_denied", None),
            ("404", "unimplemented", None),
            ("429", "unavailable", Some(ReportedUnavailable)),
            ("502", "unavailable", Some(ReportedUnavailable)),
            ("503", "unavailable", Some(ReportedUnavailable)),
            ("504", "unavailable", Some(ReportedUnavailable)),
            ("302", "unknown", Some(ResponseLost)),
            ("500", "unknown", Some(ResponseLost)),
        ] {
            let page = [
                headers(0, &[(":status", http), ("content-type", "text/html")]),
                frame(DATA, END_STREAM, STREAM, b"<html>proxy</html>"),
            ];
            let result = call(page.concat()).await;
            assert!(matches!(result, Err(GrpcError::Proxy(_))), "{http}");

            let error = classify(result);
            assert_eq!(error.failure().code, format!("grpc_{code}"), "{http}");
            assert_eq!(trouble(&error), expected, "{http}");
            let message = &error.failure().message;
            let reason = format!(": proxy returned HTTP {http} without a gRPC status");
            assert!(message.ends_with(&reason), "{message}");
        }
    }

    #[tokio::test]
    async fn status_of_the_upstream_takes_precedence_over_the_http_status() {
        let fields = [
            (":status", "404"),
            ("content-type", "application/grpc"),
            ("grpc-status", "13"),
        ];
        let early = call(headers(END_STREAM, &fields)).await;
        assert!(matches!(early, Err(GrpcError::Status(_))), "{early:?}");
        assert_eq!(classify(early).failure().code, "grpc_internal");

        let late = [
            headers(0, &fields[..2]),
            headers(END_STREAM, &[("grpc-status", "13")]),
        ];
        let late = call(late.concat()).await;
        assert!(matches!(late, Err(GrpcError::Status(_))), "{late:?}");
        assert_eq!(classify(late).failure().code, "grpc_internal");
    }

    #[tokio::test]
    async fn refused_stream_is_in_doubt() {
        let reason = u32::from(h2::Reason::REFUSED_STREAM).to_be_bytes();
        // HAProxy rejects a stream whose connection to the upstream breaks after the call.
        let result = call(frame(RST_STREAM, 0, STREAM, &reason)).await;
        let rejected = result.unwrap_err();
        assert!(
            matches!(rejected, GrpcError::RefusedStream(_)),
            "{rejected:?}"
        );
        let error = rejected.into_provider_error("pay");
        let message = &error.failure().message;
        assert!(message.contains("refused stream"), "{message}");
        assert_eq!(trouble(&error), Some(TransientCause::ReportedUnavailable));

        let reason = u32::from(h2::Reason::CANCEL).to_be_bytes();
        call_in_doubt(frame(RST_STREAM, 0, STREAM, &reason)).await;
    }

    #[tokio::test]
    async fn refused_stream_after_the_headers_is_in_doubt() {
        let reason = u32::from(h2::Reason::REFUSED_STREAM).to_be_bytes();
        let frames = [
            headers(
                0,
                &[(":status", "200"), ("content-type", "application/grpc")],
            ),
            frame(RST_STREAM, 0, STREAM, &reason),
        ];
        call_in_doubt(frames.concat()).await;
    }

    #[tokio::test]
    async fn go_away_proves_that_only_later_streams_are_not_executed() {
        let unprocessed = call(go_away(0)).await;
        assert!(
            matches!(unprocessed, Err(GrpcError::Unreachable(_))),
            "{unprocessed:?}"
        );

        // The server may have processed the call before it closed the connection.
        call_in_doubt(go_away(STREAM)).await;
    }

    #[tokio::test]
    async fn response_without_a_status_of_the_upstream_is_in_doubt() {
        let plain = message(0, b"receipt");
        let packed = message(1, b"receipt");
        for (frames, expected) in [
            (response(None, &plain, &[]), "without a gRPC status"),
            (response(None, b"<html>ok</html>", OK), "compressed flag 60"),
            (response(None, &plain[..8], OK), "an incomplete message"),
            (response(None, &[], OK), "OK without a message"),
            (response(None, &packed, OK), "without grpc-encoding"),
            (response(Some("zstd"), &packed, OK), "other than gzip"),
            (response(Some("gzip"), &packed, OK), "invalid gzip message"),
        ] {
            let reason = call_in_doubt(frames).await;
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }

    #[tokio::test]
    async fn status_of_the_upstream_is_returned() {
        let trailers = [
            ("grpc-status", "5"),
            ("grpc-message", "no such order"),
            ("grpc-status-details-bin", "not base64!"),
        ];
        for encoding in [None, Some("gzip"), Some("zstd")] {
            let missing = classify(call(response(encoding, &[], &trailers)).await);
            assert_eq!(missing.failure().code, "grpc_not_found");
            assert!(missing.failure().message.ends_with("no such order"));
        }
    }

    #[tokio::test]
    async fn status_whose_message_is_not_unicode_keeps_its_code() {
        let trailers = [("grpc-status", "5"), ("grpc-message", "no%ffsuch order")];
        let missing = classify(call(response(None, &[], &trailers)).await);
        assert_eq!(missing.failure().code, "grpc_not_found");
        assert!(missing.failure().message.ends_with("NOT_FOUND"));
    }

    #[tokio::test]
    async fn only_one_message_within_the_limit_is_accepted() {
        let largest = [7; MAX_RESPONSE];
        let plain = call(response(None, &message(0, &largest), OK)).await;
        assert_eq!(plain.unwrap(), largest.as_slice());

        let large = message(0, &[7; MAX_RESPONSE + 1]);
        let large = call(response(None, &large, OK)).await;
        assert!(
            matches!(large, Err(GrpcError::ResponseTooLarge)),
            "{large:?}"
        );

        let two = [message(0, b"one"), message(0, b"two")].concat();
        let reason = call_in_doubt(response(None, &two, OK)).await;
        assert!(reason.contains("more than one message"), "{reason}");
    }

    #[tokio::test]
    async fn gzip_message_is_decompressed_within_the_limit() {
        let small = call(gzip_response(b"receipt")).await;
        assert_eq!(small.unwrap(), "receipt");

        // Its compressed form is longer than the limit.
        let mut random = fastrand::Rng::with_seed(1);
        let largest: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(MAX_RESPONSE)
            .collect();
        let longest = call(gzip_response(&largest)).await;
        assert_eq!(longest.unwrap(), largest);

        for size in [MAX_RESPONSE + 1, 8 << 20] {
            let bomb = call(gzip_response(&vec![0; size])).await;
            assert!(
                matches!(bomb, Err(GrpcError::ResponseTooLarge)),
                "{size}: {bomb:?}"
            );
        }
    }

    #[tokio::test]
    async fn plain_message_is_accepted_with_any_encoding() {
        let plain = response(Some("zstd"), &message(0, b"receipt"), OK);
        assert_eq!(call(plain).await.unwrap(), "receipt");
    }
}
