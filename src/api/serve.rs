//! Serving: connections in, with bounds on how many there are and how long a request's head may take.

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

use super::authorize::Peer;

/// Connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// The time the head of a request may take, and an idle connection may stay.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// What requests under way get when the server ends.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after the system refused a connection: file descriptors come back as requests end.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` resolves and the requests under way are answered, or their grace is over.
pub(super) async fn serve(
    router: Router,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, "serving HTTP");
    let service = TowerToHyperService::new(router);
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer, place) = tokio::select! {
            next = next(&listener, &places) => next,
            () = &mut shutdown => break,
        };
        let service = service.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke off");
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
        tracing::warn!("requests were under way when the server ended");
    }
    Ok(())
}

/// The next connection, once there is a place for it.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let place = Arc::clone(places).acquire_owned().await.expect("nobody closes the semaphore");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "answers may be delayed");
                }
                return (stream, peer, place);
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
