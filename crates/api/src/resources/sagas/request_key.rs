//! Idempotency keys of requests: a key of a start belongs to one request of a saga, the id of a
//! control request to one request of an instance.
//!
//! The store keeps a fingerprint of the request with each key, in the shard of the tenant; of a
//! key-sharded tenant, in that of the instance. A repetition has the same fingerprint.

use axum::http::HeaderMap;
use orlog_model::{
    Change, ControlAction, ControlRequest, CorrelationId, EventId, InstanceKey, StartSignal,
    TaskAction, TenantId, Timestamp, WaitToken, derive_id,
};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::server::errors::invalid_parameter;
use crate::server::problem::{Code, Problem};

/// Header with the idempotency key of a start.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Prefix of the id of a start with an idempotency key. It separates the key from the ids of
/// control requests.
pub(super) const KEY_PREFIX: &str = "start:";

/// Parts of a start request that a repetition must have too: neither the default of the start event,
/// which a deployment can change, nor the policy for an existing instance, which the repetition has
/// reached. The maps of a JSON value are ordered, so that the order of the fields in the body does
/// not matter.
#[derive(Serialize)]
pub(super) struct FingerprintedRequest<'a> {
    pub(super) correlation: &'a CorrelationId,
    pub(super) event: Option<&'a str>,
    pub(super) data: &'a Value,
    pub(super) schema_version: u32,
    pub(super) subject: Option<&'a str>,
}

/// Idempotency key of a start request, with the fingerprint of the request.
#[derive(Clone)]
pub(super) struct StartKey {
    tenant: TenantId,
    /// Key as the client sent it.
    text: String,
    key: Uuid,
    fingerprint: Uuid,
}

impl StartKey {
    pub(super) fn new(
        instance: &InstanceKey,
        id: &EventId,
        request: &FingerprintedRequest<'_>,
    ) -> Self {
        let text = id.as_str().strip_prefix(KEY_PREFIX).unwrap_or(id.as_str());
        let key = derive_id(
            Timestamp::from_millis(0),
            &[
                b"start key",
                instance.tenant.as_str().as_bytes(),
                instance.saga.as_str().as_bytes(),
                text.as_bytes(),
            ],
        );

        let content = serde_json::to_vec(request).expect("a request is plain data");
        let fingerprint = derive_id(Timestamp::from_millis(0), &[&content]);

        Self {
            tenant: instance.tenant.clone(),
            text: text.to_owned(),
            key,
            fingerprint,
        }
    }

    /// Returns the change that records the key.
    pub(super) fn record(&self) -> Change {
        Change::RequestKey {
            tenant: self.tenant.clone(),
            key: self.key,
            fingerprint: self.fingerprint,
        }
    }

    /// Returns the problem of a start, with the key as the client sent it.
    pub(super) fn named(&self, problem: Problem) -> Problem {
        if problem.code() != Code::KeyReused {
            return problem;
        }
        let detail = format!(
            "{IDEMPOTENCY_KEY} {:?} was used for another request; use another key, or repeat the \
             first request as it was",
            self.text
        );
        Problem::new(Code::KeyReused, detail)
    }
}

/// Parts of a control request that a repetition must have too: not the user and the stated reason,
/// and of a task not the roles, which change with the token of the caller.
#[derive(Serialize)]
struct FingerprintedControl<'a> {
    operation: Operation<'a>,
    expected_version: Option<u64>,
    wait_token: Option<WaitToken>,
}

/// Operation of a control request.
#[derive(Serialize)]
enum Operation<'a> {
    Task(Uuid, &'a TaskAction),
    Start(FingerprintedStart<'a>),
    Other(&'a ControlAction),
}

/// Start with a signal, without what a deployment can change.
#[derive(Serialize)]
struct FingerprintedStart<'a> {
    data: &'a Value,
    schema_version: u32,
    subject: Option<&'a str>,
    signal: &'a Option<StartSignal>,
}

impl<'a> Operation<'a> {
    fn of(action: &'a ControlAction) -> Self {
        match action {
            ControlAction::Task { id, order, .. } => Self::Task(*id, order),
            ControlAction::Start(request) => Self::Start(FingerprintedStart {
                data: &request.data,
                schema_version: request.schema_version,
                subject: request.subject.as_deref(),
                signal: &request.signal,
            }),
            other => Self::Other(other),
        }
    }
}

/// Returns the change that records the id of a control request with its fingerprint.
pub(super) fn control_key(instance: &InstanceKey, control: &ControlRequest) -> Change {
    let request = FingerprintedControl {
        operation: Operation::of(&control.action),
        expected_version: control.expected_version,
        wait_token: control.wait_token,
    };
    let content = serde_json::to_vec(&request).expect("a request is plain data");
    let InstanceKey {
        tenant,
        saga,
        correlation,
    } = instance;
    let key = [
        b"control key",
        tenant.as_str().as_bytes(),
        saga.as_str().as_bytes(),
        correlation.as_str().as_bytes(),
        control.id.as_str().as_bytes(),
    ];

    Change::RequestKey {
        tenant: tenant.clone(),
        key: derive_id(Timestamp::from_millis(0), &key),
        fingerprint: derive_id(Timestamp::from_millis(0), &[&content]),
    }
}

/// Returns the id of the control request of a start with an idempotency key.
///
/// # Errors
/// If the header is not a valid key.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<EventId>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };

    let invalid =
        |reason: String| invalid_parameter(IDEMPOTENCY_KEY, format!("{IDEMPOTENCY_KEY}: {reason}"));
    let text = value
        .to_str()
        .map_err(|_| invalid("the header is not printable ASCII".to_owned()))?;
    if text.is_empty() {
        return Err(invalid("the header is empty".to_owned()));
    }

    let max = EventId::MAX_BYTES - KEY_PREFIX.len();
    if text.len() > max {
        return Err(invalid(format!(
            "{} bytes, the limit is {max}; shorten or hash it",
            text.len()
        )));
    }

    EventId::for_input(format!("{KEY_PREFIX}{text}"))
        .map(Some)
        .map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use orlog_model::SagaName;

    use super::*;

    fn start_key(correlation: &str, data: &str) -> StartKey {
        let instance = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        };
        let request = FingerprintedRequest {
            correlation: &instance.correlation,
            event: None,
            data: &serde_json::from_str(data).unwrap(),
            schema_version: 1,
            subject: None,
        };
        let id = EventId::new("start:k-1").unwrap();
        StartKey::new(&instance, &id, &request)
    }

    #[test]
    fn fingerprint_is_that_of_the_content() {
        let first = start_key("o-1", r#"{"a":1,"b":[{"c":2,"d":3}]}"#);
        let equal = start_key("o-1", r#"{ "b": [{"d":3, "c":2}], "a": 1 }"#);
        assert_eq!(
            (first.key, first.fingerprint),
            (equal.key, equal.fingerprint)
        );

        for other in [
            start_key("o-1", r#"{"a":1,"b":[{"c":2,"d":4}]}"#),
            start_key("o-2", r#"{"a":1,"b":[{"c":2,"d":3}]}"#),
        ] {
            assert_eq!(other.key, first.key);
            assert_ne!(other.fingerprint, first.fingerprint);
        }
    }
}
