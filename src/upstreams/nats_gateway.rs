//! Commands to aggregates as questions over the bus.
//!
//! The question is the envelope that goes over HTTP too. The answer's header `status` (else `Nats-Service-Error-Code`, as
//! services of NATS set it) means what the status of HTTP means; without one it is acceptance.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_bus::Message;
use orlog_bus::requests::{RequestError, Requests};
use orlog_bus::subject::{check_subject, encode_token};
use orlog_effect::{Attempt, Provider, Refusal, Reply, gateway_message};
use orlog_model::{Command, TenantId, Work, WorkItem};

const PLACEHOLDERS: [&str; 4] = ["{tenant}", "{aggregate_type}", "{aggregate_id}", "{name}"];

/// A subject with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(String);

impl Template {
    /// Reads one.
    ///
    /// # Errors
    /// When it is no subject, or holds something else in braces; the text says what to write.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let plain = PLACEHOLDERS.iter().fold(text.to_owned(), |text, name| text.replace(name, "x"));
        if plain.contains(['{', '}']) {
            let known = PLACEHOLDERS.join(", ");
            return Err(format!("the subject {text:?} may hold {known}, and nothing else in braces"));
        }
        check_subject(&plain).map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }

    fn render(&self, tenant: &TenantId, command: &Command) -> String {
        let values =
            [tenant.as_str(), command.aggregate_type.as_str(), &command.aggregate_id, command.name.as_str()];
        let values = PLACEHOLDERS.iter().zip(values);
        values.fold(self.0.clone(), |text, (name, value)| text.replace(name, &encode_token(value)))
    }
}

/// Asks whoever answers on a subject.
pub(super) struct AskedGateway {
    requests: Arc<dyn Requests>,
    subject: Template,
}

impl AskedGateway {
    /// Under this subject.
    #[must_use]
    pub(super) fn new(requests: Arc<dyn Requests>, subject: Template) -> Self {
        Self { requests, subject }
    }
}

#[async_trait]
impl Provider for AskedGateway {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Command(command) = &item.work else {
            return Err(Refusal::failed("not_a_command", format!("{} is no command", item.work.label())));
        };
        let subject = self.subject.render(&item.instance.tenant, command);
        let question = Message {
            subject: subject.clone(),
            id: None,
            headers: headers(item),
            payload: gateway_message::body(item, command).into(),
        };
        match self.requests.request(question, attempt.timeout).await {
            Ok(answer) => {
                let status = answer.header("status").or_else(|| answer.header("nats-service-error-code"));
                let pause = answer.header("retry-after");
                gateway_message::judge(item, &subject, status, pause, &answer.payload)
            }
            Err(RequestError::NoResponders(_)) => Err(gateway_message::nobody(&subject)),
            Err(error @ RequestError::TooLarge(_)) => Err(Refusal::failed("too_large", error.to_string())),
            Err(error @ (RequestError::TimedOut(_) | RequestError::Unavailable(_))) => {
                Err(gateway_message::lost(&error.to_string(), attempt.timeout))
            }
        }
    }
}

fn headers(item: &WorkItem) -> Vec<(String, String)> {
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("idempotency-key".to_owned(), item.id.to_string()),
        ("x-correlation-id".to_owned(), encode_token(item.instance.correlation.as_str()).into_owned()),
    ];
    if !item.instance.tenant.as_str().is_empty() {
        let tenant = encode_token(item.instance.tenant.as_str());
        headers.push(("x-tenant-id".to_owned(), tenant.into_owned()));
    }
    if let Some(trace) = &item.trace {
        headers.push(("traceparent".to_owned(), trace.as_str().to_owned()));
    }
    if let Some(baggage) = orlog_model::trace::baggage(&item.instance) {
        headers.push(("baggage".to_owned(), baggage));
    }
    headers
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use orlog_bus::requests::Answer;
    use orlog_model::{Confirmation, CorrelationId, EventId, InstanceKey, Name, SagaName, Timestamp};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    struct Answers(Mutex<Vec<Result<Answer, RequestError>>>, Mutex<Vec<Message>>);

    #[async_trait]
    impl Requests for Answers {
        async fn request(&self, message: Message, _: Duration) -> Result<Answer, RequestError> {
            self.1.lock().unwrap().push(message);
            self.0.lock().unwrap().remove(0)
        }
    }

    fn item() -> WorkItem {
        let command = Command {
            tag: Name::new("reserve").unwrap(),
            aggregate_type: Name::new("inventory").unwrap(),
            aggregate_id: "shelf.1".to_owned(),
            name: Name::new("ReserveStock").unwrap(),
            payload: json!({}),
            confirmation: Confirmation::RefusalOnly,
            timeout: None,
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
        }
    }

    fn answered(status: &[(&str, &str)], body: &str) -> Answer {
        let headers = status.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Answer { headers, payload: body.to_owned().into() }
    }

    #[tokio::test]
    async fn the_status_says_what_the_answer_means() {
        let mine = json!({ "command_id": item().id }).to_string();
        let answers = vec![
            Ok(answered(&[], "{}")),
            Ok(answered(&[("Status", "409")], &mine)),
            Ok(answered(&[("Nats-Service-Error-Code", "422")], "no such shelf")),
            Ok(answered(&[("status", "503"), ("Retry-After", "3")], "")),
            Ok(answered(&[("status", "soon")], "")),
            Err(RequestError::NoResponders("x".to_owned())),
            Err(RequestError::TimedOut("x".to_owned())),
        ];
        let answers = Arc::new(Answers(Mutex::new(answers), Mutex::default()));
        let subject = Template::parse("gateway.{tenant}.{aggregate_type}.{aggregate_id}").unwrap();
        let gateway = AskedGateway::new(Arc::clone(&answers) as Arc<dyn Requests>, subject);
        let attempt = Attempt { number: 1, timeout: Duration::from_secs(1), at: Timestamp::from_millis(0) };
        let mut heard = Vec::new();
        for _ in 0..7 {
            heard.push(match gateway.perform(&item(), attempt).await {
                Ok(_) => "accepted".to_owned(),
                Err(Refusal::Final { failure, .. }) => format!("refused {}", failure.code),
                Err(Refusal::GaveUp { failure }) => format!("gave up {}", failure.code),
                Err(Refusal::Transient { failure, trouble, .. }) => format!("{trouble:?} {}", failure.code),
            });
        }
        let expected = [
            "accepted",
            "accepted",
            "refused http_422",
            "Down http_503",
            "Lost bad_status",
            "Down no_responders",
            "Lost no_answer",
        ];
        assert_eq!(heard, expected);
        let asked = answers.1.lock().unwrap();
        assert_eq!(asked[0].subject, "gateway.acme.inventory.shelf%2E1");
    }

    #[test]
    fn a_subject_that_cannot_be_is_refused() {
        for (text, why) in [
            ("gateway.{team}", "may hold {tenant}"),
            ("gateway.*.x", "gateway.*.x"),
            ("gateway..x", "empty token"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
