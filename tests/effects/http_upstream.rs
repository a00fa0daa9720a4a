//! A real HTTP upstream that answers as a test says, and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, watch};

use crate::node::PATIENCE;

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

type Answer = (StatusCode, Vec<(&'static str, String)>, String);

/// The upstream.
pub(crate) struct Shop {
    pub(crate) url: String,
    asked: Mutex<Vec<Asked>>,
    answers: Mutex<VecDeque<Answer>>,
    count: watch::Sender<usize>,
    /// A request is answered when it has a permit; plenty unless a test holds them back.
    pub(crate) permits: Semaphore,
}

impl Shop {
    pub(crate) async fn open() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shop = Arc::new(Self {
            url,
            asked: Mutex::default(),
            answers: Mutex::default(),
            count: watch::Sender::new(0),
            permits: Semaphore::new(1_000_000),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shop));
        tokio::spawn(async move { axum::serve(listener, router).await });
        shop
    }

    /// The next answers; after them 200 with `{}`.
    pub(crate) fn answers(&self, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let answer = (StatusCode::from_u16(status).unwrap(), headers, body.to_owned());
        self.answers.lock().unwrap().push_back(answer);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until it has been asked so often.
    pub(crate) async fn asked_times(&self, times: usize) -> Vec<Asked> {
        let mut count = self.count.subscribe();
        let asked = count.wait_for(|count| *count >= times);
        drop(tokio::time::timeout(PATIENCE, asked).await.expect("it is asked").unwrap());
        self.asked()
    }
}

async fn answer(State(shop): State<Arc<Shop>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let asked = Asked { method: parts.method, uri: parts.uri, headers: parts.headers, body };
    let answer = shop.answers.lock().unwrap().pop_front();
    shop.asked.lock().unwrap().push(asked);
    shop.count.send_modify(|count| *count += 1);
    shop.permits.acquire().await.unwrap().forget();
    let (status, headers, body) = answer.unwrap_or((StatusCode::OK, Vec::new(), "{}".to_owned()));
    let mut response = (status, body).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
