//! What an HTTP response means.
//!
//! | status | meaning |
//! |---|---|
//! | 2xx | done |
//! | 425, 429 | busy: tried again |
//! | 408, 503 | down: tried again |
//! | other 5xx | lost: it may have been done; tried again |
//! | 3xx, 4xx | refused for good |

use std::fmt;
use std::time::Duration;

use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::provider::{Refusal, Reply};

/// The most that is read of a body where nothing else is said, in bytes.
pub(crate) const MAX_BODY: usize = 1 << 20;

/// The most of a text that is kept where the body is no JSON or was cut, in bytes.
const MAX_TEXT: usize = 4096;

/// The most of a body that is quoted in a message, in characters.
const MAX_QUOTE: usize = 200;

/// What a response answers.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.upstream, self.method, self.path)
    }
}

/// A response's body as far as it was read.
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// There was more than may be read.
    pub(crate) cut: bool,
}

/// A response.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Body {
    /// Reads up to `most` bytes; the connection of a longer one is given up.
    pub(crate) async fn read(mut response: Response, most: usize) -> Result<Self, reqwest::Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            let room = most - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return Ok(Self { bytes, cut: true });
            }
        }
        Ok(Self { bytes, cut: false })
    }
}

/// What it means by its status alone; see the table above.
pub(crate) fn judge(asked: Asked<'_>, answered: &Answered) -> Result<Reply, Refusal> {
    let Answered { status, headers, body } = answered;
    if status.is_success() {
        return Ok(Reply::from(payload(body)));
    }
    let code = format!("http_{}", status.as_u16());
    let message = message(asked, answered);
    let refusal = match status.as_u16() {
        425 | 429 => Refusal::busy(code, message),
        408 | 503 => Refusal::retry(code, message),
        500..=599 => Refusal::lost(code, message),
        _ => return Err(Refusal::failed(code, message).with_payload(payload(body))),
    };
    Err(match retry_after(headers) {
        Some(pause) => refusal.after(pause),
        None => refusal,
    })
}

/// The body as JSON: what it is, `null` where it is empty, `{"text": …}` where it is something else.
///
/// An answer that is too long is not a failure: the act is done, only its answer is not kept whole.
pub(crate) fn payload(body: &Body) -> Value {
    if body.cut {
        return json!({ "text": text(&body.bytes), "truncated": true });
    }
    if body.bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(&body.bytes).unwrap_or_else(|_| json!({ "text": text(&body.bytes) }))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned()
}

pub(crate) fn message(asked: Asked<'_>, answered: &Answered) -> String {
    let Answered { status, headers, body } = answered;
    if status.is_redirection() {
        let location = named(headers, &LOCATION).unwrap_or("nowhere");
        return format!(
            "{asked} answered {} and points to {location}; redirects are not followed",
            status.as_u16()
        );
    }
    let quote: String = text(&body.bytes).chars().filter(|c| !c.is_control()).take(MAX_QUOTE).collect();
    let colon = if quote.is_empty() { "" } else { ": " };
    format!("{asked} answered {}{colon}{quote}", status.as_u16())
}

/// Seconds, or a date. A date is compared with the response's own `Date`: the upstream's clock, not ours.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = named(headers, &RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let until = rfc2822::parse(text).ok()?.timestamp();
    let now = rfc2822::parse(named(headers, &DATE)?).ok()?.timestamp();
    Duration::try_from(until.duration_since(now)).ok()
}

fn named<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Trouble;

    const ASKED: Asked<'_> = Asked { upstream: "payments", method: "POST", path: "/charges" };

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Result<Reply, Refusal> {
        let pairs =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let body = Body { bytes: body.as_bytes().to_vec(), cut: false };
        let status = StatusCode::from_u16(status).unwrap();
        judge(ASKED, &Answered { status, headers: pairs.collect(), body })
    }

    #[track_caller]
    fn check_trouble(status: u16, headers: &[(&'static str, &str)], expected: Trouble, pause: Option<u64>) {
        let Err(Refusal::Transient { trouble, retry_after, failure }) = answer(status, headers, "") else {
            panic!("{status} is not transient");
        };
        assert_eq!((trouble, retry_after), (expected, pause.map(Duration::from_secs)), "{failure}");
        assert_eq!(failure.code, format!("http_{status}"));
    }

    #[track_caller]
    fn check_final(status: u16, headers: &[(&'static str, &str)], body: &str, expected: &str) {
        let Err(Refusal::Final { failure, .. }) = answer(status, headers, body) else {
            panic!("{status} is not final");
        };
        assert_eq!(failure.message, expected);
    }

    #[test]
    fn success_carries_the_body() {
        assert_eq!(answer(201, &[], r#"{"a":1}"#).unwrap().payload, json!({"a": 1}));
        assert_eq!(answer(200, &[], "fine").unwrap().payload, json!({"text": "fine"}));
        assert_eq!(answer(204, &[], "").unwrap().payload, Value::Null);
    }

    #[test]
    fn a_body_that_is_too_long_is_cut_but_the_act_is_done() {
        let body = Body { bytes: vec![b'x'; MAX_BODY], cut: true };
        let answered = Answered { status: StatusCode::OK, headers: HeaderMap::new(), body };
        let reply = judge(ASKED, &answered).unwrap();
        assert_eq!(reply.payload["truncated"], true);
        assert_eq!(reply.payload["text"].as_str().unwrap().len(), MAX_TEXT);
    }

    #[test]
    fn refusals_are_final_and_say_who_refused_what() {
        check_final(404, &[], "no such\ncard", "payments: POST /charges answered 404: no suchcard");
        check_final(409, &[], "", "payments: POST /charges answered 409");
        check_final(
            302,
            &[("location", "http://elsewhere/")],
            "moved",
            "payments: POST /charges answered 302 and points to http://elsewhere/; redirects are not followed",
        );
    }

    #[test]
    fn troubles_are_told_apart() {
        check_trouble(429, &[("retry-after", "7")], Trouble::Busy, Some(7));
        check_trouble(503, &[], Trouble::Down, None);
        check_trouble(408, &[], Trouble::Down, None);
        check_trouble(500, &[("retry-after", "soon")], Trouble::Lost, None);
    }

    #[test]
    fn a_date_is_compared_with_the_clock_of_the_upstream() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        check_trouble(
            503,
            &[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), date],
            Trouble::Down,
            Some(30),
        );
        check_trouble(503, &[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT"), date], Trouble::Down, None);
        check_trouble(503, &[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], Trouble::Down, None);
    }
}
