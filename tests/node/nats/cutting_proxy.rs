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
            recent.extend_from_slice(&buffer[..count]);
            let is_cut = texts.lock().unwrap().iter().any(|text| {
                recent
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            });
            if is_cut || to_client.write_all(&buffer[..count]).await.is_err() {
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
