//! The part of a gRPC provider that holds the connection: messages as bytes go out, bytes or a fault come back.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
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

use crate::egress::{self, Refused};
use crate::http::{Certificates, Tls};
use crate::provider::Refusal;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a connection with calls under way is asked whether it still lives, and how long it may take to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// `grpc-timeout` has eight digits, and no call takes longer.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Where an upstream is and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) endpoint: Url,
    pub(crate) tls: Tls,
    /// The endpoint must be a public address.
    pub(crate) guarded: bool,
    /// The longest message that is sent, in bytes.
    pub(crate) max_request: usize,
    /// The longest message that is read, in bytes.
    pub(crate) max_response: usize,
}

/// The connection to one upstream, made when it is first needed, and anew when a certificate has changed.
pub(crate) struct Line {
    place: Place,
    made: Mutex<Option<(Certificates, Channel)>>,
}

/// One call.
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) message: Vec<u8>,
    pub(crate) timeout: Duration,
}

/// A call that brought no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No connection came about: nothing was done.
    Unreachable(String),
    /// The endpoint may not be reached.
    Forbidden(Refused),
    /// The answer was lost: nobody knows.
    Lost(String),
    /// There is an answer, longer than may be read.
    TooLong,
    /// The request is longer than may be sent: nothing was done.
    Oversized(String),
    /// The upstream says so itself.
    Told(Box<Status>),
}

impl Line {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, made: Mutex::new(None) }
    }

    /// A channel with the certificates as they are now.
    pub(crate) fn channel(&self) -> Result<Channel, Refusal> {
        let read = self.place.tls.read()?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, channel)) = made.as_ref().filter(|(known, _)| *known == read) {
            return Ok(channel.clone());
        }
        let channel = self.place.channel(&read).map_err(|error| {
            Refusal::retry("tls", format!("the certificates cannot be used: {}", chain(&error)))
        })?;
        *made = Some((read, channel.clone()));
        Ok(channel)
    }

    /// Makes a call with one message and waits for the one that answers.
    pub(crate) async fn call(&self, channel: Channel, call: Call) -> Result<Bytes, Fault> {
        if call.message.len() > self.place.max_request {
            let (length, most) = (call.message.len(), self.place.max_request);
            return Err(Fault::Oversized(format!("the request has {length} bytes, more than {most}")));
        }
        let path: PathAndQuery = call.path.parse().expect("names of services and methods are plain");
        let mut request = Request::new(Bytes::from(call.message));
        *request.metadata_mut() = MetadataMap::from_headers(call.headers);
        request.set_timeout(call.timeout.min(LONGEST));
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.place.max_response);
        grpc.ready().await.map_err(|error| fault(Status::from_error(Box::new(error))))?;
        let mut answers = grpc.server_streaming(request, path, Raw).await.map_err(fault)?.into_inner();
        // Only here is the limit on our side: a status before the first message is the upstream's own.
        let answer = answers.message().await.map_err(|status| match status.code() {
            Code::OutOfRange if status.message().contains("message length too large") => Fault::TooLong,
            _ => fault(status),
        })?;
        match (answer, answers.message().await.map_err(fault)?) {
            (Some(answer), None) => Ok(answer),
            (None, _) => Err(Fault::Lost("it answered OK without a message".to_owned())),
            (Some(_), Some(_)) => Err(Fault::Lost("it answered with more than one message".to_owned())),
        }
    }
}

impl Place {
    fn channel(&self, [ca, cert, key]: &Certificates) -> Result<Channel, tonic::transport::Error> {
        let mut endpoint = Endpoint::from_shared(self.endpoint.as_str().trim_end_matches('/').to_owned())?
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
                (Some(cert), Some(key)) => tls.identity(Identity::from_pem(cert.expose(), key.expose())),
                (Some(_) | None, _) => tls,
            };
            endpoint = endpoint.tls_config(tls)?;
        }
        let guarded = self.guarded;
        let dial = tower::service_fn(move |uri: Uri| dial(uri, guarded));
        Ok(endpoint.connect_with_connector_lazy(dial))
    }
}

/// Connects to exactly the addresses that were judged.
async fn dial(uri: Uri, guarded: bool) -> Result<TokioIo<TcpStream>, Box<dyn StdError + Send + Sync>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let connected = async {
        let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
        if guarded {
            egress::judge(host, &found)?;
        }
        let stream = TcpStream::connect(found.as_slice()).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    };
    tokio::time::timeout(CONNECT_TIMEOUT, connected).await?
}

/// A status of our own side has a source, one that the upstream sent has none.
fn fault(status: Status) -> Fault {
    let Some(source) = status.source() else { return Fault::Told(Box::new(status)) };
    if let Some(refused) = egress::refusal(source) {
        return Fault::Forbidden(refused.clone());
    }
    if causes(source).any(<dyn StdError>::is::<ConnectError>) {
        Fault::Unreachable(chain(source))
    } else {
        Fault::Lost(chain(source))
    }
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// What went wrong and why, without saying anything twice.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in causes(error) {
        let text = error.to_string();
        if texts.last().is_none_or(|last| !last.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

/// Messages as the bytes that they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
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

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
