//! W3C trace context: which trace something belongs to, and the ids of spans that need not be stored.
//!
//! A span's id may be made of what is committed anyway (an instance and its version, a work item), so that whoever finds
//! the row after a crash names the same span.

use std::fmt::{self, Write as _};

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{InstanceKey, Timestamp};

/// How long a header of version 00 is.
const LENGTH: usize = 55;

/// A W3C `traceparent` header, kept as text: `00-<trace id>-<parent id>-<flags>`. It lies where it is and nowhere else: one is made
/// for each span.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceParent([u8; LENGTH]);

impl TraceParent {
    /// Takes a well-formed header of version 00; anything else is `None`, as the W3C recommendation asks.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let bytes: [u8; LENGTH] = text.as_bytes().try_into().ok()?;
        let fits = |(place, byte): (usize, &u8)| match place {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        (bytes.starts_with(b"00") && bytes.iter().enumerate().all(fits)).then_some(Self(bytes))
    }

    /// The beginning of a trace.
    #[must_use]
    pub fn of(trace: [u8; 16], span: SpanKey, sampled: bool) -> Self {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], &trace);
        write_hex(&mut text[36..52], &span.0);
        write_hex(&mut text[53..], &[u8::from(sampled)]);
        Self(text)
    }

    /// The same trace, seen from another span of it.
    #[must_use]
    pub fn at(&self, span: SpanKey) -> Self {
        let mut text = self.0;
        write_hex(&mut text[36..52], &span.0);
        Self(text)
    }

    /// The trace id: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.as_str()[3..35]
    }

    /// The trace id.
    #[must_use]
    pub fn trace_bytes(&self) -> [u8; 16] {
        read_hex(&self.0[3..35])
    }

    /// The span id: 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.as_str()[36..52]
    }

    /// The span id.
    #[must_use]
    pub fn span_bytes(&self) -> [u8; 8] {
        read_hex(&self.0[36..52])
    }

    /// Whether whoever began it wants its spans kept. A header whose ids are all zero means nothing.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        b"13579bdf".contains(&self.0[LENGTH - 1]) && self.is_valid()
    }

    /// Whether it names a trace and a span.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let named = |id: &[u8]| id.iter().any(|digit| *digit != b'0');
        named(&self.0[3..35]) && named(&self.0[36..52])
    }

    /// The header's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and dashes")
    }
}

/// The id of a trace, from its 32 hexadecimal digits.
#[must_use]
pub fn trace_id(digits: &str) -> Option<[u8; 16]> {
    let fits = digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    fits.then(|| read_hex(digits.as_bytes()))
}

/// Two digits a byte.
fn write_hex(to: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (digits, byte) in to.chunks_exact_mut(2).zip(bytes) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 0xf)];
    }
}

/// The reverse, of digits that are known to be some.
fn read_hex<const N: usize>(digits: &[u8]) -> [u8; N] {
    let value = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(digits[0]) << 4 | value(digits[1]);
    }
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
        deserializer.deserialize_str(Read)
    }
}

struct Read;

impl Visitor<'_> for Read {
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

/// The id of a span, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanKey([u8; 8]);

impl SpanKey {
    /// Takes any bytes.
    #[must_use]
    pub fn new(bytes: [u8; 8]) -> Self {
        if bytes == [0; 8] { Self([0, 0, 0, 0, 0, 0, 0, 1]) } else { Self(bytes) }
    }

    /// The span of the transition that brought an instance to a version.
    #[must_use]
    pub fn of_transition(key: &InstanceKey, version: u64) -> Self {
        Self::of_instance("transition", key, &version.to_be_bytes())
    }

    /// The span of a timer that fired.
    #[must_use]
    pub fn of_timer(key: &InstanceKey, token: u64, due: Timestamp) -> Self {
        let mut which = [0; 16];
        which[..8].copy_from_slice(&token.to_be_bytes());
        which[8..].copy_from_slice(&due.millis().to_be_bytes());
        Self::of_instance("timer", key, &which)
    }

    /// The span of something else that became of an input of an instance, which has no version: kept, or set aside.
    #[must_use]
    pub fn of_input(what: &str, key: &InstanceKey, input: &str) -> Self {
        Self::of_instance(what, key, input.as_bytes())
    }

    /// The span in which a work item is seen through, from the offer to the verdict: the half of its id that is a hash already.
    #[must_use]
    pub fn of_work(id: Uuid) -> Self {
        Self::new(id.as_u64_pair().1.to_be_bytes())
    }

    fn of_instance(what: &str, key: &InstanceKey, which: &[u8]) -> Self {
        let InstanceKey { tenant, saga, correlation } = key;
        let parts = [tenant.as_str(), saga.as_str(), correlation.as_str()].map(str::as_bytes);
        Self::derived(&[what.as_bytes(), parts[0], parts[1], parts[2], which])
    }

    fn derived(parts: &[&[u8]]) -> Self {
        let digest = digest(parts);
        Self::new(*digest.first_chunk().expect("a digest is longer"))
    }
}

impl fmt::Display for SpanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// The id of a trace that begins with something that came without one: the same for whoever sees it, and for each time it is
/// seen.
#[must_use]
pub fn derived_trace(parts: &[&[u8]]) -> [u8; 16] {
    let mut id: [u8; 16] = *digest(parts).first_chunk().expect("a digest is longer");
    // All zero is not allowed.
    id[0] |= 1;
    id
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The value of a W3C `baggage` header that tells whose work it is; `None` for the default tenant.
#[must_use]
pub fn baggage(key: &InstanceKey) -> Option<String> {
    let tenant = key.tenant.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let mut value = String::from("tenant=");
    for byte in tenant.bytes() {
        if plain(byte) {
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
    fn takes_well_formed_trace_parents_only() {
        assert_eq!(TraceParent::new(TEXT).unwrap().trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        for bad in ["", "00-short-00f067aa0ba902b7-01", &TEXT.to_uppercase(), &TEXT.replace("00-4", "01-4")] {
            assert_eq!(TraceParent::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn it_is_stored_as_its_text_and_what_is_none_is_not_read() {
        let trace = TraceParent::new(TEXT).unwrap();
        assert_eq!(serde_json::to_value(&trace).unwrap(), TEXT);
        assert_eq!(serde_json::from_value::<TraceParent>(TEXT.into()).unwrap(), trace);
        let error = serde_json::from_value::<TraceParent>("00-4bf9".into()).unwrap_err().to_string();
        assert!(error.contains("W3C traceparent"), "{error}");
        assert_eq!(format!("{trace:?}"), format!("TraceParent({TEXT:?})"));
    }

    #[test]
    fn ids_are_the_same_in_digits_and_in_bytes() {
        let trace = TraceParent::new(TEXT).unwrap();
        let again = TraceParent::of(trace.trace_bytes(), SpanKey::new(trace.span_bytes()), true);
        assert_eq!(again, trace);
        assert_eq!(trace_id(trace.trace_id()), Some(trace.trace_bytes()));
        for bad in ["", "4bf9", &"G".repeat(32), &"\u{e9}".repeat(16)] {
            assert_eq!(trace_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn another_span_of_the_same_trace_keeps_its_id_and_flags() {
        let span = SpanKey::of_transition(&key("acme"), 3);
        let other = TraceParent::new(TEXT).unwrap().at(span);
        assert_eq!((other.trace_id(), other.span_id()), (&TEXT[3..35], span.to_string().as_str()));
        assert_eq!(TraceParent::new(other.as_str()), Some(other.clone()));
        assert!(other.is_sampled());
    }

    #[test]
    fn a_trace_that_nobody_wants_kept_or_that_names_nothing_is_not_followed() {
        let sampled = |text: &str| TraceParent::new(text).unwrap().is_sampled();
        assert!(!sampled(&TEXT.replace("-01", "-00")));
        assert!(sampled(&TEXT.replace("-01", "-03")));
        assert!(!sampled(&format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32))));
        assert!(!sampled(&format!("{}-{}-01", &TEXT[..35], "0".repeat(16))));
    }

    #[test]
    fn the_ids_of_spans_are_the_same_each_time_and_differ_by_every_part() {
        let one = SpanKey::of_transition(&key("acme"), 1);
        assert_eq!(one, SpanKey::of_transition(&key("acme"), 1));
        assert_ne!(one, SpanKey::of_transition(&key("acme"), 2));
        assert_ne!(one, SpanKey::of_transition(&key("beta"), 1));
        assert_ne!(one, SpanKey::of_input("transition", &key("acme"), "1"));
        assert_ne!(SpanKey::new([0; 8]).to_string(), "0".repeat(16));
        let trace = TraceParent::of(derived_trace(&[b"a"]), one, true);
        assert_eq!(TraceParent::new(trace.as_str()), Some(trace));
    }

    #[test]
    fn baggage_names_the_tenant_in_what_a_header_can_hold() {
        assert_eq!(baggage(&key("acme")).as_deref(), Some("tenant=acme"));
        assert_eq!(baggage(&key("a b,ö")).as_deref(), Some("tenant=a%20b%2C%C3%B6"));
        assert_eq!(baggage(&key("")), None);
    }
}
