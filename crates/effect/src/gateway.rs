//! Commands to aggregates, submitted through the Gateway over HTTP.
//!
//! Orlog's commands take the way of a user's: `POST /v1/commands` with the tenant in `x-tenant-id`. An answer of 2xx is
//! acceptance; so is 409 whose JSON body holds the same `command_id`: the Gateway has it already.

use async_trait::async_trait;
use orlog_model::{Command, Work, WorkItem};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::http::response::{self, Asked};
use crate::http::{Error, Manner, Request, Speaker, Template, To};
use crate::provider::{Attempt, Provider, Refusal, Reply};
use crate::secret::Scrub;

/// Where commands are posted where nothing else is said.
pub(crate) const DEFAULT_PATH: &str = "/v1/commands";

/// Submits commands.
pub struct Gateway {
    speaker: Speaker,
    path: Template,
}

impl Gateway {
    /// `path` may hold `{aggregate_type}`, `{aggregate_id}` and `{name}`.
    ///
    /// # Errors
    /// When the URL cannot be a base, or TLS cannot be set up.
    pub fn new(base_url: &str, path: Template) -> Result<Self, Error> {
        Ok(Self { speaker: Speaker::new("gateway", Some(base_url), Manner::default())?, path })
    }
}

#[async_trait]
impl Provider for Gateway {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Command(command) = &item.work else {
            return Err(Refusal::failed("not_a_command", format!("{} is no command", item.work.label())));
        };
        let path = self.path.render(&address(command)).map_err(|error| {
            Refusal::failed("bad_command", format!("the path of {}: {error}", item.work.label()))
        })?;
        let request = Request {
            method: &Method::POST,
            to: To::Path(path),
            headers: HeaderMap::new(),
            body: Some(envelope(item, command).to_string().into_bytes()),
            content_type: "application/json",
            at: attempt.at,
        };
        let heard = self.speaker.send(item, request, Scrub::default()).await?;
        let asked = Asked { upstream: self.speaker.upstream(), method: "POST", path: &heard.path };
        accepted_before(item, response::judge(asked, &heard.answered))
    }
}

fn address(command: &Command) -> Value {
    json!({
        "aggregate_type": command.aggregate_type,
        "aggregate_id": command.aggregate_id,
        "name": command.name,
    })
}

/// The envelope of requirement R5.
fn envelope(item: &WorkItem, command: &Command) -> Value {
    let mut metadata = json!({
        "correlation_id": item.instance.correlation,
        "causation_id": item.causation,
    });
    if let Some(trace) = &item.trace {
        metadata["trace_id"] = Value::from(trace.trace_id());
    }
    json!({
        "tenant_id": item.instance.tenant,
        "command_id": item.id,
        "aggregate_id": command.aggregate_id,
        "aggregate_type": command.aggregate_type,
        "command_type": command.name,
        "payload_json": command.payload,
        "metadata": metadata,
    })
}

/// What a question over the bus holds, and what its answer means: as over HTTP.
pub mod message {
    use std::time::Duration;

    use http::StatusCode;
    use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
    use orlog_model::{Command, WorkItem};

    use crate::http::response::{self, Answered, Asked, Body};
    use crate::provider::{Refusal, Reply};

    /// The body: the envelope of requirement R5.
    #[must_use]
    pub fn body(item: &WorkItem, command: &Command) -> Vec<u8> {
        super::envelope(item, command).to_string().into_bytes()
    }

    /// What an answer with this status means; without one it is acceptance.
    ///
    /// # Errors
    /// When it is a refusal, or no status.
    pub fn judge(
        item: &WorkItem,
        subject: &str,
        status: Option<&str>,
        retry_after: Option<&str>,
        payload: &[u8],
    ) -> Result<Reply, Refusal> {
        let status = match status.map(|text| text.trim().parse::<u16>().ok().map(StatusCode::from_u16)) {
            None => StatusCode::OK,
            Some(Some(Ok(status))) => status,
            Some(_) => {
                let status = status.unwrap_or_default();
                let message =
                    format!("gateway: {subject} answered with the status {status:?}, which is none");
                return Err(Refusal::lost("bad_status", message));
            }
        };
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after.and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(RETRY_AFTER, value);
        }
        let body = Body { bytes: payload.to_vec(), cut: false };
        let asked = Asked { upstream: "gateway", method: "request", path: subject };
        super::accepted_before(item, response::judge(asked, &Answered { status, headers, body }))
    }

    /// Nobody listens: not done.
    #[must_use]
    pub fn nobody(subject: &str) -> Refusal {
        Refusal::retry("no_responders", format!("gateway: nobody listens on {subject}"))
    }

    /// Nobody knows what became of it.
    #[must_use]
    pub fn lost(reason: &str, within: Duration) -> Refusal {
        Refusal::lost("no_answer", format!("gateway: {reason} (within {within:?})"))
    }
}

fn accepted_before(item: &WorkItem, answer: Result<Reply, Refusal>) -> Result<Reply, Refusal> {
    match answer {
        Err(Refusal::Final { failure, payload, .. })
            if failure.code == "http_409" && payload["command_id"] == item.id.to_string().as_str() =>
        {
            Ok(Reply::from(payload))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        Confirmation, CorrelationId, EventId, InstanceKey, Name, SagaName, TenantId, Timestamp, TraceParent,
    };
    use uuid::Uuid;

    use super::*;

    fn item() -> WorkItem {
        let command = Command {
            tag: Name::new("reserve").unwrap(),
            aggregate_type: Name::new("inventory").unwrap(),
            aggregate_id: "shelf-1".to_owned(),
            name: Name::new("ReserveStock").unwrap(),
            payload: json!({"sku": "x"}),
            confirmation: Confirmation::RefusalOnly,
            timeout: None,
        };
        WorkItem {
            id: Uuid::from_u128(7),
            instance: InstanceKey {
                tenant: TenantId::new("acme").unwrap(),
                saga: SagaName::new("order").unwrap(),
                correlation: CorrelationId::new("o-1").unwrap(),
            },
            work: Work::Command(command),
            deadline: None,
            causation: EventId::new("e-1").unwrap(),
            trace: TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            created_at: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn a_command_travels_in_the_envelope_of_the_aggregate_service() {
        let item = item();
        let Work::Command(command) = &item.work else { panic!("it is a command") };
        let expected = json!({
            "tenant_id": "acme",
            "command_id": "00000000-0000-0000-0000-000000000007",
            "aggregate_id": "shelf-1",
            "aggregate_type": "inventory",
            "command_type": "ReserveStock",
            "payload_json": {"sku": "x"},
            "metadata": {
                "correlation_id": "o-1",
                "causation_id": "e-1",
                "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
            },
        });
        assert_eq!(envelope(&item, command), expected);
    }

    #[test]
    fn a_conflict_about_the_same_command_is_acceptance_and_another_is_not() {
        let conflict = |id: &str| {
            let refusal = Refusal::failed("http_409", "conflict").with_payload(json!({"command_id": id}));
            accepted_before(&item(), Err(refusal)).is_ok()
        };
        assert!(conflict("00000000-0000-0000-0000-000000000007"));
        assert!(!conflict("00000000-0000-0000-0000-000000000008"));
    }
}
