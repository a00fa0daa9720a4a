//! What a gRPC status means.
//!
//! | status | meaning |
//! |---|---|
//! | `OK` | done |
//! | `RESOURCE_EXHAUSTED`, `ABORTED` | busy: not done, the upstream is well; tried again |
//! | `UNAVAILABLE` | down: tried again |
//! | `DEADLINE_EXCEEDED`, `CANCELLED`, `UNKNOWN`, `INTERNAL`, `DATA_LOSS` | lost: it may have been done; tried again |
//! | every other | refused for good |

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
use crate::provider::Refusal;
use crate::response_rules::{Judged, Rule};
use crate::secret::Scrub;

/// The most of a status's message that is quoted, in characters.
const MAX_QUOTE: usize = 200;

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

/// The name of a status, as the gRPC documentation writes it.
pub(crate) fn name(code: Code) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == code).map_or("UNKNOWN", |(_, name)| name)
}

/// One status or several: `"NOT_FOUND"`, `["NOT_FOUND", "ABORTED"]`.
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
        enum Written {
            One(String),
            Many(Vec<String>),
        }
        let texts = match Written::deserialize(deserializer)? {
            Written::One(text) => vec![text],
            Written::Many(texts) => texts,
        };
        let code = |text: &String| {
            let found = NAMES.iter().find(|(_, name)| name == text).map(|(code, _)| *code);
            found.ok_or_else(|| {
                D::Error::custom(format!("{text:?} is no status; write for example NOT_FOUND"))
            })
        };
        texts.iter().map(code).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Codes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|code| name(*code)))
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|code| name(*code)).collect::<Vec<_>>().join(", "))
    }
}

/// A rule about answers.
pub type AnswerConfig = Rule<Codes>;

/// A status other than `OK`, cleared of secrets.
pub(crate) struct Told {
    code: Code,
    message: String,
    /// `{ "code", "message", "details" }`.
    body: Value,
    retry_after: Option<Duration>,
}

impl Told {
    /// `asked` begins the message.
    pub(crate) fn new(asked: &str, status: &Status, schema: &Schema, scrub: &Scrub) -> Self {
        let code = status.code();
        let said = scrub.text(status.message().to_owned());
        let quote: String = said.chars().filter(|c| !c.is_control()).take(MAX_QUOTE).collect();
        let colon = if quote.is_empty() { "" } else { ": " };
        let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
        let shown: Value = details.iter().map(|detail| shown(detail, schema)).collect();
        let body = json!({ "code": name(code), "message": said, "details": scrub.value(shown) });
        let retry_after = details.iter().find_map(retry_info).or_else(|| pushback(status));
        Self { code, message: format!("{asked} answered {}{colon}{quote}", name(code)), body, retry_after }
    }

    /// What the first rule that fits says, else what the table above says.
    pub(crate) fn judge(&self, rules: &[AnswerConfig]) -> Result<crate::Reply, Refusal> {
        let usual = Failure { code: self.code_text(), message: self.message.clone() };
        match rules.iter().find(|rule| rule.fits(|codes| codes.cover(self.code), &self.body)) {
            Some(rule) => rule.judge(Judged { body: &self.body, usual, retry_after: self.retry_after }),
            None => Err(self.refusal(usual)),
        }
    }

    fn code_text(&self) -> String {
        format!("grpc_{}", name(self.code).to_ascii_lowercase())
    }

    fn refusal(&self, Failure { code, message }: Failure) -> Refusal {
        let refusal = match self.code {
            Code::ResourceExhausted | Code::Aborted => Refusal::busy(code, message),
            Code::Unavailable => Refusal::retry(code, message),
            Code::Ok
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::DataLoss => Refusal::lost(code, message),
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated => return Refusal::failed(code, message).with_payload(self.body.clone()),
        };
        match self.retry_after {
            Some(pause) => refusal.after(pause),
            None => refusal,
        }
    }
}

/// `google.rpc.Status`, which comes along in `grpc-status-details-bin`.
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
    RetryInfo::decode(detail.value.as_slice()).ok()?.retry_delay?.try_into().ok()
}

/// The pause that gRPC servers ask for with their retry policy.
fn pushback(status: &Status) -> Option<Duration> {
    let text = status.metadata().get("grpc-retry-pushback-ms")?.to_str().ok()?;
    text.parse().ok().map(Duration::from_millis)
}

/// A detail as JSON, where its kind is known: from the descriptors, or one of the usual ones. Otherwise its bytes.
fn shown(detail: &Any, schema: &Schema) -> Value {
    let (name, bytes) = (kind(detail), detail.value.as_slice());
    let described = schema.pool().get_message_by_name(name);
    let fields = described.and_then(|described| schema::decode(&described, bytes).ok());
    let fields = fields.or_else(|| usual(name, bytes));
    let mut shown = fields.unwrap_or_else(|| json!({ "value": STANDARD.encode(bytes) }));
    shown["@type"] = json!(name);
    shown
}

fn usual(name: &str, bytes: &[u8]) -> Option<Value> {
    match name {
        "google.rpc.ErrorInfo" => {
            let ErrorInfo { reason, domain, metadata } = ErrorInfo::decode(bytes).ok()?;
            Some(json!({ "reason": reason, "domain": domain, "metadata": metadata }))
        }
        "google.rpc.RetryInfo" => {
            let delay: Duration = RetryInfo::decode(bytes).ok()?.retry_delay?.try_into().ok()?;
            Some(json!({ "retryDelay": format!("{}s", delay.as_secs_f64()) }))
        }
        _ => None,
    }
}
