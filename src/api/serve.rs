//! HTTP server: accepts connections, with limits of their number and of the header read time.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::authorize::PeerAddress;

/// Maximum concurrent connections; more wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// Timeout to read the header of a request, and of idle connections. Default: 1 min.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
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
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, "serving HTTP");
    let service = TowerToHyperService::new(router);
    let connections = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer, permit) = tokio::select! {
            next = next(&listener, &permits) => next,
            () = &mut shutdown => break,
        };
        let service = service.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection lost");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
        tracing::warn!("server stopped with requests in flight");
    }
    Ok(())
}

/// Returns the next connection, as soon as the connection limit permits.
async fn next(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let permit = Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "responses may be delayed");
                }
                return (stream, peer, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
