//! Problems: every API error as `application/problem+json` with a documented code.
//!
//! The meaning of a code never changes. Its page, `docs/errors/<code>.md`, describes the error and
//! the remedy. The binary serves the page at the `type` of the problem, so that it is available
//! offline.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use orlog_effect::content_encoding::{self, UnsupportedEncoding};
use orlog_model::whole_seconds;
use serde::Serialize;
use utoipa::ToSchema;

use orlog_node::coded_error::CodedError;
pub(crate) use orlog_node::error_code::{Code, page};

/// Default `Retry-After` in seconds.
const RETRY_AFTER_SECONDS: u16 = 1;
/// `Retry-After` in seconds while the process drains, because another process must take over first.
const DRAINING_RETRY_AFTER_SECONDS: u16 = 5;

/// API error (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// URL of the page of the code, relative to this server.
    #[serde(rename = "type")]
    #[schema(example = "/errors/OR0003")]
    kind: String,
    /// Short meaning of the code.
    title: &'static str,
    /// HTTP status.
    status: u16,
    /// Code for programs; its meaning never changes.
    #[schema(example = "OR0003")]
    code: &'static str,
    /// Details of this error, with location and values.
    detail: String,
    /// Error locations, if there are several or if a location is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ProblemDetail>,
    #[serde(skip)]
    #[schema(ignore)]
    source: Code,
    /// Value of `Retry-After` in seconds; the default of the code if `None`.
    #[serde(skip)]
    #[schema(ignore)]
    retry_after: Option<u16>,
    /// Whether the response names the content encodings that bodies can have.
    #[serde(skip)]
    #[schema(ignore)]
    has_accept_encoding: bool,
}

/// One error and its location.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ProblemDetail {
    /// JSON pointer into the body, or location in a definition.
    #[schema(example = "/3/time")]
    pub(crate) pointer: String,
    /// Reason of the error.
    pub(crate) detail: String,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/errors/{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            code: code.as_str(),
            detail: detail.into(),
            errors: Vec::new(),
            source: code,
            retry_after: None,
            has_accept_encoding: false,
        }
    }

    /// Returns the problem of a request to a route for peers that no peer has signed.
    pub(crate) fn not_a_peer() -> Self {
        let detail =
            "this route accepts only requests that a peer has signed; `orlog peer check` sends one";
        Self::new(Code::Forbidden, detail)
    }

    /// Returns the problem of a body in a content encoding that is not supported.
    pub(crate) fn unsupported_encoding(error: &UnsupportedEncoding) -> Self {
        Self {
            has_accept_encoding: true,
            ..Self::new(Code::UnsupportedMediaType, error.to_string())
        }
    }

    /// Returns the problem of a request about a shard that moves to another pod.
    pub(crate) fn moving() -> Self {
        CodedError::moving().into()
    }

    /// Returns the code.
    pub(crate) fn code(&self) -> Code {
        self.source
    }

    /// Returns the details of this error.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn with(mut self, errors: Vec<ProblemDetail>) -> Self {
        self.errors = errors;
        self
    }

    /// Returns whether the error passes: the same request can succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        self.retry_after().is_some()
    }

    /// Sets the time after which a retry can succeed, rounded up to whole seconds.
    pub(crate) fn with_retry_after(mut self, wait: Duration) -> Self {
        let seconds = whole_seconds(wait);
        self.retry_after = Some(
            u16::try_from(seconds)
                .unwrap_or(u16::MAX)
                .max(RETRY_AFTER_SECONDS),
        );
        self
    }

    fn retry_after(&self) -> Option<u16> {
        self.retry_after.or(match self.source {
            Code::Draining => Some(DRAINING_RETRY_AFTER_SECONDS),
            code if code.is_transient() => Some(RETRY_AFTER_SECONDS),
            _ => None,
        })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after();
        let has_accept_encoding = self.has_accept_encoding;
        let body = serde_json::to_vec(&self).expect("a problem serializes to JSON");
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.source.status(), content_type, body).into_response();
        // The audit trail reads the code here; the body is encoded already.
        response.extensions_mut().insert(self.source);

        if self.source.status() == StatusCode::UNAUTHORIZED {
            // A 401 must name a challenge (RFC 9110); webhooks are authenticated by their signature
            // only.
            let scheme = if self.source == Code::InvalidSignature {
                "Signature"
            } else {
                "Bearer"
            };
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }

        if let Some(seconds) = retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if has_accept_encoding {
            let supported = HeaderValue::from_static(content_encoding::SUPPORTED);
            response
                .headers_mut()
                .insert(header::ACCEPT_ENCODING, supported);
        }

        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retryable_problems_have_retry_after() {
        let response = Problem::new(Code::Draining, "x").into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        assert_eq!(
            Problem::new(Code::RouteNotFound, "x")
                .into_response()
                .headers()
                .get(header::RETRY_AFTER),
            None
        );
    }
}
