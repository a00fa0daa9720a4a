//! Proxy between a pod and NATS that can simulate a partition: it drops data in both directions without
//! an error.

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) url: String,
    whole: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let proxy = Arc::new(Self {
            url,
            whole: watch::Sender::new(true),
        });
        let whole = proxy.whole.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, port, whole.clone()));
            }
        });
        proxy
    }

    pub(crate) fn partition(&self) {
        self.whole.send_replace(false);
    }

    /// Ends the partition. Data that was in flight at its start is lost.
    pub(crate) fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn carry(mut client: TcpStream, port: u16, mut whole: watch::Receiver<bool>) {
    // An error means that the test has ended or one side has closed the connection.
    if whole.wait_for(|whole| *whole).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let mut seen = whole.clone();
    let is_cut = async { seen.wait_for(|whole| !*whole).await.is_ok() };
    let cut = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        cut = is_cut => cut,
    };
    if cut {
        drop(whole.wait_for(|whole| *whole).await);
    }
}
