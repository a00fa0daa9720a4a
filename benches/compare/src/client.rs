//! HTTP clients over few connections that stay open.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

type Body = Full<Bytes>;

/// Connections to one server.
pub(crate) struct Client {
    port: u16,
    kind: Kind,
}

enum Kind {
    /// One request at a time on each connection.
    Http1 { free: Mutex<Vec<http1::SendRequest<Body>>>, permits: Semaphore },
    /// Many requests at a time on each connection, in turn.
    Http2 { connections: Vec<http2::SendRequest<Body>>, next: AtomicUsize },
}

impl Client {
    /// Opens `count` HTTP/1.1 connections.
    pub(crate) async fn http1(port: u16, count: usize) -> Result<Self> {
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            let (sender, connection) = http1::handshake(connect(port).await?).await?;
            tokio::spawn(connection);
            free.push(sender);
        }
        Ok(Self { port, kind: Kind::Http1 { free: Mutex::new(free), permits: Semaphore::new(count) } })
    }

    /// Opens `count` HTTP/2 connections.
    pub(crate) async fn http2(port: u16, count: usize) -> Result<Self> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), connect(port).await?).await?;
            tokio::spawn(connection);
            connections.push(sender);
        }
        Ok(Self { port, kind: Kind::Http2 { connections, next: AtomicUsize::new(0) } })
    }

    /// Sends a request and returns the body of the response.
    ///
    /// # Errors
    /// The connection is lost, or the status is not 2xx.
    pub(crate) async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Result<Bytes> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        let mut request = Request::builder().method(method).header("content-type", kind);
        if let Kind::Http1 { .. } = self.kind {
            request = request.header("host", format!("127.0.0.1:{}", self.port)).uri(path);
        } else {
            request = request.uri(&uri);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let (status, body) =
            self.exchange(request).await.with_context(|| format!("no response from {uri}"))?;
        if !status.is_success() {
            bail!("{uri} returned {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    async fn exchange(&self, request: Request<Body>) -> Result<(StatusCode, Bytes)> {
        match &self.kind {
            Kind::Http1 { free, permits } => {
                let _permit = permits.acquire().await?;
                let taken = free.lock().expect("no panic under the lock").pop();
                let mut sender = taken.context("all connections were lost")?;
                sender.ready().await?;
                let response = sender.send_request(request).await?;
                let status = response.status();
                let body = response.into_body().collect().await?.to_bytes();
                free.lock().expect("no panic under the lock").push(sender);
                Ok((status, body))
            }
            Kind::Http2 { connections, next } => {
                let index = next.fetch_add(1, Ordering::Relaxed) % connections.len();
                let response = connections[index].clone().send_request(request).await?;
                let status = response.status();
                Ok((status, response.into_body().collect().await?.to_bytes()))
            }
        }
    }
}

async fn connect(port: u16) -> Result<TokioIo<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await;
    let stream = stream.with_context(|| format!("no server at 127.0.0.1:{port}"))?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(stream))
}
