//! Upstream of the orders: records the idempotency keys of each effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Keys by effect and order.
type Keys = BTreeMap<(String, String), BTreeSet<String>>;

pub(crate) struct Upstream {
    pub(crate) url: String,
    keys: Mutex<Keys>,
}

impl Upstream {
    pub(crate) async fn open() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = Arc::new(Self {
            url,
            keys: Mutex::default(),
        });
        let router = Router::new()
            .route("/{effect}", post(perform))
            .with_state(Arc::clone(&upstream));
        tokio::spawn(async move { axum::serve(listener, router).await });
        upstream
    }

    pub(crate) fn keys(&self) -> Keys {
        self.keys.lock().clone()
    }
}

async fn perform(
    State(upstream): State<Arc<Upstream>>,
    Path(effect): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Json<Value> {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let order = body["orderId"].as_str().unwrap().to_owned();
    upstream
        .keys
        .lock()
        .entry((effect, order))
        .or_default()
        .insert(key);
    Json(json!({}))
}
