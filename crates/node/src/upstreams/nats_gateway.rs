//! Gateway over NATS: commands to aggregates as requests on the bus.
//!
//! The request is the same envelope as over HTTP. The response header `status` (else
//! `Nats-Service-Error-Code`, as set by NATS services) has the meaning of an HTTP status. A
//! response without it means accepted.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_bus::requests::{RequestClient, RequestError};
use orlog_bus::subject::{check_subject, encode_token};
use orlog_bus::{Headers, Message};
use orlog_effect::providers::gateway::gateway_message::{self, SubjectTemplate};
use orlog_effect::{Attempt, Provider, ProviderError, Reply};
use orlog_model::{Work, WorkItem};

/// Gateway that sends requests to a subject.
pub(super) struct NatsGateway {
    requests: Arc<dyn RequestClient>,
    subject: SubjectTemplate,
}

impl NatsGateway {
    /// Creates a gateway.
    ///
    /// # Errors
    /// If commands would not be sent to a subject.
    pub(super) fn new(
        requests: Arc<dyn RequestClient>,
        subject: SubjectTemplate,
    ) -> Result<Self, String> {
        check_subject(&subject.sample()).map_err(|error| error.to_string())?;
        Ok(Self { requests, subject })
    }
}

#[async_trait]
impl Provider for NatsGateway {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let Work::Command(command) = &item.work else {
            return Err(ProviderError::permanent(
                "not_a_command",
                format!("{} is not a command", item.work.label()),
            ));
        };

        let subject = self
            .subject
            .render(item, command, |value| encode_token(value).into_owned());
        let question = Message {
            subject: subject.clone(),
            id: None,
            headers: headers(item),
            payload: gateway_message::body(item, command).into(),
        };

        match self.requests.request(question, attempt.timeout).await {
            Ok(response) => {
                let status = response
                    .header("status")
                    .or_else(|| response.header("nats-service-error-code"));
                let pause = response.header("retry-after");
                gateway_message::classify_response(item, &subject, status, pause, &response.payload)
            }
            // The command was not delivered, so its outcome is certain, unlike that of a lost
            // response.
            Err(RequestError::NoResponders(_)) => Err(gateway_message::no_responders(&subject)),
            Err(error @ RequestError::TooLarge(_)) => {
                Err(ProviderError::permanent("too_large", error.to_string()))
            }
            Err(error @ (RequestError::TimedOut(_) | RequestError::Unavailable(_))) => {
                Err(gateway_message::lost(&error.to_string(), attempt.timeout))
            }
        }
    }
}

fn headers(item: &WorkItem) -> Headers {
    let mut headers = vec![
        ("content-type".into(), "application/json".into()),
        // Equal for all attempts, so that the gateway can detect a repetition.
        ("idempotency-key".into(), item.id.to_string().into()),
        (
            "x-correlation-id".into(),
            encode_token(item.instance.correlation.as_str()).into(),
        ),
    ];
    if !item.instance.tenant.as_str().is_empty() {
        let tenant = encode_token(item.instance.tenant.as_str());
        headers.push(("x-tenant-id".into(), tenant.into()));
    }

    if let Some(trace) = &item.trace {
        headers.push(("traceparent".into(), trace.as_str().into()));
    }

    if let Some(baggage) = orlog_model::trace::tenant_baggage(&item.instance) {
        headers.push(("baggage".into(), baggage.into()));
    }

    headers
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orlog_bus::requests::Response;
    use orlog_model::{
        Command, Confirmation, CorrelationId, EventId, InstanceKey, Name, SagaName, TenantId,
        Timestamp,
    };
    use parking_lot::Mutex;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    struct ScriptedClient(
        Mutex<Vec<Result<Response, RequestError>>>,
        Mutex<Vec<Message>>,
    );

    #[async_trait]
    impl RequestClient for ScriptedClient {
        async fn request(&self, message: Message, _: Duration) -> Result<Response, RequestError> {
            self.1.lock().push(message);
            self.0.lock().remove(0)
        }
    }

    fn item() -> WorkItem {
        let command = Command {
            round: 0,
            tag: Name::new("reserve").unwrap(),
            aggregate_type: Name::new("inventory").unwrap(),
            aggregate_id: "shelf.1".to_owned(),
            name: Name::new("ReserveStock").unwrap(),
            payload: json!({}),
            confirmation: Confirmation::RejectionOnly,
            timeout: None,
            priority: orlog_model::Priority::Normal,
        };
        let instance = InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        };
        WorkItem {
            id: Uuid::from_u128(7),
            instance,
            work: Work::Command(command),
            deadline: None,
            causation: EventId::new("e-1").unwrap(),
            trace: None,
            created_at: Timestamp::from_millis(0),
            priority: orlog_model::Priority::Normal,
        }
    }

    fn scripted(status: &[(&str, &str)], body: &str) -> Response {
        let headers = status
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        Response {
            headers,
            payload: body.to_owned().into(),
        }
    }

    #[tokio::test]
    async fn gateway_status_is_classified() {
        let mine = json!({ "command_id": item().id }).to_string();
        let responses = vec![
            Ok(scripted(&[], "{}")),
            Ok(scripted(&[("Status", "409")], &mine)),
            Ok(scripted(
                &[("Nats-Service-Error-Code", "422")],
                "no such shelf",
            )),
            Ok(scripted(&[("status", "503"), ("Retry-After", "3")], "")),
            Ok(scripted(&[("status", "soon")], "")),
            Err(RequestError::NoResponders("x".to_owned())),
            Err(RequestError::TimedOut("x".to_owned())),
        ];
        let responses = Arc::new(ScriptedClient(Mutex::new(responses), Mutex::default()));
        let subject =
            SubjectTemplate::parse("gateway.{tenant}.{aggregate_type}.{aggregate_id}").unwrap();
        let gateway =
            NatsGateway::new(Arc::clone(&responses) as Arc<dyn RequestClient>, subject).unwrap();
        let attempt = Attempt {
            number: 1,
            timeout: Duration::from_secs(1),
            at: Timestamp::from_millis(0),
            in_doubt: false,
        };
        let mut outcomes = Vec::new();
        for _ in 0..7 {
            outcomes.push(match gateway.execute(&item(), attempt).await {
                Ok(_) => "accepted".to_owned(),
                Err(ProviderError::Permanent { failure, .. }) => {
                    format!("rejected {}", failure.code)
                }
                Err(ProviderError::Abandoned { failure }) => format!("abandoned {}", failure.code),
                Err(ProviderError::Transient {
                    failure, trouble, ..
                }) => {
                    format!("{trouble:?} {}", failure.code)
                }
            });
        }
        let expected = [
            "accepted",
            "accepted",
            "rejected http_422",
            "ReportedUnavailable http_503",
            "ResponseLost bad_status",
            "Unavailable no_responders",
            "ResponseLost no_response",
        ];
        assert_eq!(outcomes, expected);
        let requests = responses.1.lock();
        assert_eq!(requests[0].subject, "gateway.acme.inventory.shelf%2E1");
    }

    #[test]
    fn invalid_subject_template_is_rejected() {
        for (text, reason) in [
            ("gateway.{team}", "allowed placeholders are {tenant}"),
            ("gateway.*.x", "gateway.*.x"),
            ("gateway..x", "empty token"),
        ] {
            let client = Arc::new(ScriptedClient(Mutex::default(), Mutex::default()));
            let gateway =
                SubjectTemplate::parse(text).and_then(|subject| NatsGateway::new(client, subject));
            let error = gateway.err().expect("the subject is invalid");
            assert!(error.contains(reason), "{error}");
        }
    }
}
