//! Commands that change several objects: after a failure, they print the results before it.

use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::process::{orlog, run};

/// Accepts each change, except of the dead letter `missing`.
async fn respond(uri: Uri) -> Response {
    if uri.path().contains("missing") {
        let problem = json!({ "code": "OR0018", "title": "No dead letter", "detail": "missing" });
        return (StatusCode::NOT_FOUND, Json(problem)).into_response();
    }
    Json(json!({ "status": "running", "version": 2 })).into_response()
}

async fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(respond);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_changed_dead_letters_is_printed_before_a_failure() {
    let url = serve().await;
    let command = async |verb: &str| {
        let ids = ["dlq", verb, "first", "missing", "last"];
        let mut command = orlog(&ids);
        command.args(["--url", &url, "--output", "json"]);
        let (code, stdout, stderr) = run(command).await;
        assert_eq!(code, 3, "{stderr}");
        serde_json::from_str::<Value>(&stdout).unwrap()
    };

    let redriven = command("redrive").await;
    assert_eq!(redriven.as_array().map(Vec::len), Some(1), "{redriven}");
    assert_eq!(command("discard").await, json!({ "discarded": ["first"] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_print_json() {
    let url = serve().await;
    for args in [
        ["context", "delete", "acme"],
        ["schedule", "delete", "nightly"],
    ] {
        let mut command = orlog(&args);
        command.args(["--url", &url, "--output", "json"]);
        let (code, stdout, stderr) = run(command).await;
        assert_eq!(code, 0, "{stderr}");
        let deleted: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(deleted["deleted"], true);
    }
}
