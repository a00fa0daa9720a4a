//! Idempotency keys of start requests: a key belongs to one request of a saga.
//!
//! The store keeps a fingerprint of the request with each key, in the shard of the tenant; of a
//! key-sharded tenant, in that of the instance. A repetition has the same fingerprint.

use axum::http::HeaderMap;
use orlog_model::{Change, CorrelationId, EventId, InstanceKey, TenantId, Timestamp, derive_id};
use orlog_store::StartKeyUse;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::server::blocking::run_blocking;
use crate::server::errors::invalid_parameter;
use crate::server::parts::instances::Instances;
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
        Change::StartKey {
            tenant: self.tenant.clone(),
            key: self.key,
            fingerprint: self.fingerprint,
        }
    }

    /// Checks that no other request has the key. Returns whether that of this one is recorded.
    ///
    /// # Errors
    /// [`Code::KeyReused`] if another one has it.
    pub(super) async fn check(
        &self,
        instances: &Instances,
        instance: &InstanceKey,
    ) -> Result<bool, Problem> {
        // The shard was here when the request arrived.
        let reader = instances.reader(instance).ok_or_else(Problem::moving)?;
        let now = instances.request.now();
        let this = self.clone();
        run_blocking(move || {
            match reader.start_key_use(&this.tenant, this.key, this.fingerprint, now)? {
                StartKeyUse::Unused => Ok(false),
                StartKeyUse::Same => Ok(true),
                StartKeyUse::Other => {
                    let detail = format!(
                        "{IDEMPOTENCY_KEY} {:?} was used for another request; use another key, or \
                         repeat the first request as it was",
                        this.text
                    );
                    Err(Problem::new(Code::KeyReused, detail))
                }
            }
        })
        .await
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
