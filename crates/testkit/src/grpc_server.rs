//! Real gRPC server without generated code: descriptors come from the text of a `.proto`, messages are
//! JSON in the test.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request as HttpRequest, Response as HttpResponse};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// Received call.
#[derive(Clone, Debug)]
pub struct ReceivedCall {
    /// Method name, for example `Charge`.
    pub method: String,
    /// Metadata of the call.
    pub metadata: MetadataMap,
    /// Message.
    pub message: Value,
}

/// Future of a handler.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Value, Status>> + Send>>;

/// Handler of calls.
pub type Handler = Arc<dyn Fn(ReceivedCall) -> CallFuture + Send + Sync>;

/// Reflection service of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflection {
    /// `grpc.reflection.v1`.
    V1,
    /// `grpc.reflection.v1alpha` only.
    V1Alpha,
    /// No reflection.
    No,
}

/// Server of `payments.v1.Payments`; it serves until it is closed or its runtime ends.
pub struct GrpcServer {
    /// Listen address.
    pub address: SocketAddr,
    serving: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

/// Builder of a server.
pub struct GrpcServerBuilder {
    /// Text of the `.proto`.
    pub proto: &'static str,
    /// Reflection service.
    pub reflection: Reflection,
    /// TLS configuration; without it the server uses plaintext.
    pub tls: Option<ServerTlsConfig>,
    /// Listen address. Default: any free port.
    pub at: Option<SocketAddr>,
}

impl GrpcServerBuilder {
    /// Creates the configuration of a plaintext server.
    #[must_use]
    pub fn new(proto: &'static str, reflection: Reflection) -> Self {
        Self {
            proto,
            reflection,
            tls: None,
            at: None,
        }
    }

    /// Starts the server.
    ///
    /// # Panics
    /// If the port is in use or the text is not a valid `.proto`.
    pub async fn start(self, handler: Handler) -> GrpcServer {
        let at = self
            .at
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = TcpListener::bind(at).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let set = descriptors(self.proto);
        let pool = DescriptorPool::decode(set.as_slice()).expect("valid descriptors");
        let mut server = Server::builder();
        if let Some(tls) = self.tls {
            server = server.tls_config(tls).expect("a valid TLS configuration");
        }
        let mut routes = server.add_service(Payments { pool, handler });
        let reflection = || {
            let set =
                prost_types::FileDescriptorSet::decode(set.as_slice()).expect("valid descriptors");
            tonic_reflection::server::Builder::configure().register_file_descriptor_set(set)
        };
        routes = match self.reflection {
            Reflection::V1 => routes.add_service(
                reflection()
                    .build_v1()
                    .expect("the service is in the descriptors"),
            ),
            Reflection::V1Alpha => routes.add_service(
                reflection()
                    .build_v1alpha()
                    .expect("the service is in the descriptors"),
            ),
            Reflection::No => routes,
        };
        let (end, ended) = oneshot::channel();
        let serving = tokio::spawn(async move {
            // A server that is dropped without `close` continues to serve.
            let end = async {
                if ended.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let incoming = TcpIncoming::from(listener);
            routes
                .serve_with_incoming_shutdown(incoming, end)
                .await
                .expect("the server runs");
        });
        GrpcServer {
            address,
            serving,
            end,
        }
    }
}

impl GrpcServer {
    /// Returns the endpoint URL of the server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops the server and waits until its connections are closed and its port is free.
    ///
    /// # Panics
    /// If the server has already ended.
    pub async fn close(self) {
        self.end.send(()).expect("the server runs");
        self.serving.await.expect("the server ends without a panic");
    }
}

/// Returns the encoded `FileDescriptorSet` of a `.proto`, as `protoc --include_imports
/// --descriptor_set_out` writes it.
///
/// # Panics
/// If the text is not a valid `.proto`.
#[must_use]
pub fn descriptors(proto: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("payments.proto");
    std::fs::write(&path, proto).expect("the directory is writable");
    let set = protox::compile([&path], [dir.path()]).expect("a valid .proto");
    set.encode_to_vec()
}

#[derive(Clone)]
struct Payments {
    pool: DescriptorPool,
    handler: Handler,
}

impl NamedService for Payments {
    const NAME: &'static str = "payments.v1.Payments";
}

impl tower::Service<HttpRequest<Body>> for Payments {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let name = request
            .uri()
            .path()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let service = self
            .pool
            .get_service_by_name(Self::NAME)
            .expect("the service is in the descriptors");
        let Some(method) = service.methods().find(|method| method.name() == name) else {
            return Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) });
        };
        let (input, handler) = (method.input(), Arc::clone(&self.handler));
        Box::pin(async move {
            let unary_service = tower::service_fn(move |request: Request<DynamicMessage>| {
                reply(method.clone(), Arc::clone(&handler), request)
            });
            Ok(tonic::server::Grpc::new(DynamicCodec { input })
                .unary(unary_service, request)
                .await)
        })
    }
}

async fn reply(
    method: MethodDescriptor,
    handler: Handler,
    request: Request<DynamicMessage>,
) -> Result<Response<DynamicMessage>, Status> {
    let (metadata, _, message) = request.into_parts();
    let message = serde_json::to_value(&message).expect("a message is JSON");
    let reply = handler(ReceivedCall {
        method: method.name().to_owned(),
        metadata,
        message,
    })
    .await?;
    let reply = if reply.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        reply
    };
    let reply = DynamicMessage::deserialize(method.output(), reply)
        .expect("the response matches the descriptor");
    Ok(Response::new(reply))
}

#[derive(Clone)]
struct DynamicCodec {
    input: MessageDescriptor,
}

impl Codec for DynamicCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for DynamicCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for DynamicCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.input.clone(), buffer);
        message
            .map(Some)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
