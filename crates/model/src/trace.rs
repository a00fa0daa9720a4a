//! W3C trace context: trace ids, and span ids that are derived instead of stored.
//!
//! A span id can be derived from committed data (an instance and its version, a work item). After a
//! crash, the same row therefore produces the same span id.

use std::fmt::{self, Write as _};

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::ids::digest;
use crate::{InstanceKey, Timestamp};

/// Length of a header of version 00, in bytes.
const LENGTH: usize = 55;

/// W3C `traceparent` header, stored as text: `00-<trace id>-<parent id>-<flags>`. It uses no heap
/// memory, because one is created for each span.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceParent([u8; LENGTH]);

impl TraceParent {
    /// Parses a well-formed header of version 00. Returns `None` for other text, as the W3C
    /// recommendation requires.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let bytes: [u8; LENGTH] = text.as_bytes().try_into().ok()?;
        let is_valid = bytes.iter().enumerate().all(|(index, byte)| match index {
            2 | 35 | 52 => *byte == b'-',
            // Upper case is invalid in a W3C header.
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        (bytes.starts_with(b"00") && is_valid).then_some(Self(bytes))
    }

    /// Creates the root of a trace.
    #[must_use]
    pub fn new_root(trace: [u8; 16], span: SpanId, sampled: bool) -> Self {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], &trace);
        write_hex(&mut text[36..52], &span.0);
        write_hex(&mut text[53..], &[u8::from(sampled)]);
        Self(text)
    }

    /// Returns the same trace with another span.
    #[must_use]
    pub fn with_span(&self, span: SpanId) -> Self {
        let mut text = self.0;
        write_hex(&mut text[36..52], &span.0);
        Self(text)
    }

    /// Returns the trace id: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.as_str()[3..35]
    }

    /// Returns the trace id as bytes.
    #[must_use]
    pub fn trace_id_bytes(&self) -> [u8; 16] {
        read_hex(&self.0[3..35])
    }

    /// Returns the span id: 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.as_str()[36..52]
    }

    /// Returns the span id as bytes.
    #[must_use]
    pub fn span_id_bytes(&self) -> [u8; 8] {
        read_hex(&self.0[36..52])
    }

    /// Returns whether the spans of the trace are sampled. It is meaningless for a header whose ids
    /// are all zero.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        // The flag is the lowest bit, so each odd digit has it.
        b"13579bdf".contains(&self.0[LENGTH - 1]) && self.is_valid()
    }

    /// Returns whether the trace id and the span id are nonzero.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let named = |id: &[u8]| id.iter().any(|digit| *digit != b'0');
        named(&self.0[3..35]) && named(&self.0[36..52])
    }

    /// Returns the text of the header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the header contains only ASCII digits and dashes")
    }
}

/// Parses a trace id from its 32 hexadecimal digits.
#[must_use]
pub fn parse_trace_id(digits: &str) -> Option<[u8; 16]> {
    let fits = digits.len() == 32
        && digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    fits.then(|| read_hex(digits.as_bytes()))
}

/// Writes hexadecimal digits to a part of a header.
fn write_hex(to: &mut [u8], bytes: &[u8]) {
    hex::encode_to_slice(bytes, to).expect("the part has two digits for each byte");
}

/// Reads bytes from valid hexadecimal digits.
fn read_hex<const N: usize>(digits: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).expect("the header contains valid digits");
    bytes
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceParent").field(&self.as_str()).finish()
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TraceParentVisitor)
    }
}

struct TraceParentVisitor;

impl Visitor<'_> for TraceParentVisitor {
    type Value = TraceParent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a W3C traceparent of version 00")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TraceParent, E> {
        TraceParent::new(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Span id, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

impl SpanId {
    /// Creates a span id from any bytes.
    #[must_use]
    pub fn new(bytes: [u8; 8]) -> Self {
        // An id of zero is invalid in a W3C header.
        if bytes == [0; 8] {
            Self([0, 0, 0, 0, 0, 0, 0, 1])
        } else {
            Self(bytes)
        }
    }

    /// Returns the span id of the transition to a version of an instance.
    #[must_use]
    pub fn for_transition(key: &InstanceKey, version: u64) -> Self {
        Self::of_instance("transition", key, &version.to_be_bytes())
    }

    /// Returns the span id of a fired timer.
    #[must_use]
    pub fn for_timer(key: &InstanceKey, token: u64, due: Timestamp) -> Self {
        let mut which = [0; 16];
        which[..8].copy_from_slice(&token.to_be_bytes());
        which[8..].copy_from_slice(&due.as_millis().to_be_bytes());
        Self::of_instance("timer", key, &which)
    }

    /// Returns the span id of an input without a transition, which was buffered or dead-lettered.
    #[must_use]
    pub fn for_input(kind: &str, key: &InstanceKey, input: &str) -> Self {
        Self::of_instance(kind, key, input.as_bytes())
    }

    /// Returns the span id of a work item, from dispatch to outcome: the half of its id that is a
    /// hash.
    #[must_use]
    pub fn for_work(id: Uuid) -> Self {
        Self::new(id.as_u64_pair().1.to_be_bytes())
    }

    fn of_instance(kind: &str, key: &InstanceKey, which: &[u8]) -> Self {
        let InstanceKey {
            tenant,
            saga,
            correlation,
        } = key;
        let parts = [tenant.as_str(), saga.as_str(), correlation.as_str()].map(str::as_bytes);
        Self::derived(&[kind.as_bytes(), parts[0], parts[1], parts[2], which])
    }

    fn derived(parts: &[&[u8]]) -> Self {
        let digest = digest(parts.iter().copied());
        Self::new(
            *digest
                .first_chunk()
                .expect("a digest is longer than a span id"),
        )
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// Returns the trace id of an event or request that arrived without one: the same on every node and
/// at every delivery.
#[must_use]
pub fn derive_trace_id(parts: &[&[u8]]) -> [u8; 16] {
    let mut id: [u8; 16] = *digest(parts.iter().copied())
        .first_chunk()
        .expect("a digest is longer than a trace id");
    // A trace id must not be all zero.
    id[0] |= 1;
    id
}

/// Returns the value of a W3C `baggage` header with the tenant; `None` for the default tenant.
#[must_use]
pub fn tenant_baggage(key: &InstanceKey) -> Option<String> {
    let tenant = key.tenant.as_str();
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);

    let mut value = String::from("tenant=");
    for byte in tenant.bytes() {
        if is_unreserved(byte) {
            value.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(value, "%{byte:02X}").ok();
        }
    }

    (!tenant.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorrelationId, SagaName, TenantId};

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn key(tenant: &str) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new(tenant).unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        }
    }

    #[test]
    fn accepts_only_valid_trace_parents() {
        assert_eq!(
            TraceParent::new(TEXT).unwrap().trace_id(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        for invalid in [
            "",
            "00-short-00f067aa0ba902b7-01",
            &TEXT.to_uppercase(),
            &TEXT.replace("00-4", "01-4"),
        ] {
            assert_eq!(TraceParent::new(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn serializes_as_text_and_rejects_invalid_text() {
        let trace = TraceParent::new(TEXT).unwrap();
        assert_eq!(serde_json::to_value(&trace).unwrap(), TEXT);
        assert_eq!(
            serde_json::from_value::<TraceParent>(TEXT.into()).unwrap(),
            trace
        );
        let error = serde_json::from_value::<TraceParent>("00-4bf9".into())
            .unwrap_err()
            .to_string();
        assert!(error.contains("W3C traceparent"), "{error}");
        assert_eq!(format!("{trace:?}"), format!("TraceParent({TEXT:?})"));
    }

    #[test]
    fn id_bytes_match_hex() {
        let trace = TraceParent::new(TEXT).unwrap();
        let rebuilt = TraceParent::new_root(
            trace.trace_id_bytes(),
            SpanId::new(trace.span_id_bytes()),
            true,
        );
        assert_eq!(rebuilt, trace);
        assert_eq!(
            parse_trace_id(trace.trace_id()),
            Some(trace.trace_id_bytes())
        );
        for invalid in ["", "4bf9", &"G".repeat(32), &"\u{e9}".repeat(16)] {
            assert_eq!(parse_trace_id(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn new_span_preserves_trace_id_and_flags() {
        let span = SpanId::for_transition(&key("acme"), 3);
        let other = TraceParent::new(TEXT).unwrap().with_span(span);
        assert_eq!(
            (other.trace_id(), other.span_id()),
            (&TEXT[3..35], span.to_string().as_str())
        );
        assert_eq!(TraceParent::new(other.as_str()), Some(other.clone()));
        assert!(other.is_sampled());
    }

    #[test]
    fn unsampled_or_invalid_trace_is_not_followed() {
        let sampled = |text: &str| TraceParent::new(text).unwrap().is_sampled();
        assert!(!sampled(&TEXT.replace("-01", "-00")));
        assert!(sampled(&TEXT.replace("-01", "-03")));
        assert!(!sampled(&format!(
            "00-{}-00f067aa0ba902b7-01",
            "0".repeat(32)
        )));
        assert!(!sampled(&format!("{}-{}-01", &TEXT[..35], "0".repeat(16))));
    }

    #[test]
    fn span_ids_are_deterministic_and_depend_on_every_part() {
        let one = SpanId::for_transition(&key("acme"), 1);
        assert_eq!(one, SpanId::for_transition(&key("acme"), 1));
        assert_ne!(one, SpanId::for_transition(&key("acme"), 2));
        assert_ne!(one, SpanId::for_transition(&key("beta"), 1));
        assert_ne!(one, SpanId::for_input("transition", &key("acme"), "1"));
        assert_ne!(SpanId::new([0; 8]).to_string(), "0".repeat(16));
        let trace = TraceParent::new_root(derive_trace_id(&[b"a"]), one, true);
        assert_eq!(TraceParent::new(trace.as_str()), Some(trace));
    }

    #[test]
    fn baggage_encodes_the_tenant() {
        assert_eq!(tenant_baggage(&key("acme")).as_deref(), Some("tenant=acme"));
        assert_eq!(
            tenant_baggage(&key("a b,ö")).as_deref(),
            Some("tenant=a%20b%2C%C3%B6")
        );
        assert_eq!(tenant_baggage(&key("")), None);
    }
}
