//! HTTP client of the tests, and the responses of a node.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Response, StatusCode};
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::Value;

/// Received response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) async fn receive(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            status: parts.status,
            headers: parts.headers,
            text,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Asserts success, and returns the body.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.json()
    }

    /// Returns the detail of a problem with this code.
    #[track_caller]
    pub(crate) fn problem(&self, code: &str) -> String {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], self.status.as_u16());
        assert_eq!(problem["type"], format!("/errors/{code}"));
        problem["detail"].as_str().unwrap().to_owned()
    }

    /// Returns the detail of a problem with this status and code.
    #[track_caller]
    pub(crate) fn rejected(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        self.problem(code)
    }
}

/// Creates a client.
pub(crate) fn client() -> reqwest::Client {
    orlog_effect::http::client()
        .timeout(WAIT_TIMEOUT)
        .build()
        .unwrap()
}

/// Sends a request over a socket.
pub(crate) async fn send(
    client: &reqwest::Client,
    method: &str,
    url: String,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> HttpResponse {
    let mut request = client.request(method.parse().unwrap(), url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.json(body);
    } else if headers.iter().all(|(name, _)| *name != "content-type") {
        // A node requires it for each change.
        request = request.header("content-type", "application/json");
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    HttpResponse {
        status,
        headers,
        text: response.text().await.unwrap(),
    }
}
