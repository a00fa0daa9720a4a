//! A real gRPC server without generated code: descriptors come from the text of a `.proto`, messages are JSON on this side.

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

/// A call that came in.
#[derive(Clone, Debug)]
pub struct Called {
    /// `Charge`.
    pub method: String,
    /// What came along.
    pub metadata: MetadataMap,
    /// The message.
    pub message: Value,
}

/// What a handler gives.
pub type Answering = Pin<Box<dyn Future<Output = Result<Value, Status>> + Send>>;

/// Answers calls.
pub type Handler = Arc<dyn Fn(Called) -> Answering + Send + Sync>;

/// Which reflection a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflection {
    /// `grpc.reflection.v1`.
    V1,
    /// `grpc.reflection.v1alpha` only.
    V1Alpha,
    /// None.
    No,
}

/// A server that serves `payments.v1.Payments` until it is closed or its runtime ends.
pub struct GrpcServer {
    /// Where it is.
    pub address: SocketAddr,
    serving: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

/// How to start one.
pub struct Opening {
    /// The text of the `.proto`.
    pub proto: &'static str,
    /// Which reflection it offers.
    pub reflection: Reflection,
    /// Its certificates; without them it speaks plainly.
    pub tls: Option<ServerTlsConfig>,
    /// Where it shall be; anywhere where absent.
    pub at: Option<SocketAddr>,
}

impl Opening {
    /// A plain one.
    #[must_use]
    pub fn of(proto: &'static str, reflection: Reflection) -> Self {
        Self { proto, reflection, tls: None, at: None }
    }

    /// Starts it.
    ///
    /// # Panics
    /// When the port is taken or the text is no `.proto`.
    pub async fn open(self, handler: Handler) -> GrpcServer {
        let at = self.at.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = TcpListener::bind(at).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let set = descriptors(self.proto);
        let pool = DescriptorPool::decode(set.as_slice()).expect("valid descriptors");
        let mut server = Server::builder();
        if let Some(tls) = self.tls {
            server = server.tls_config(tls).expect("the certificates fit");
        }
        let mut routes = server.add_service(Payments { pool, handler });
        let reflection = || {
            let set = prost_types::FileDescriptorSet::decode(set.as_slice()).expect("valid descriptors");
            tonic_reflection::server::Builder::configure().register_file_descriptor_set(set)
        };
        routes = match self.reflection {
            Reflection::V1 => routes.add_service(reflection().build_v1().expect("it is described")),
            Reflection::V1Alpha => routes.add_service(reflection().build_v1alpha().expect("it is described")),
            Reflection::No => routes,
        };
        let (end, ended) = oneshot::channel();
        let serving = tokio::spawn(async move {
            // Whoever forgets the server lets it serve on.
            let end = async {
                if ended.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let incoming = TcpIncoming::from(listener);
            routes.serve_with_incoming_shutdown(incoming, end).await.expect("it serves");
        });
        GrpcServer { address, serving, end }
    }
}

impl GrpcServer {
    /// Its address as an endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it, and waits until its connections are closed and its port is free.
    ///
    /// # Panics
    /// When it has ended already.
    pub async fn close(self) {
        self.end.send(()).expect("it serves");
        self.serving.await.expect("it ends well");
    }
}

/// The encoded `FileDescriptorSet` of a `.proto`, as `protoc --include_imports --descriptor_set_out` writes it.
///
/// # Panics
/// When the text is none.
#[must_use]
pub fn descriptors(proto: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("payments.proto");
    std::fs::write(&path, proto).expect("the folder is ours");
    let set = protox::compile([&path], [folder.path()]).expect("a valid .proto");
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
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let service = self.pool.get_service_by_name(Self::NAME).expect("it is described");
        let Some(method) = service.methods().find(|method| method.name() == name) else {
            return Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) });
        };
        let (input, handler) = (method.input(), Arc::clone(&self.handler));
        Box::pin(async move {
            let answers = tower::service_fn(move |request: Request<DynamicMessage>| {
                answer(method.clone(), Arc::clone(&handler), request)
            });
            Ok(tonic::server::Grpc::new(Dynamic { input }).unary(answers, request).await)
        })
    }
}

async fn answer(
    method: MethodDescriptor,
    handler: Handler,
    request: Request<DynamicMessage>,
) -> Result<Response<DynamicMessage>, Status> {
    let (metadata, _, message) = request.into_parts();
    let message = serde_json::to_value(&message).expect("a message is JSON");
    let answer = handler(Called { method: method.name().to_owned(), metadata, message }).await?;
    let answer = if answer.is_null() { Value::Object(serde_json::Map::new()) } else { answer };
    let answer = DynamicMessage::deserialize(method.output(), answer).expect("the answer fits");
    Ok(Response::new(answer))
}

#[derive(Clone)]
struct Dynamic {
    input: MessageDescriptor,
}

impl Codec for Dynamic {
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

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.input.clone(), buffer);
        message.map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
