//! Proxy between a client and a server that closes the connection when the server sends one of some texts.
//!
//! It stands for a client that cannot parse a message and closes its connection at it, each time.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct CuttingProxy {
    pub(crate) url: String,
    texts: Arc<Mutex<Vec<String>>>,
}

impl CuttingProxy {
    pub(crate) async fn to(port: u16, texts: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let texts = Arc::new(Mutex::new(texts));
        let cut = Arc::clone(&texts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, port, Arc::clone(&cut)));
            }
        });
        Self { url, texts }
    }

    /// Replaces the texts.
    pub(crate) fn cut_at(&self, texts: &[&str]) {
        *self.texts.lock().unwrap() = texts.iter().map(|text| (*text).to_owned()).collect();
    }
}

/// Carries data until a side closes the connection, or the server sends one of the texts.
async fn carry(client: TcpStream, port: u16, texts: Arc<Mutex<Vec<String>>>) {
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
            let cut = first_position(&recent, &texts.lock().unwrap());

            // The client receives everything before the text, as it parses everything before the message.
            let end = cut.unwrap_or(recent.len()).max(carried);
            let is_sent = to_client.write_all(&recent[carried..end]).await.is_ok();
            if cut.is_some() || !is_sent {
                return;
            }
            let surplus = recent.len().saturating_sub(128);
            recent.drain(..surplus);
        }
    };
    tokio::select! {
        _ = upstream => {}
        () = downstream => {}
    }
}

/// Returns the position of the first text.
fn first_position(bytes: &[u8], texts: &[String]) -> Option<usize> {
    let position = |text: &String| {
        let mut windows = bytes.windows(text.len());
        windows.position(|window| window == text.as_bytes())
    };
    texts.iter().filter_map(position).min()
}
