//! Real HTTP upstream with scripted responses that records its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use orlog_testkit::WAIT_TIMEOUT;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

/// Received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

type ScriptedResponse = (StatusCode, Vec<(&'static str, String)>, String);

/// HTTP upstream.
pub(crate) struct HttpUpstream {
    pub(crate) url: String,
    received: Mutex<Vec<ReceivedRequest>>,
    script: Mutex<VecDeque<ScriptedResponse>>,
    count: watch::Sender<usize>,
    /// Permits for responses; unlimited unless a test withholds them.
    pub(crate) permits: Semaphore,
}

impl HttpUpstream {
    pub(crate) async fn open() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shop = Arc::new(Self {
            url,
            received: Mutex::default(),
            script: Mutex::default(),
            count: watch::Sender::new(0),
            permits: Semaphore::new(1_000_000),
        });
        let router = Router::new().fallback(reply).with_state(Arc::clone(&shop));
        tokio::spawn(async move { axum::serve(listener, router).await });
        shop
    }

    /// Adds a scripted response; after the scripted ones it responds 200 with `{}`.
    pub(crate) fn script(&self, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let reply = (
            StatusCode::from_u16(status).unwrap(),
            headers,
            body.to_owned(),
        );
        self.script.lock().push_back(reply);
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().clone()
    }

    /// Waits until it has received this many requests.
    pub(crate) async fn wait_for_requests(&self, times: usize) -> Vec<ReceivedRequest> {
        let mut count = self.count.subscribe();
        let received = count.wait_for(|count| *count >= times);
        drop(
            tokio::time::timeout(WAIT_TIMEOUT, received)
                .await
                .expect("it is asked")
                .unwrap(),
        );
        self.received()
    }
}

async fn reply(State(shop): State<Arc<HttpUpstream>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let received = ReceivedRequest {
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
        body,
    };
    let reply = shop.script.lock().pop_front();
    shop.received.lock().push(received);
    shop.count.send_modify(|count| *count += 1);
    shop.permits.acquire().await.unwrap().forget();
    let (status, headers, body) = reply.unwrap_or((StatusCode::OK, Vec::new(), "{}".to_owned()));
    let mut response = (status, body).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
