//! Commands to aggregates, submitted to the gateway over HTTP.
//!
//! Commands of Orlog use the same API as those of users: `POST /v1/commands` with the tenant in
//! `x-tenant-id`. A 2xx response means accepted. So does 409 if its JSON body has the same
//! `command_id`: the gateway already has the command.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{Command, Work, WorkItem};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::config::{Error, upstream_config};
use crate::http::response::{self, RequestSummary};
use crate::http::{HttpClient, HttpClientOptions, Request, RequestTarget};
use crate::policy::Policy;
use crate::provider::{Attempt, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use crate::template::PathTemplate;
use crate::upstream::Upstream;

const GATEWAY: &str = "gateway";

upstream_config! {
    /// Gateway for commands: over HTTP, or as requests over NATS.
    GatewayConfig {
        /// Prefix of every URL.
        pub base_url: Option<String>,
        /// Path; may contain `{aggregate_type}`, `{aggregate_id}` and `{name}`.
        #[serde(default = "default_path")]
        pub path: String,
        /// NATS subject of requests instead; may contain `{tenant}`, `{aggregate_type}`,
        /// `{aggregate_id}` and `{name}`.
        pub subject: Option<String>,
    }
}

impl GatewayConfig {
    /// Builds the gateway upstream over HTTP.
    ///
    /// # Errors
    /// If the URL or the path is invalid, or if it is not an HTTP upstream.
    pub fn upstream(&self) -> Result<Upstream, Error> {
        let reason = match (&self.base_url, &self.subject) {
            (Some(base_url), None) => return Ok(self.over(self.http(base_url)?)),
            (None, Some(_)) => {
                "the subject requires NATS; set bus.kind = \"nats\" and add [nats] to the \
                configuration"
            }
            (Some(_), Some(_)) => "base_url and subject are mutually exclusive; remove one",
            (None, None) => "base_url or subject is required",
        };

        Err(Error::upstream(GATEWAY, reason))
    }

    /// Builds the gateway upstream with `provider` as its client.
    #[must_use]
    pub fn over(&self, provider: Arc<dyn Provider>) -> Upstream {
        self.finish(Upstream::gateway(provider, self.policy(Policy::gateway())))
    }

    fn http(&self, base_url: &str) -> Result<Arc<dyn Provider>, Error> {
        let path = PathTemplate::parse(&self.path)
            .map_err(|reason| Error::new(format!("upstream {GATEWAY}, path: {reason}")))?;
        let client = HttpClient::new(GATEWAY, Some(base_url), HttpClientOptions::default())?;
        Ok(Arc::new(HttpGateway { client, path }))
    }
}

fn default_path() -> String {
    "/v1/commands".to_owned()
}

struct HttpGateway {
    client: HttpClient,
    path: PathTemplate,
}

#[async_trait]
impl Provider for HttpGateway {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let Work::Command(command) = &item.work else {
            return Err(ProviderError::permanent(
                "not_a_command",
                format!("{} is not a command", item.work.label()),
            ));
        };

        let path = self.path.render(&address(item, command)).map_err(|error| {
            ProviderError::permanent(
                "bad_command",
                format!("invalid path of {}: {error}", item.work.label()),
            )
        })?;

        let request = Request {
            method: &Method::POST,
            to: RequestTarget::Path(path),
            headers: HeaderMap::new(),
            body: Some(envelope(item, command).to_string().into_bytes()),
            content_type: "application/json",
            at: attempt.at,
            is_probe: false,
        };

        let received = self
            .client
            .send(item, request, SecretScrubber::default())
            .await?;

        let summary = RequestSummary {
            upstream: GATEWAY,
            method: "POST",
            path: &received.path,
        };
        accepted_before(item, response::classify_status(summary, &received.response))
    }
}

/// Returns the values that paths and subjects may contain.
fn address(item: &WorkItem, command: &Command) -> Value {
    json!({
        "tenant": item.instance.tenant,
        "aggregate_type": command.aggregate_type,
        "aggregate_id": command.aggregate_id,
        "name": command.name,
    })
}

/// Returns the envelope of requirement R5.
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

/// Requests and responses of the gateway over the bus; same meaning as over HTTP.
pub mod gateway_message {
    use std::time::Duration;

    use http::StatusCode;
    use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
    use orlog_model::{Command, WorkItem};

    use crate::http::response::{self, HttpResponse, RequestSummary, ResponseBody};
    use crate::provider::{ProviderError, Reply};
    use crate::template::TextTemplate;

    /// Subject of requests with the placeholders `{tenant}`, `{aggregate_type}`, `{aggregate_id}`
    /// and `{name}`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SubjectTemplate(TextTemplate);

    const PLACEHOLDERS: [&str; 4] = ["tenant", "aggregate_type", "aggregate_id", "name"];

    impl SubjectTemplate {
        /// Parses a template.
        ///
        /// # Errors
        /// If it contains another placeholder; the text lists the valid ones.
        pub fn parse(text: &str) -> Result<Self, String> {
            let template = TextTemplate::parse(text).ok().filter(|template| {
                !template.has_secrets()
                    && template.fields().all(|name| PLACEHOLDERS.contains(&name))
            });
            template.map(Self).ok_or_else(|| {
                let known = PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ");
                format!("invalid subject {text:?}: allowed placeholders are {known}")
            })
        }

        /// Returns a subject with values of one letter, to check the template.
        #[must_use]
        pub fn sample(&self) -> String {
            let values = PLACEHOLDERS.map(|name| (name.to_owned(), "x".into()));
            self.filled(
                &values.into_iter().collect::<serde_json::Map<_, _>>().into(),
                |value| value,
            )
        }

        /// Returns the subject of a command; `token` encodes each value.
        #[must_use]
        pub fn render(
            &self,
            item: &WorkItem,
            command: &Command,
            token: impl Fn(&str) -> String,
        ) -> String {
            self.filled(&super::address(item, command), |value| token(&value))
        }

        fn filled(&self, values: &serde_json::Value, encode: impl Fn(String) -> String) -> String {
            self.0
                .render(values, encode)
                .expect("every placeholder has a text")
        }
    }

    /// Returns the body: the envelope of requirement R5.
    #[must_use]
    pub fn body(item: &WorkItem, command: &Command) -> Vec<u8> {
        super::envelope(item, command).to_string().into_bytes()
    }

    /// Classifies a response by its status; without a status the command is accepted.
    ///
    /// # Errors
    /// If the status is an error or invalid.
    pub fn classify_response(
        item: &WorkItem,
        subject: &str,
        status: Option<&str>,
        retry_after: Option<&str>,
        payload: &[u8],
    ) -> Result<Reply, ProviderError> {
        let parsed = status.map(|text| text.trim().parse::<u16>().ok().map(StatusCode::from_u16));
        let status = match parsed {
            None => StatusCode::OK,
            Some(Some(Ok(status))) => status,
            // The gateway received the command: whether it accepted it is unknown.
            Some(_) => {
                let status = status.unwrap_or_default();
                let message =
                    format!("gateway: {subject} responded with the invalid status {status:?}");
                return Err(ProviderError::response_lost("bad_status", message));
            }
        };

        // The same classification as over HTTP requires its headers.
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after.and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(RETRY_AFTER, value);
        }

        let body = ResponseBody::plain(payload.to_vec());
        let summary = RequestSummary {
            upstream: super::GATEWAY,
            method: "request",
            path: subject,
        };

        super::accepted_before(
            item,
            response::classify_status(
                summary,
                &HttpResponse {
                    status,
                    headers,
                    body,
                },
            ),
        )
    }

    /// Returns the error for a subject without responders: the command was not executed.
    #[must_use]
    pub fn no_responders(subject: &str) -> ProviderError {
        ProviderError::unavailable(
            "no_responders",
            format!("gateway: no responders on {subject}"),
        )
    }

    /// Returns the error for a lost response: the outcome is unknown.
    #[must_use]
    pub fn lost(reason: &str, within: Duration) -> ProviderError {
        ProviderError::response_lost(
            "no_response",
            format!("gateway: {reason} (within {within:?})"),
        )
    }
}

fn accepted_before(
    item: &WorkItem,
    result: Result<Reply, ProviderError>,
) -> Result<Reply, ProviderError> {
    match result {
        // The gateway has the command since an earlier attempt.
        Err(ProviderError::Permanent {
            failure, payload, ..
        }) if failure.code == "http_409"
            && payload["command_id"] == item.id.to_string().as_str() =>
        {
            Ok(Reply::from(payload))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        Confirmation, CorrelationId, EventId, InstanceKey, Name, SagaName, TenantId, Timestamp,
        TraceParent,
    };
    use uuid::Uuid;

    use super::*;

    fn item() -> WorkItem {
        let command = Command {
            round: 0,
            tag: Name::new("reserve").unwrap(),
            aggregate_type: Name::new("inventory").unwrap(),
            aggregate_id: "shelf-1".to_owned(),
            name: Name::new("ReserveStock").unwrap(),
            payload: json!({"sku": "x"}),
            confirmation: Confirmation::RejectionOnly,
            timeout: None,
            priority: orlog_model::Priority::Normal,
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
            priority: orlog_model::Priority::Normal,
        }
    }

    #[test]
    fn command_uses_the_aggregate_service_envelope() {
        let item = item();
        let Work::Command(command) = &item.work else {
            panic!("it is a command")
        };
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
    fn conflict_counts_as_accepted_only_for_the_same_command() {
        let conflict = |id: &str| {
            let error = ProviderError::permanent("http_409", "conflict")
                .with_payload(json!({"command_id": id}));
            accepted_before(&item(), Err(error)).is_ok()
        };
        assert!(conflict("00000000-0000-0000-0000-000000000007"));
        assert!(!conflict("00000000-0000-0000-0000-000000000008"));
    }
}
