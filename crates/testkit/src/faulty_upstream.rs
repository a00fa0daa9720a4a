//! Upstream that executes calls and then ends them without a valid answer, and proxies in front of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::{self, TestServer};

/// End of a call that the upstream has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection is closed.
    Closed,
    /// The connection is reset.
    Reset,
    /// No answer.
    Silence,
    /// The connection is closed within the head of the answer.
    PartialHead,
    /// The connection is closed within the body of the answer.
    PartialBody,
    /// The answer is no HTTP.
    Garbage,
    /// The headers exceed the buffers of the proxy.
    LargeHeaders,
    /// A status.
    Status(u16),
}

/// All ends.
pub const ENDS: [End; 9] = [
    End::Closed,
    End::Reset,
    End::Silence,
    End::PartialHead,
    End::PartialBody,
    End::Garbage,
    End::LargeHeaders,
    End::Status(500),
    End::Status(503),
];

/// Upstream that executes each charge and then ends the call; it accepts each refund.
pub struct FaultyUpstream {
    /// Port on 127.0.0.1.
    pub port: u16,
    charges: Arc<AtomicUsize>,
    refunds: Arc<AtomicUsize>,
}

impl FaultyUpstream {
    /// Starts an upstream over HTTP/1.1. The first `answered` charges are answered with 200; after
    /// them, the `ends` follow, of which the last one is repeated.
    pub async fn http(answered: usize, ends: &'static [End]) -> Self {
        Self::start(move |socket, charges, refunds| {
            Box::pin(serve_http(socket, answered, ends, charges, refunds))
        })
        .await
    }

    /// Starts an upstream of gRPC over HTTP/2.
    pub async fn grpc(end: GrpcEnd) -> Self {
        Self::start(move |socket, charges, _| Box::pin(serve_grpc(socket, end, charges))).await
    }

    async fn start<F>(serve: F) -> Self
    where
        F: Fn(TcpStream, Arc<AtomicUsize>, Arc<AtomicUsize>) -> Connection + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let charges = Arc::new(AtomicUsize::new(0));
        let refunds = Arc::new(AtomicUsize::new(0));
        let upstream = Self {
            port,
            charges: Arc::clone(&charges),
            refunds: Arc::clone(&refunds),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let connection = serve(socket, Arc::clone(&charges), Arc::clone(&refunds));
                tokio::spawn(connection);
            }
        });
        upstream
    }

    /// Returns the number of executed charges.
    #[must_use]
    pub fn charges(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    /// Returns the number of executed refunds.
    #[must_use]
    pub fn refunds(&self) -> usize {
        self.refunds.load(Ordering::SeqCst)
    }
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves requests on one connection until it ends.
async fn serve_http(
    mut socket: TcpStream,
    answered: usize,
    ends: &'static [End],
    charges: Arc<AtomicUsize>,
    refunds: Arc<AtomicUsize>,
) {
    let mut received = Vec::new();
    loop {
        let Some(path) = next_request(&mut socket, &mut received).await else {
            return;
        };
        if path == "/refund" {
            refunds.fetch_add(1, Ordering::SeqCst);
            let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            socket.write_all(ok).await.ok();
            continue;
        }

        let number = charges.fetch_add(1, Ordering::SeqCst);
        let Some(faulty) = number.checked_sub(answered) else {
            let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            socket.write_all(ok).await.ok();
            continue;
        };
        let answer = match ends[faulty.min(ends.len() - 1)] {
            End::Closed => return,
            End::Reset => {
                socket.set_zero_linger().expect("the option is supported");
                return;
            }
            End::Silence => std::future::pending().await,
            End::PartialHead => "HTTP/1.1 20".to_owned(),
            End::PartialBody => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
            End::Garbage => "garbage\r\n\r\n".to_owned(),
            End::LargeHeaders => {
                let value = "x".repeat(64 * 1024);
                format!("HTTP/1.1 200 OK\r\nx-large: {value}\r\ncontent-length: 0\r\n\r\n")
            }
            End::Status(status) => {
                let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
                socket.write_all(head.as_bytes()).await.ok();
                continue;
            }
        };
        socket.write_all(answer.as_bytes()).await.ok();
        return;
    }
}

/// Reads a request with its body. Returns its path; `None`: the connection has ended.
async fn next_request(socket: &mut TcpStream, received: &mut Vec<u8>) -> Option<String> {
    loop {
        let text = String::from_utf8_lossy(received).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.trim().parse().expect("a length"));
            let end = head.len() + 4 + length;
            if received.len() >= end {
                received.drain(..end);
                return head.split(' ').nth(1).map(str::to_owned);
            }
        }
        if socket.read_buf(received).await.ok()? == 0 {
            return None;
        }
    }
}

/// End of a gRPC call that the upstream has executed.
#[derive(Clone, Copy, Debug)]
pub enum GrpcEnd {
    /// The connection is closed.
    Closed,
    /// No answer.
    Silence,
    /// `RST_STREAM` with this error code.
    Reset(u8),
    /// Headers, then the connection is closed.
    PartialAnswer,
    /// HTTP status 200 with the gRPC status.
    Status(&'static str),
}

/// All ends of gRPC calls.
pub const GRPC_ENDS: [GrpcEnd; 7] = [
    GrpcEnd::Closed,
    GrpcEnd::Silence,
    GrpcEnd::Reset(2),
    GrpcEnd::Reset(7),
    GrpcEnd::Reset(8),
    GrpcEnd::PartialAnswer,
    GrpcEnd::Status("14"),
];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// Serves calls on one connection without a library, which would not break the rules.
async fn serve_grpc(mut socket: TcpStream, end: GrpcEnd, calls: Arc<AtomicUsize>) {
    drop(try_serve_grpc(&mut socket, end, &calls).await);
}

async fn try_serve_grpc(
    socket: &mut TcpStream,
    end: GrpcEnd,
    calls: &AtomicUsize,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).await?;
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).await?;

    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let stream = u32::from_be_bytes(stream);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        socket.read_exact(&mut payload).await?;

        match kind {
            SETTINGS if flags & 1 == 0 => socket.write_all(&frame(SETTINGS, 1, 0, &[])).await?,
            PING if flags & 1 == 0 => socket.write_all(&frame(PING, 1, 0, &payload)).await?,
            // The call is complete.
            DATA | HEADERS if flags & 1 == 1 => {
                calls.fetch_add(1, Ordering::SeqCst);
                let ok = [(":status", "200"), ("content-type", "application/grpc")];
                match end {
                    GrpcEnd::Closed => return Ok(()),
                    GrpcEnd::Silence => std::future::pending().await,
                    GrpcEnd::Reset(code) => {
                        let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, code]);
                        socket.write_all(&reset).await?;
                    }
                    GrpcEnd::PartialAnswer => {
                        socket.write_all(&headers(0, stream, &ok)).await?;
                        return Ok(());
                    }
                    GrpcEnd::Status(status) => {
                        let fields = [ok[0], ok[1], ("grpc-status", status)];
                        socket.write_all(&headers(1, stream, &fields)).await?;
                    }
                }
            }
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a small frame")
        .to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns headers as literals without indexing (RFC 7541, 6.2.2).
fn headers(end_stream: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("a short text"));
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, 4 | end_stream, stream, &block)
}

/// Proxy in front of an upstream over HTTP/1.1.
#[derive(Clone, Copy, Debug)]
pub enum HttpProxy {
    /// nginx.
    Nginx,
    /// nginx that replaces errors by a page with the status 503.
    NginxWithPages,
    /// HAProxy.
    Haproxy,
}

impl HttpProxy {
    /// All proxies.
    pub const ALL: [Self; 3] = [Self::Nginx, Self::NginxWithPages, Self::Haproxy];

    /// Starts the proxy in front of a port.
    #[must_use]
    pub fn start(self, upstream: u16) -> TestServer {
        let pages = "proxy_intercept_errors on; error_page 500 502 504 =503 /down;";
        match self {
            Self::Nginx => nginx_http(upstream, ""),
            Self::NginxWithPages => nginx_http(upstream, pages),
            Self::Haproxy => servers::haproxy(&format!(
                "{HAPROXY}frontend front\n  bind 127.0.0.1:{{port}}\n  default_backend back\n\
                 backend back\n  server up 127.0.0.1:{upstream}\n"
            )),
        }
    }
}

/// Time-out of the upstream in all proxies: 300ms.
const HAPROXY: &str = "defaults\n  mode http\n  timeout connect 5s\n  timeout client 20s\n  \
                       timeout server 300ms\n";

fn nginx_http(upstream: u16, more: &str) -> TestServer {
    servers::nginx(&format!(
        "upstream up {{ server 127.0.0.1:{upstream} max_fails=0; keepalive 8; }}\n\
         server {{\n  listen 127.0.0.1:{{port}};\n  proxy_http_version 1.1;\n  \
         proxy_set_header connection \"\";\n  proxy_read_timeout 300ms;\n  {more}\n  \
         location / {{ proxy_pass http://up; }}\n  \
         location /down {{ internal; return 503; }}\n}}\n"
    ))
}

/// Proxy in front of an upstream over HTTP/2.
#[derive(Clone, Copy, Debug)]
pub enum GrpcProxy {
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
}

impl GrpcProxy {
    /// All proxies.
    pub const ALL: [Self; 2] = [Self::Nginx, Self::Haproxy];

    /// Starts the proxy in front of a port.
    #[must_use]
    pub fn start(self, upstream: u16) -> TestServer {
        match self {
            Self::Nginx => servers::nginx(&format!(
                "server {{\n  listen 127.0.0.1:{{port}} http2;\n  grpc_read_timeout 300ms;\n  \
                 location / {{ grpc_pass grpc://127.0.0.1:{upstream}; }}\n}}\n"
            )),
            Self::Haproxy => servers::haproxy(&format!(
                "{HAPROXY}frontend front\n  bind 127.0.0.1:{{port}} proto h2\n  \
                 default_backend back\nbackend back\n  server up 127.0.0.1:{upstream} proto h2\n"
            )),
        }
    }
}
