//! HTTP server: accepts connections, with limits of their number, of the handshake time, of the
//! header read time and of the write time.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse as _;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use orlog_bus::RetryLog;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use super::connections::{ConnectionLimits, Connections, Place, UpgradedConnection};
use super::problem::{Code, Problem};
use super::request_info::{LocalAddress, PeerAddress};
use orlog_node::tls::pods::PodCertificate;
use orlog_node::tls::{Certificates, NodeTls};

/// Routes that a reserved place serves.
const RESERVED_ROUTES: [&str; 3] = ["/health", "/ready", "/metrics"];
/// Timeout to read the header of a request, and of idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout to read the header of a request on a reserved place.
const RESERVED_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that receives nothing for this time while a response waits for it loses its connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request header in bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Grace period of requests in flight when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Delay after a failed accept: file descriptors become available when requests end.
const PAUSE: Duration = Duration::from_millis(50);

/// Server of the API.
pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) limits: ConnectionLimits,
    /// Certificates; `None`: the server serves HTTP.
    pub(crate) tls: Option<Arc<NodeTls>>,
}

/// Serves until `shutdown` resolves and the requests in flight end, or their grace period expires.
pub(crate) async fn serve(
    server: Server,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let Server {
        router,
        limits,
        tls,
    } = server;
    let address = listener.local_addr()?;
    let is_https = tls.is_some();
    tracing::info!(%address, https = is_https, max_connections = limits.total, "serving HTTP");

    let service = TowerToHyperService::new(router);
    let connections = Connections::new(limits);
    // Notifies the connections when the server stops. Each has a receiver as long as it is open.
    let stopping = watch::Sender::new(());
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer, place) = tokio::select! {
            next = next(&listener, &connections) => next,
            () = &mut shutdown => break,
        };
        // The handshake runs in the task of the connection: a slow client must not stop others from
        // connecting.
        let connection = Connection {
            service: service.clone(),
            place: Arc::new(place),
            peer,
            // An error means that the connection has ended.
            local: stream.local_addr().unwrap_or(address),
        };

        let stream = with_write_timeout(stream);
        let tls = tls.as_ref().map(|tls| tls.certificates());
        let stopped = stopping.subscribe();
        tokio::spawn(async move {
            let place = Arc::clone(&connection.place);
            tokio::select! {
                () = connection.run(stream, tls, stopped) => {}
                () = place.must_close() => {
                    tracing::debug!(%peer, "idle connection closed for another one");
                }
            }
        });
    }

    // Closed first: a client that connects now reaches another pod, or an error, and does not wait
    // for a server that stops.
    drop(listener);
    stopping.send_replace(());
    if tokio::time::timeout(GRACE, stopping.closed())
        .await
        .is_err()
    {
        tracing::warn!("server stopped with requests in flight");
    }

    Ok(())
}

/// A connection that has a place.
struct Connection {
    service: TowerToHyperService<Router>,
    place: Arc<Place>,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Connection {
    /// Serves the requests of the connection. During the handshake, the connection is idle.
    async fn run(
        self,
        stream: LimitedStream,
        tls: Option<Arc<Certificates>>,
        mut stopped: watch::Receiver<()>,
    ) {
        let Some(tls) = tls else {
            return self.serve(stream, None, stopped).await;
        };

        // Reserved places are few, so that a slow handshake must not occupy one for long.
        let timeout = if self.place.is_reserved() {
            RESERVED_HEADER_TIMEOUT
        } else {
            HANDSHAKE_TIMEOUT
        };
        let handshake = tokio::time::timeout(
            timeout,
            TlsAcceptor::from(Arc::clone(&tls.server)).accept(stream),
        );

        let peer = self.peer;
        tokio::select! {
            biased;
            // An error means that the server has stopped.
            _ = stopped.changed() => {}
            accepted = handshake => match accepted {
                Ok(Ok(stream)) => {
                    let chain = stream.get_ref().1.peer_certificates();
                    let pod = tls.pods.as_ref().and_then(|pods| pods.verify(chain));
                    self.serve(stream, pod, stopped).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, ?timeout, "TLS handshake timed out"),
            },
        }
    }

    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        pod: Option<PodCertificate>,
        mut stopped: watch::Receiver<()>,
    ) {
        let Self {
            service,
            place,
            peer,
            local,
        } = self;
        let of_upgrades = stopped.clone();
        let is_reserved = place.is_reserved();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            request.extensions_mut().insert(LocalAddress(local));
            if let Some(pod) = &pod {
                request.extensions_mut().insert(pod.clone());
            }

            // Only an upgrade outlives its request and needs the place for itself.
            if request.headers().contains_key(header::UPGRADE) {
                let connection = UpgradedConnection::new(Arc::clone(&place), of_upgrades.clone());
                request.extensions_mut().insert(connection);
            }
            respond(service.clone(), request, Arc::clone(&place))
        });

        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if is_reserved {
                RESERVED_HEADER_TIMEOUT
            } else {
                HEADER_TIMEOUT
            })
            // A reserved place serves one request, then the next probe.
            .keep_alive(!is_reserved)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            // An error means that the server has stopped.
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };

        if let Err(error) = ended {
            tracing::debug!(%error, "connection lost");
        }
    }
}

/// Returns the response of the router. The connection is busy meanwhile.
async fn respond(
    service: TowerToHyperService<Router>,
    request: Request<Incoming>,
    place: Arc<Place>,
) -> Result<Response<ResponseBody>, Infallible> {
    place.set_busy();
    let response = if place.is_reserved() && !RESERVED_ROUTES.contains(&request.uri().path()) {
        no_place()
    } else {
        service.call(request).await?
    };
    place.set_idle();
    Ok(response.map(|body| ResponseBody { body, place }))
}

/// Connection whose writes have a timeout.
type LimitedStream = Pin<Box<TimeoutStream<TcpStream>>>;

fn with_write_timeout(stream: TcpStream) -> LimitedStream {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    Box::pin(stream)
}

fn no_place() -> Response<Body> {
    let detail = "all connections have requests in flight (http.max_connections, \
                  http.max_connections_per_address); retry later";
    let mut response = Problem::new(Code::Unavailable, detail).into_response();
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Body of a response. Each frame restarts the idle time of the connection.
struct ResponseBody {
    body: Body,
    place: Arc<Place>,
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.place.set_idle();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the next connection that has a place. Others are closed.
async fn next(
    listener: &TcpListener,
    connections: &Arc<Connections>,
) -> (TcpStream, SocketAddr, Place) {
    let mut retries = RetryLog::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                retries
                    .failed(|failures| tracing::warn!(%error, failures, "accept failed; retrying"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        retries.succeeded(|failures| tracing::info!(failures, "connections are accepted again"));
        // Without a place, the drop of the stream closes the connection.
        let Some(place) = connections.admit(peer.ip()).await else {
            continue;
        };

        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "responses may be delayed");
        }
        return (stream, peer, place);
    }
}
