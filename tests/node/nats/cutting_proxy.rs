//! Proxy between a client and a server that closes the connection when the server sends one of some texts.
//!
//! It stands for a client that cannot parse a message and closes its connection at it, each time, or for
//! a network that loses a connection together with what is on its way.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Number of the last bytes in which the begin of a text is searched again.
const MAX_TEXT_BYTES: usize = 128;

pub(crate) struct CuttingProxy {
    pub(crate) url: String,
    cuts: Arc<Mutex<Cuts>>,
}

/// Texts at which the proxy cuts.
struct Cuts {
    texts: Vec<String>,
    /// Number of connections that were cut.
    count: u32,
    /// Number of connections to cut.
    limit: u32,
}

impl CuttingProxy {
    /// Cuts at the texts each time.
    pub(crate) async fn to(port: u16, texts: &[&str]) -> Self {
        Self::start(port, texts, u32::MAX).await
    }

    /// Cuts one connection.
    pub(crate) async fn cutting_once(port: u16, text: &str) -> Self {
        Self::start(port, &[text], 1).await
    }

    async fn start(port: u16, texts: &[&str], limit: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());

        let cuts = Arc::new(Mutex::new(Cuts {
            texts: owned(texts),
            count: 0,
            limit,
        }));
        let shared = Arc::clone(&cuts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, port, Arc::clone(&shared)));
            }
        });

        Self { url, cuts }
    }

    /// Replaces the texts.
    pub(crate) fn cut_at(&self, texts: &[&str]) {
        self.cuts.lock().texts = owned(texts);
    }

    /// Returns the number of connections that were cut.
    pub(crate) fn count(&self) -> u32 {
        self.cuts.lock().count
    }
}

impl Cuts {
    /// Returns the position of the first text, and counts the cut.
    fn first_position(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.count == self.limit {
            return None;
        }
        let position = |text: &String| {
            let mut windows = bytes.windows(text.len());
            windows.position(|window| window == text.as_bytes())
        };
        let first = self.texts.iter().filter_map(position).min();
        self.count += u32::from(first.is_some());
        first
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Carries data until a side closes the connection, or the server sends one of the texts.
async fn carry(client: TcpStream, port: u16, cuts: Arc<Mutex<Cuts>>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();

    let upstream = tokio::io::copy(&mut from_client, &mut to_server);
    let downstream = async {
        let mut buffer = vec![0; 64 << 10];
        // A text can begin in one read and end in the next.
        let mut recent = Vec::new();
        loop {
            let Ok(count @ 1..) = from_server.read(&mut buffer).await else {
                return;
            };
            let carried = recent.len();
            recent.extend_from_slice(&buffer[..count]);
            let cut = cuts.lock().first_position(&recent);

            // The client receives everything before the text, as it parses everything before the message.
            let end = cut.unwrap_or(recent.len()).max(carried);
            let is_sent = to_client.write_all(&recent[carried..end]).await.is_ok();
            if cut.is_some() || !is_sent {
                return;
            }
            let surplus = recent.len().saturating_sub(MAX_TEXT_BYTES);
            recent.drain(..surplus);
        }
    };
    tokio::select! {
        _ = upstream => {}
        () = downstream => {}
    }
}
