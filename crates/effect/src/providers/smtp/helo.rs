//! Stream to a server without ESMTP: replaces the `EHLO` of the client by `HELO`.
//!
//! The library always greets with `EHLO`. RFC 5321, 3.2, requires `HELO` after a server has
//! rejected it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Verb of the first command, instead of the `EHLO` of the library.
const HELO: &[u8] = b"HELO";

/// TCP stream whose first command is `HELO`.
#[derive(Debug)]
pub(super) struct HeloStream {
    stream: TcpStream,
    /// Number of bytes of the verb that were written.
    verb_bytes: usize,
}

impl HeloStream {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            verb_bytes: 0,
        }
    }
}

impl AsyncTokioStream for HeloStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl AsyncRead for HeloStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for HeloStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let verb = &HELO[self.verb_bytes..];
        if verb.is_empty() {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }

        // The whole command in one packet: a second small one would wait for the acknowledgement.
        let length = verb.len().min(bytes.len());
        let command = [&verb[..length], &bytes[length..]].concat();
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, &command))?;

        self.verb_bytes += written.min(length);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
