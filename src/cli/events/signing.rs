//! Signatures of the events that `orlog publish` sends.

use std::time::Duration;

use orlog_bus::codec::{self, DecodeDefaults, DecodeError};
use orlog_bus::subject::SubjectKind;
use orlog_model::{TenantId, Timestamp};
use orlog_signature::{EVENT_SIGNATURE, EventMessage, SigningKey};
use serde_json::Value;

/// Signs events. An event that is not valid stays as it is; the node names its error.
pub(super) fn sign(
    events: &Value,
    key: &SigningKey,
    tenant: &TenantId,
    now: Timestamp,
    lifetime: Duration,
) -> Value {
    events
        .as_array()
        .into_iter()
        .flatten()
        .map(|event: &Value| {
            signed(event, key, tenant, now, lifetime).unwrap_or_else(|_| event.clone())
        })
        .collect()
}

/// Returns an event with its signature, in structured mode.
fn signed(
    event: &Value,
    key: &SigningKey,
    tenant: &TenantId,
    now: Timestamp,
    lifetime: Duration,
) -> Result<Value, DecodeError> {
    // The tenant and the time are set here, because the signature covers them.
    let event = codec::from_json(
        event,
        &DecodeDefaults {
            tenant: Some(tenant.clone()),
            now,
        },
    )?;
    // The signature covers the subject: it is not valid for another tenant or event type.
    let subject = codec::subject_with_kind(&event, SubjectKind::WorkflowEvent);
    let mut message = codec::encode(&event, subject);

    let headers = message
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let covered = EventMessage {
        subject: &message.subject,
        headers,
        data: &message.payload,
    };

    let signature = key.sign_event(covered, now.as_millis().div_euclid(1000), lifetime);
    // An event from another stream can have an earlier signature.
    message.headers.retain(|(name, _)| name != EVENT_SIGNATURE);
    message
        .headers
        .push((EVENT_SIGNATURE.into(), signature.into()));
    // Structured again, with the bytes of the data that are signed: JSON can be encoded in several
    // ways.
    codec::to_structured(&message.headers, &message.payload).map(Value::Object)
}

#[cfg(test)]
mod tests {
    use orlog_signature::EventSignature;
    use serde_json::json;

    use super::*;

    #[test]
    fn signed_events_have_the_same_content_and_a_valid_signature() {
        let key = SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let now = Timestamp::from_millis(1_700_000_000_500);
        let events = json!([
            { "specversion": "1.0", "id": "e-1", "type": "OrderPlaced", "source": "urn:shop", "correlationid": "o 1",
              "data": { "total": 12.50, "name": "Ä", "big": 9_007_199_254_740_993_i64 }, "region": "eu west", "flag": true },
            { "specversion": "1.0", "id": "e-2", "type": "Note", "source": "urn:shop", "datacontenttype": "text/plain", "data": "ä" },
            { "event_id": "e-3", "aggregate_type": "order", "aggregate_id": "o-1", "event_type": "OrderPlaced", "payload": { "a": 1 } },
            { "specversion": "1.0", "id": "" },
        ]);
        let signed = sign(&events, &key, &tenant, now, Duration::from_mins(1));
        let defaults = DecodeDefaults {
            tenant: Some(tenant),
            now,
        };
        for index in 0..3 {
            let (before, after) = (&events[index], &signed[index]);
            let (headers, body) = codec::to_binary(after.as_object().unwrap()).unwrap();
            let mut event = codec::from_json(after, &defaults).unwrap();
            let subject = codec::subject_with_kind(&event, SubjectKind::WorkflowEvent);
            let headers = headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            let read = EventSignature::read(EventMessage {
                subject: &subject,
                headers,
                data: &body,
            });
            assert!(read.unwrap().unwrap().is_by(&key.public_key()), "{after}");
            if let Some(attributes) = &mut event.attributes {
                attributes.extensions.remove(codec::EVENT_SIGNATURE);
            }
            let mut original = codec::from_json(before, &defaults).unwrap();
            original.attributes.get_or_insert_default();
            assert_eq!(event, original);
        }
        assert_eq!(signed[3], events[3], "the node names the error");
    }
}
