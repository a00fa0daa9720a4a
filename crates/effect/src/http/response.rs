//! Classification of HTTP responses by the table of `crate::decisions`.

use std::fmt;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::{parse_foreign_json, parse_http_date};
use reqwest::header::{DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::content_encoding::ContentEncoding;
use crate::decisions::{Decision, decide_http};
use crate::http::headers::DATA_VERSION;
use crate::provider::{ProviderError, Reply};
use crate::quote::quote;

/// Default maximum number of body bytes that are read.
pub(crate) const MAX_BODY: usize = 1 << 20;

/// Maximum number of text bytes that are kept if the body is not JSON or was truncated.
const MAX_TEXT: usize = 4096;

/// Summary of the request of a response.
#[derive(Clone, Copy)]
pub(crate) struct RequestSummary<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

impl fmt::Display for RequestSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.upstream, self.method, self.path)
    }
}

/// Response body as far as it was read.
pub(crate) struct ResponseBody {
    pub(crate) bytes: Vec<u8>,
    /// Whether the body was truncated at the limit.
    pub(crate) cut: bool,
    /// Reason for which the bytes are still encoded.
    pub(crate) still_encoded: Option<String>,
}

pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ResponseBody,
}

impl HttpResponse {
    /// Returns whether the request succeeded and its result cannot be read: the body is still
    /// encoded, so that it has no fields for rules.
    pub(crate) fn is_unreadable_success(&self) -> bool {
        self.status.is_success() && self.body.still_encoded.is_some()
    }
}

impl ResponseBody {
    /// Returns a complete body without a content encoding.
    pub(crate) fn plain(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            cut: false,
            still_encoded: None,
        }
    }

    /// Reads up to `limit` bytes, and decodes up to `limit` bytes; closes the connection of a
    /// longer body. Orlog requests no encoding, but servers and proxies can use one nevertheless.
    pub(crate) async fn read(response: Response, limit: usize) -> Result<Self, reqwest::Error> {
        let encoding = ContentEncoding::of(response.headers());
        let received = Self::receive(response, limit).await?;
        if received.bytes.is_empty() {
            return Ok(received);
        }

        match encoding {
            Ok(None) => Ok(received),
            Err(error) => Ok(Self {
                still_encoded: Some(error.to_string()),
                ..received
            }),
            // A small body can decode to the limit, which takes time.
            Ok(Some(encoding)) => {
                let decoding =
                    tokio::task::spawn_blocking(move || received.decoded(encoding, limit));
                Ok(decoding.await.expect("the decoder does not panic"))
            }
        }
    }

    async fn receive(mut response: Response, limit: usize) -> Result<Self, reqwest::Error> {
        let mut body = Self::plain(Vec::new());
        while let Some(chunk) = response.chunk().await? {
            let remaining_bytes = limit - body.bytes.len();
            body.bytes
                .extend_from_slice(&chunk[..chunk.len().min(remaining_bytes)]);
            if chunk.len() > remaining_bytes {
                body.cut = true;
                return Ok(body);
            }
        }
        Ok(body)
    }

    fn decoded(self, encoding: ContentEncoding, limit: usize) -> Self {
        let mut bytes = Vec::new();
        // One byte more, to see whether the limit truncates the content.
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        let decoded = encoding
            .decoder(&self.bytes)
            .take(most)
            .read_to_end(&mut bytes);

        match decoded {
            // The end of a truncated body is an error; the start of its content is known.
            Err(error) if !self.cut => Self {
                still_encoded: Some(format!("the body is not valid {encoding}: {error}")),
                ..self
            },
            Ok(_) | Err(_) => {
                let cut = self.cut || bytes.len() > limit;
                bytes.truncate(limit);
                Self {
                    bytes,
                    cut,
                    still_encoded: None,
                }
            }
        }
    }
}

/// Classifies a response by its status alone.
pub(crate) fn classify_status(
    summary: RequestSummary<'_>,
    response: &HttpResponse,
) -> Result<Reply, ProviderError> {
    let HttpResponse {
        status,
        headers,
        body,
    } = response;

    if status.is_success() {
        // The upstream has executed the request: only its result is unknown.
        if body.still_encoded.is_some() {
            let error =
                ProviderError::response_lost("content_encoding", message(summary, response));
            return Err(error.with_payload(payload(body)));
        }
        return Ok(Reply::from(payload(body)));
    }

    let code = format!("http_{}", status.as_u16());
    let message = message(summary, response);
    let decision = decide_http(status.as_u16());
    let error = ProviderError::decided(decision, code, message).with_payload(payload(body));
    let error = match decision {
        Decision::Failed => error.of_attempt(),
        _ => error,
    };
    Err(error.with_retry_after(retry_after(headers)))
}

/// Returns the schema version of a response: 1 without a header. A header that is no version is a
/// version that no definition accepts.
pub(crate) fn data_version(headers: &HeaderMap) -> u32 {
    let text = headers
        .get(&DATA_VERSION)
        .map(|value| value.to_str().unwrap_or_default());
    text.map_or(1, |text| {
        text.trim()
            .parse()
            .ok()
            .filter(|version| *version > 0)
            .unwrap_or(u32::MAX)
    })
}

/// Returns the body as JSON: the parsed value, `null` if it is empty, `{"text": …}` for other
/// content, and `{"base64": …}` for content that is still encoded.
///
/// A body above the limit is not a failure: the effect was executed, only its response is
/// incomplete.
pub(crate) fn payload(body: &ResponseBody) -> Value {
    if let Some(reason) = &body.still_encoded {
        let bytes = STANDARD.encode(&body.bytes);
        return json!({ "base64": bytes, "reason": reason, "truncated": body.cut });
    }
    if body.cut {
        return json!({ "text": text(&body.bytes), "truncated": true });
    }
    if body.bytes.is_empty() {
        return Value::Null;
    }

    let Ok(parsed) = parse_foreign_json(&body.bytes) else {
        return json!({ "text": text(&body.bytes) });
    };
    if parsed.is_repaired {
        tracing::warn!("a response has text that is not Unicode; it was replaced by U+FFFD");
    }
    parsed.value
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned()
}

pub(crate) fn message(summary: RequestSummary<'_>, response: &HttpResponse) -> String {
    let HttpResponse {
        status,
        headers,
        body,
    } = response;

    if status.is_redirection() {
        let location = named(headers, &LOCATION).unwrap_or("nowhere");
        return format!(
            "{summary} returned HTTP {} with location {location}; redirects are not followed",
            status.as_u16()
        );
    }

    let quote = match &body.still_encoded {
        Some(reason) => quote(reason),
        None => quote(&text(&body.bytes)),
    };
    let colon = if quote.is_empty() { "" } else { ": " };
    format!("{summary} returned HTTP {}{colon}{quote}", status.as_u16())
}

/// Parses seconds or a date (RFC 9110, 10.2.3). A date is compared with the `Date` of the response,
/// the clock of the upstream.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = named(headers, &RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }

    let Some(until) = parse_http_date(text) else {
        tracing::warn!(value = %quote(text), "a retry-after is neither seconds nor a date; ignored");
        return None;
    };

    // Both times are of one clock. The local clock can differ from it by more than the delay.
    let Some(now) = named(headers, &DATE).and_then(parse_http_date) else {
        tracing::warn!(
            value = %quote(text),
            "a retry-after date has no readable date header beside it; ignored"
        );
        return None;
    };
    (until >= now).then(|| until.duration_since(now))
}

fn named<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::read::GzEncoder;

    use super::*;
    use crate::provider::{RejectionScope, TransientCause};

    const SUMMARY: RequestSummary<'_> = RequestSummary {
        upstream: "payments",
        method: "POST",
        path: "/charges",
    };

    fn classify(
        status: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Result<Reply, ProviderError> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let body = ResponseBody::plain(body.as_bytes().to_vec());
        let status = StatusCode::from_u16(status).unwrap();
        classify_status(
            SUMMARY,
            &HttpResponse {
                status,
                headers: pairs.collect(),
                body,
            },
        )
    }

    #[track_caller]
    fn check_trouble(
        status: u16,
        headers: &[(&'static str, &str)],
        expected: TransientCause,
        delay: Option<u64>,
    ) {
        let Err(ProviderError::Transient {
            trouble,
            retry_after,
            failure,
            ..
        }) = classify(status, headers, "")
        else {
            panic!("{status} is not transient");
        };
        assert_eq!(
            (trouble, retry_after),
            (expected, delay.map(Duration::from_secs)),
            "{failure}"
        );
        assert_eq!(failure.code, format!("http_{status}"));
    }

    #[track_caller]
    fn check_final(status: u16, headers: &[(&'static str, &str)], body: &str, expected: &str) {
        let Err(ProviderError::Permanent { failure, scope, .. }) = classify(status, headers, body)
        else {
            panic!("{status} is not final");
        };
        assert_eq!(failure.message, expected);
        // Only the service itself declines a payment.
        let of_effect = scope == RejectionScope::Effect;
        assert_eq!(of_effect, status == 402, "{status}");
    }

    #[test]
    fn success_carries_the_body() {
        assert_eq!(
            classify(201, &[], r#"{"a":1}"#).unwrap().payload,
            json!({"a": 1})
        );
        assert_eq!(
            classify(200, &[], "fine").unwrap().payload,
            json!({"text": "fine"})
        );
        assert_eq!(classify(204, &[], "").unwrap().payload, Value::Null);
    }

    #[test]
    fn oversized_body_is_truncated_and_succeeds() {
        let body = ResponseBody {
            cut: true,
            ..ResponseBody::plain(vec![b'x'; MAX_BODY])
        };
        let response = HttpResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body,
        };
        let reply = classify_status(SUMMARY, &response).unwrap();
        assert_eq!(reply.payload["truncated"], true);
        assert_eq!(reply.payload["text"].as_str().unwrap().len(), MAX_TEXT);
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        GzEncoder::new(bytes, Compression::default())
            .read_to_end(&mut encoded)
            .unwrap();
        encoded
    }

    /// Returns a body that a server sends with this content encoding.
    async fn read(encoding: &str, bytes: Vec<u8>) -> ResponseBody {
        let response = http::Response::builder()
            .header("content-encoding", encoding)
            .body(bytes)
            .unwrap();
        ResponseBody::read(response.into(), MAX_BODY).await.unwrap()
    }

    #[tokio::test]
    async fn encoded_body_is_decoded_up_to_the_limit() {
        let body = read("gzip", gzip(br#"{"a":1}"#)).await;
        assert_eq!(payload(&body), json!({"a": 1}));
        assert_eq!(payload(&read("gzip", Vec::new()).await), Value::Null);
        assert_eq!(payload(&read("identity", b"1".to_vec()).await), json!(1));

        let zeros = gzip(&vec![b'0'; 64 * MAX_BODY]);
        assert!(zeros.len() < MAX_BODY);
        let body = read("gzip", zeros).await;
        assert!(body.cut);
        assert_eq!(body.bytes.len(), MAX_BODY);
    }

    #[tokio::test]
    async fn body_that_is_still_encoded_is_kept_and_the_outcome_is_in_doubt() {
        for (encoding, bytes, reason) in [
            (
                "br",
                b"\x0b\x00".to_vec(),
                "the content encoding \"br\" is not supported; supported: gzip, deflate",
            ),
            (
                "gzip",
                b"the text of a server".to_vec(),
                "the body is not valid gzip: invalid gzip header",
            ),
        ] {
            let body = read(encoding, bytes.clone()).await;
            let response = HttpResponse {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body,
            };
            let Err(ProviderError::Transient {
                trouble,
                failure,
                payload,
                ..
            }) = classify_status(SUMMARY, &response)
            else {
                panic!("the result is not known");
            };
            assert_eq!(trouble, TransientCause::ResponseLost);
            assert_eq!(
                (failure.code.as_str(), failure.message.as_str()),
                (
                    "content_encoding",
                    format!("payments: POST /charges returned HTTP 200: {reason}").as_str()
                )
            );
            assert_eq!(payload["base64"], STANDARD.encode(bytes));
        }
    }

    #[test]
    fn rejections_are_permanent_and_name_the_request() {
        check_final(
            404,
            &[],
            "no such\ncard",
            "payments: POST /charges returned HTTP 404: no suchcard",
        );
        check_final(409, &[], "", "payments: POST /charges returned HTTP 409");
        check_final(402, &[], "", "payments: POST /charges returned HTTP 402");
        check_final(
            307,
            &[("location", "http://elsewhere/")],
            "moved",
            "payments: POST /charges returned HTTP 307 with location http://elsewhere/; redirects are not followed",
        );
    }

    #[test]
    fn transient_causes_are_distinguished() {
        check_trouble(
            429,
            &[("retry-after", "7")],
            TransientCause::Throttled,
            Some(7),
        );
        check_trouble(503, &[], TransientCause::ReportedUnavailable, None);
        check_trouble(408, &[], TransientCause::ReportedUnavailable, None);
        check_trouble(499, &[], TransientCause::ResponseLost, None);
        check_trouble(
            500,
            &[("retry-after", "soon")],
            TransientCause::ResponseLost,
            None,
        );
    }

    #[test]
    fn retry_after_date_can_have_an_obsolete_form() {
        for (date, until) in [
            (
                "Sunday, 06-Nov-94 08:49:37 GMT",
                "Sunday, 06-Nov-94 08:50:07 GMT",
            ),
            ("Sun Nov  6 08:49:37 1994", "Sun Nov  6 08:50:07 1994"),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun Nov  6 08:50:07 1994"),
        ] {
            check_trouble(
                429,
                &[("retry-after", until), ("date", date)],
                TransientCause::Throttled,
                Some(30),
            );
        }
    }

    #[test]
    fn retry_after_date_uses_the_upstream_clock() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        check_trouble(
            503,
            &[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), date],
            TransientCause::ReportedUnavailable,
            Some(30),
        );
        check_trouble(
            503,
            &[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT"), date],
            TransientCause::ReportedUnavailable,
            None,
        );
        check_trouble(
            503,
            &[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")],
            TransientCause::ReportedUnavailable,
            None,
        );
    }
}
