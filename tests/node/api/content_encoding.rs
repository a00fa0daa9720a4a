//! Request bodies with a content encoding: decoded within the limits, or rejected without effect.

use std::io::Read as _;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use flate2::Compression;
use flate2::read::{GzEncoder, ZlibEncoder};
use serde_json::json;

use crate::api::node::{Node, placed};
use crate::harness::http::HttpResponse;

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    GzEncoder::new(bytes, Compression::default())
        .read_to_end(&mut encoded)
        .unwrap();
    encoded
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    ZlibEncoder::new(bytes, Compression::default())
        .read_to_end(&mut encoded)
        .unwrap();
    encoded
}

async fn send(node: &Node, path: &str, encoding: &str, body: Vec<u8>) -> HttpResponse {
    let content_type = if path == "/v1/events" {
        "application/cloudevents+json"
    } else {
        "application/json"
    };
    let request = Request::post(path)
        .header("content-type", content_type)
        .header("content-encoding", encoding);
    node.send(request.body(Body::from(body)).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_bodies_are_decoded() {
    let node = Node::start().await;
    let event = |id: &str| placed(id, 5).to_string().into_bytes();
    for (id, encoding, body) in [
        ("gzip", "gzip", gzip(&event("gzip"))),
        ("deflate", "deflate", zlib(&event("deflate"))),
        ("identity", "identity", event("identity")),
    ] {
        let response = send(&node, "/v1/events", encoding, body).await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
        node.until("", &format!("/v1/sagas/order/{id}"), |_| true)
            .await;
    }

    let body = json!({ "orderId": "started", "total": 5 }).to_string();
    send(&node, "/v1/sagas/order", "gzip", gzip(body.as_bytes()))
        .await
        .ok();
    let body = gzip(br#"{"type":"Shipped","data":{}}"#);
    send(&node, "/v1/sagas/order/started/signal", "gzip", body)
        .await
        .ok();
    // Some clients declare an encoding of each body, also of an empty one.
    send(&node, "/v1/sagas/order/identity/pause", "gzip", Vec::new())
        .await
        .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_cannot_be_decoded_has_no_effect() {
    let node = Node::start().await;
    let before = node.app.bus.last_sequence().await.unwrap();
    let event = placed("o-1", 5).to_string().into_bytes();

    for encoding in ["br", "gzip, gzip", "zstd"] {
        let response = send(&node, "/v1/events", encoding, event.clone()).await;
        let detail = response.rejected(415, "OR0004");
        assert!(detail.contains(encoding), "{detail}");
        assert_eq!(response.headers["accept-encoding"], "gzip, deflate");
    }

    let encoded = gzip(&event);
    for body in [event, encoded[..encoded.len() - 5].to_vec()] {
        let response = send(&node, "/v1/events", "gzip", body).await;
        let detail = response.rejected(400, "OR0038");
        assert!(detail.contains("not valid gzip"), "{detail}");
    }
    assert_eq!(node.app.bus.last_sequence().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn decoded_body_has_the_limit_of_a_plain_one() {
    let node = Node::start_with(|config| config.http.max_body_size = 64 << 10).await;
    let zeros = gzip(&vec![b'0'; 16 << 20]);
    assert!(zeros.len() < 64 << 10);

    let response = send(&node, "/v1/events", "gzip", zeros.clone()).await;
    let detail = response.rejected(413, "OR0005");
    assert!(detail.contains("the decoded body exceeds"), "{detail}");
    let response = send(&node, "/v1/sagas/order", "gzip", zeros).await;
    response.rejected(413, "OR0005");
}
