//! Rules for HTTP statuses; `http::response` classifies responses without a matching rule.

use std::fmt;
use std::str::FromStr;

use orlog_model::Failure;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::http::response::{self, HttpResponse, RequestSummary};
use crate::provider::{ProbeResult, ProviderError, Reply};
use crate::response_rules::{ProbeClass, ResponseContext, ResponseRule};

/// Rule about responses.
pub type HttpResponseRule = ResponseRule<StatusRange>;

/// Rule about responses to a probe.
pub type HttpProbeRule = ResponseRule<StatusRange, ProbeClass>;

/// Range of statuses: `402`, `"4xx"`, `"400-409"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

/// Classifies a response by the first matching rule, otherwise by its status alone. A success has
/// the schema version of its header.
pub(crate) fn classify(
    rules: &[HttpResponseRule],
    summary: RequestSummary<'_>,
    http_response: &HttpResponse,
) -> Result<Reply, ProviderError> {
    let version = response::data_version(&http_response.headers);
    classify_by_rules(rules, summary, http_response).map(|reply| reply.with_version(version))
}

fn classify_by_rules(
    rules: &[HttpResponseRule],
    summary: RequestSummary<'_>,
    http_response: &HttpResponse,
) -> Result<Reply, ProviderError> {
    // The usual effect has no rules, and its body need not be parsed twice.
    if rules.is_empty() || http_response.is_unreadable_success() {
        return response::classify_status(summary, http_response);
    }

    let body = response::payload(&http_response.body);
    match matching(rules, http_response, &body) {
        Some(rule) => rule.classify(context(summary, http_response, &body)),
        None => response::classify_status(summary, http_response),
    }
}

/// Classifies the response to a probe by the first matching rule. Without one, the probe has no
/// answer if the status may change, and the outcome is unknown otherwise.
pub(crate) fn classify_probe(
    rules: &[HttpProbeRule],
    summary: RequestSummary<'_>,
    http_response: &HttpResponse,
) -> ProbeResult {
    let body = response::payload(&http_response.body);
    if !http_response.is_unreadable_success()
        && let Some(rule) = matching(rules, http_response, &body)
    {
        let version = response::data_version(&http_response.headers);
        return match rule.probe_result(context(summary, http_response, &body)) {
            ProbeResult::Done(reply) => ProbeResult::Done(reply.with_version(version)),
            other => other,
        };
    }

    let message = response::message(summary, http_response);
    tracing::warn!(
        upstream = summary.upstream,
        message,
        "response to a probe matches no rule"
    );
    response::classify_status(summary, http_response)
        .map_or_else(ProbeResult::from_error, |_| ProbeResult::Unknown)
}

fn matching<'a, C>(
    rules: &'a [ResponseRule<StatusRange, C>],
    http_response: &HttpResponse,
    body: &Value,
) -> Option<&'a ResponseRule<StatusRange, C>> {
    let status = http_response.status.as_u16();
    rules.iter().find(|rule| {
        rule.matches(
            |statuses: &StatusRange| (statuses.first..=statuses.last).contains(&status),
            body,
        )
    })
}

fn context<'a>(
    summary: RequestSummary<'_>,
    http_response: &HttpResponse,
    body: &'a Value,
) -> ResponseContext<'a> {
    let code = format!("http_{}", http_response.status.as_u16());
    let usual = Failure {
        code,
        message: response::message(summary, http_response),
    };
    ResponseContext {
        body,
        usual,
        retry_after: response::retry_after(&http_response.headers),
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let status = |text: &str| {
            text.parse::<u16>()
                .ok()
                .filter(|code| (100..=999).contains(code))
        };

        let range = match (text.strip_suffix("xx"), text.split_once('-')) {
            (Some(hundreds), _) => {
                status(&format!("{hundreds}00")).map(|first| (first, first + 99))
            }
            (None, Some((first, last))) => status(first).zip(status(last)),
            (None, None) => status(text).map(|code| (code, code)),
        };

        let (first, last) = range.filter(|(first, last)| first <= last).ok_or_else(|| {
            format!("invalid status range {text:?}; examples: 402, \"4xx\", \"400-409\"")
        })?;

        Ok(Self { first, last })
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawRule {
            Number(u16),
            Text(String),
        }

        let text = match RawRule::deserialize(deserializer)? {
            RawRule::Number(code) => code.to_string(),
            RawRule::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
