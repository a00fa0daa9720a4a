//! HTTP client with a limited number of connections that stay open.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

type Connection = SendRequest<Full<Bytes>>;

/// Connections to one server. Each one has one request at a time; further requests wait.
pub(crate) struct Client {
    address: String,
    free: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Client {
    /// Opens no connection yet, and never more than `connections`.
    pub(crate) fn new(port: u16, connections: usize) -> Self {
        let address = format!("127.0.0.1:{port}");
        Self {
            address,
            free: Mutex::default(),
            permits: Semaphore::new(connections),
        }
    }

    /// Sends a request and returns the body of the response.
    ///
    /// # Errors
    /// The connection is lost, or the status is not 2xx.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> Result<Bytes> {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header("host", &self.address)
            .header("content-type", kind);
        let request = request.body(Full::new(Bytes::from(body)))?;
        let response = self.exchange(request).await;
        let (failed, body) =
            response.with_context(|| format!("no response from {}{path}", self.address))?;
        if let Some(status) = failed {
            bail!(
                "{}{path} returned {status}: {}",
                self.address,
                String::from_utf8_lossy(&body)
            );
        }
        Ok(body)
    }

    /// Returns the status, if it is not 2xx, and the body.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Option<hyper::StatusCode>, Bytes)> {
        let _permit = self.permits.acquire().await?;
        let free = self.free.lock().pop();
        let mut connection = if let Some(free) = free {
            free
        } else {
            self.connect().await?
        };
        connection.ready().await?;
        let response = connection.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        self.free.lock().push(connection);
        Ok(((!status.is_success()).then_some(status), body))
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
