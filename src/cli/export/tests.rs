//! Tests of an export to a file, from a server that fails once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use orlog_testkit::wait::within;

use super::*;
use crate::cli::client::tests::{client_of, serve};

/// Snapshot of an export, and the lines that follow it.
async fn respond(State(count): State<Arc<AtomicUsize>>, uri: Uri) -> Response {
    let text = match (count.fetch_add(1, Ordering::AcqRel), uri.query()) {
        (0, _) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        (_, Some(query)) if query.contains("after=") => {
            // Ends the export: only a new snapshot was requested before.
            let after = query.split('&').find(|part| part.starts_with("after="));
            let is_new = after == Some("after=new");
            let status = if is_new {
                StatusCode::FORBIDDEN
            } else {
                StatusCode::NOT_FOUND
            };
            return status.into_response();
        }
        _ => "{\"kind\":\"reset\"}\n{\"kind\":\"cursor\",\"cursor\":\"new\",\"has_more\":true}\n",
    };
    text.into_response()
}

#[tokio::test]
async fn reset_survives_a_failed_first_request() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("export.jsonl");
    std::fs::write(&file, "{\"kind\":\"cursor\",\"cursor\":\"old\"}\n").unwrap();
    let router = Router::new().fallback(respond).with_state(Arc::default());

    let path = file.to_str().unwrap();
    let export = ExportRun {
        client: client_of(&serve(router).await),
        target: ExportTarget::new(path, String::new(), String::new()).unwrap(),
        query: Vec::new(),
        follow: true,
    };
    let error = within("the export", export.run(true)).await.unwrap_err();
    assert!(error.to_string().contains("403"), "{error}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"reset\""), "{text}");
}

#[test]
fn response_of_a_draining_node_is_early() {
    let page = |lines: &str| {
        let text = format!("{lines}{{\"kind\":\"cursor\",\"cursor\":\"c\"}}\n");
        ExportPage::read(&text).ok().unwrap()
    };
    let idle = Duration::from_secs(20);
    assert!(is_early(&page(""), Duration::ZERO));
    assert!(!is_early(&page(""), idle));
    assert!(!is_early(
        &page("{\"kind\":\"instance\"}\n"),
        Duration::ZERO
    ));
}
