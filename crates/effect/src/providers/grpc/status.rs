//! Classification of gRPC status codes by the table of `crate::decisions`.
//!
//! The HTTP status of a proxy is mapped to one of them before (`response`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::Failure;
use prost::Message as _;
use prost_types::Any;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::schema::{self, Schema};
use crate::decisions::decide_grpc;
use crate::provider::{ProbeResult, ProviderError, Reply};
use crate::quote::quote;
use crate::response_rules::{ProbeClass, ResponseContext, ResponseRule};
use crate::secret::SecretScrubber;

const NAMES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];

/// Returns the code with a name; `UNKNOWN` if there is none.
pub(crate) fn code(name: &str) -> Code {
    NAMES
        .iter()
        .find(|(_, known)| *known == name)
        .map_or(Code::Unknown, |(code, _)| *code)
}

pub(crate) fn name(code: Code) -> &'static str {
    NAMES
        .iter()
        .find(|(known, _)| *known == code)
        .map_or("UNKNOWN", |(_, name)| name)
}

/// One or several status codes: `"NOT_FOUND"`, `["NOT_FOUND", "ABORTED"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes(Vec<Code>);

impl Codes {
    pub(crate) fn cover(&self, code: Code) -> bool {
        self.0.contains(&code)
    }
}

impl<'de> Deserialize<'de> for Codes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum OneOrMany {
            One(String),
            Many(Vec<String>),
        }

        let texts = match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        };

        let mut codes = Vec::with_capacity(texts.len());
        for text in &texts {
            let known = NAMES.iter().find(|(_, name)| name == text);
            let (code, _) = known.ok_or_else(|| {
                D::Error::custom(format!(
                    "{text:?} is not a valid status code; example: NOT_FOUND"
                ))
            })?;
            codes.push(*code);
        }
        Ok(Self(codes))
    }
}

impl Serialize for Codes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|code| name(*code)))
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .0
                .iter()
                .map(|code| name(*code))
                .collect::<Vec<_>>()
                .join(", "),
        )
    }
}

/// Rule about responses.
pub type GrpcResponseRule = ResponseRule<Codes>;

/// Rule about responses to a probe.
pub type GrpcProbeRule = ResponseRule<Codes, ProbeClass>;

/// Status other than `OK`, without secrets.
pub(crate) struct GrpcStatus {
    code: Code,
    message: String,
    /// JSON of the status: `{ "code", "message", "details" }`.
    body: Value,
    retry_after: Option<Duration>,
}

impl GrpcStatus {
    /// Creates the status; `prefix` is the beginning of the message.
    pub(crate) fn new(
        prefix: &str,
        status: &Status,
        schema: &Schema,
        scrub: &SecretScrubber,
    ) -> Self {
        let code = status.code();
        let message = scrub.scrub_text(status.message().to_owned());
        let quote = quote(&message);
        let colon = if quote.is_empty() { "" } else { ": " };

        let details = RpcStatus::decode(status.details())
            .unwrap_or_default()
            .details;
        let detail_json: Value = details
            .iter()
            .map(|detail| detail_json(detail, schema))
            .collect();
        let body = json!({
            "code": name(code),
            "message": message,
            "details": scrub.scrub_json(detail_json),
        });

        let retry_after = details
            .iter()
            .find_map(retry_info)
            .or_else(|| pushback(status));

        Self {
            code,
            message: format!("{prefix} returned {}{colon}{quote}", name(code)),
            body,
            retry_after,
        }
    }

    /// Classifies the status by the first matching rule, otherwise by the table.
    pub(crate) fn classify(&self, rules: &[GrpcResponseRule]) -> Result<Reply, ProviderError> {
        match self.matching(rules) {
            Some(rule) => rule.classify(self.context()),
            None => Err(self.provider_error(self.usual())),
        }
    }

    /// Classifies the response to a probe by the first matching rule. Without one, the probe has no
    /// answer if the status may change, and the outcome is unknown otherwise.
    pub(crate) fn classify_probe(&self, rules: &[GrpcProbeRule]) -> ProbeResult {
        if let Some(rule) = self.matching(rules) {
            return rule.probe_result(self.context());
        }

        tracing::warn!(
            message = self.message,
            "response to a probe matches no rule"
        );
        ProbeResult::from_error(self.provider_error(self.usual()))
    }

    fn matching<'a, C>(
        &self,
        rules: &'a [ResponseRule<Codes, C>],
    ) -> Option<&'a ResponseRule<Codes, C>> {
        rules
            .iter()
            .find(|rule| rule.matches(|codes| codes.cover(self.code), &self.body))
    }

    fn context(&self) -> ResponseContext<'_> {
        ResponseContext {
            body: &self.body,
            usual: self.usual(),
            retry_after: self.retry_after,
        }
    }

    fn usual(&self) -> Failure {
        Failure {
            code: self.code_text(),
            message: self.message.clone(),
        }
    }

    fn code_text(&self) -> String {
        format!("grpc_{}", name(self.code).to_ascii_lowercase())
    }

    fn provider_error(&self, Failure { code, message }: Failure) -> ProviderError {
        let decision = decide_grpc(name(self.code));
        let provider_error = ProviderError::decided(decision, code, message).of_attempt();

        provider_error
            .with_payload(self.body.clone())
            .with_retry_after(self.retry_after)
    }
}

/// `google.rpc.Status`, sent in `grpc-status-details-bin`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

fn kind(detail: &Any) -> &str {
    detail.type_url.rsplit('/').next().unwrap_or_default()
}

fn retry_info(detail: &Any) -> Option<Duration> {
    if kind(detail) != "google.rpc.RetryInfo" {
        return None;
    }

    RetryInfo::decode(detail.value.as_slice())
        .ok()?
        .retry_delay?
        .try_into()
        .ok()
}

fn pushback(status: &Status) -> Option<Duration> {
    let text = status
        .metadata()
        .get("grpc-retry-pushback-ms")?
        .to_str()
        .ok()?;
    text.parse().ok().map(Duration::from_millis)
}

/// Converts a detail to JSON if its type is in the descriptors or well known; otherwise returns its
/// bytes.
fn detail_json(detail: &Any, schema: &Schema) -> Value {
    let name = kind(detail);
    let bytes = detail.value.as_slice();

    let described = schema.pool().get_message_by_name(name);
    let fields = described.and_then(|described| schema::decode(&described, bytes).ok());
    let fields = fields.or_else(|| well_known_detail(name, bytes));

    let mut detail_json = fields.unwrap_or_else(|| json!({ "value": STANDARD.encode(bytes) }));
    detail_json["@type"] = json!(name);
    detail_json
}

fn well_known_detail(name: &str, bytes: &[u8]) -> Option<Value> {
    match name {
        "google.rpc.ErrorInfo" => {
            let ErrorInfo {
                reason,
                domain,
                metadata,
            } = ErrorInfo::decode(bytes).ok()?;
            Some(json!({ "reason": reason, "domain": domain, "metadata": metadata }))
        }
        "google.rpc.RetryInfo" => {
            let delay: Duration = RetryInfo::decode(bytes)
                .ok()?
                .retry_delay?
                .try_into()
                .ok()?;
            Some(json!({ "retryDelay": format!("{}s", delay.as_secs_f64()) }))
        }
        _ => None,
    }
}
