//! Tests of the client with servers that are no node, or a busy one.

use std::future::IntoFuture as _;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use clap::Parser;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;

/// Returns a client of the server at this URL, without a tenant and without credentials.
pub(crate) fn client_of(url: &str) -> ApiClient {
    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        server: ServerArgs,
    }

    let line = CommandLine::parse_from(["orlog", "--url", url, "--tenant", "", "--key", ""]);
    ApiClient::new(&line.server).unwrap()
}

/// Serves the router in the background; returns its URL.
pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    url
}

/// Returns the client of a server with one response.
async fn client_with(status: StatusCode, content_type: &'static str, body: &str) -> ApiClient {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
    headers.insert(header::RETRY_AFTER, "7".parse().unwrap());
    let response = (status, headers, body.to_owned());
    let router = Router::new().fallback(move || std::future::ready(response));
    client_of(&serve(router).await)
}

#[tokio::test]
async fn successful_response_that_is_not_json_is_an_error() {
    let client = client_with(StatusCode::OK, "text/html", "<html>maintenance</html>").await;
    let query = [("limit", "1".to_owned())];
    let error = client.get("/v1/sagas", &query).await.unwrap_err();
    let message = error.to_string();
    assert_eq!(error.exit(), CommandExit::Failed);
    assert!(
        message.contains("text/html") && message.contains("/v1/sagas has"),
        "{message}"
    );
}

#[tokio::test]
async fn only_a_response_without_content_is_null() {
    let client = client_with(StatusCode::NO_CONTENT, "application/json", "").await;
    assert_eq!(client.delete("/v1/x", &[]).await.unwrap(), Value::Null);

    // A proxy that lost the body: null would be a list without entries.
    let client = client_with(StatusCode::OK, "application/json", "").await;
    let error = client.get("/v1/sagas", &[]).await.unwrap_err();
    assert!(error.to_string().contains("no JSON"), "{error}");
}

#[tokio::test]
async fn status_decides_the_exit_code() {
    for (status, expected) in [
        (StatusCode::NOT_FOUND, CommandExit::NotFound),
        (StatusCode::CONFLICT, CommandExit::Rejected),
        (StatusCode::PRECONDITION_FAILED, CommandExit::Rejected),
        (StatusCode::FORBIDDEN, CommandExit::Rejected),
        (StatusCode::TOO_MANY_REQUESTS, CommandExit::Unavailable),
        // A peer that rejects a request of the node.
        (StatusCode::BAD_GATEWAY, CommandExit::Failed),
        (StatusCode::SERVICE_UNAVAILABLE, CommandExit::Unavailable),
        (StatusCode::INSUFFICIENT_STORAGE, CommandExit::Unavailable),
        (StatusCode::UNPROCESSABLE_ENTITY, CommandExit::Failed),
    ] {
        let client = client_with(status, "text/html", "<html></html>").await;
        let error = client.get("/v1/sagas", &[]).await.unwrap_err();
        assert_eq!(error.exit(), expected, "{status}: {error}");
    }
}

#[tokio::test]
async fn problem_has_the_delay_that_the_response_requests() {
    let client = client_with(StatusCode::TOO_MANY_REQUESTS, "application/json", "{}").await;
    let trouble = client.send("/v1/events", &json!([])).await.err();
    let Some(ClientError::Problem { retry_after, .. }) = trouble else {
        panic!("the request succeeded, or has no response");
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
}

/// A server that accepts the connection and sends nothing.
#[tokio::test(start_paused = true)]
async fn download_ends_without_a_response() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client_of(&format!("http://{}", listener.local_addr().unwrap()));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let error = client.download("/admin/backup/1", &file).await.unwrap_err();
    assert_eq!(error.exit(), CommandExit::Unavailable);
    assert!(!file.exists(), "{error}");
}
