//! HTTP server: accepts connections, with limits of their number, of the header read time and of the write time.

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
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;

use super::connections::{ConnectionLimits, Connections, Place};
use super::problem::{Code, Problem};
use super::request_info::PeerAddress;

/// Routes that a reserved place serves.
const RESERVED_ROUTES: [&str; 3] = ["/health", "/ready", "/metrics"];
/// Timeout to read the header of a request, and of idle connections. Default: 1 min.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout to read the header of a request on a reserved place.
const RESERVED_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// A client that receives nothing for this time while a response waits for it loses its connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request header in bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Grace period of requests in flight when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Delay after a failed accept: file descriptors become available when requests end.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` resolves and the requests in flight end, or their grace period expires.
pub(super) async fn serve(
    router: Router,
    listener: TcpListener,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, max_connections = limits.total, "serving HTTP");
    let service = TowerToHyperService::new(router);
    let graceful = GracefulShutdown::new();
    let connections = Connections::new(limits);
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer, place) = tokio::select! {
            next = next(&listener, &connections) => next,
            () = &mut shutdown => break,
        };
        let place = Arc::new(place);
        let (service, of_request) = (service.clone(), Arc::clone(&place));
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            respond(service.clone(), request, Arc::clone(&of_request))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if place.is_reserved() { RESERVED_HEADER_TIMEOUT } else { HEADER_TIMEOUT })
            .keep_alive(!place.is_reserved())
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(with_write_timeout(stream)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection lost");
                    }
                }
                () = place.must_close() => tracing::debug!(%peer, "idle connection closed for another one"),
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("server stopped with requests in flight");
    }
    Ok(())
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

fn with_write_timeout(stream: TcpStream) -> Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    Box::pin(stream)
}

fn no_place() -> Response<Body> {
    let detail = "all connections have requests in flight (http.max_connections, \
                  http.max_connections_per_address); retry later";
    let mut response = Problem::new(Code::Unavailable, detail).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
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
async fn next(listener: &TcpListener, connections: &Arc<Connections>) -> (TcpStream, SocketAddr, Place) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(place) = connections.admit(peer.ip()).await else { continue };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "responses may be delayed");
        }
        return (stream, peer, place);
    }
}
