//! Signatures of messages that a node obeys: HMAC-SHA256 over the subject, the interpreted headers
//! and the body.
//!
//! - Nodes sign effect commands, effect results, workflow commands, facts, and the events and
//!   signals that they publish. Events and signals of other systems have no such signature; only
//!   contexts that require signed events reject them.
//! - The first key signs; all keys verify. To replace a key, add the new one everywhere, then make
//!   it the first one, then remove the old one.
//! - Each effect has a key that is derived from the shared key, so that an external worker needs
//!   only the key of its effect.
//! - Without keys, messages are neither signed nor verified. While keys are introduced, missing
//!   signatures can be accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use compact_str::{CompactString, ToCompactString as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use orlog_model::Timestamp;
use parking_lot::RwLock;
use sha2::Sha256;

use crate::Message;
use crate::subject::{Subject, SubjectKind, parse_start};

/// Header of the signature.
pub const SIGNATURE: &str = "orlog-signature";
/// Minimum length of a key in bytes.
pub const MIN_KEY_BYTES: usize = 32;
/// Header of an event that a node publishes for another system: the time of the publication. The
/// time in the event can be older.
const PUBLISHED_AT: &str = "ce-orlogpublishedat";
/// Version of the signed content; prefix of the header value.
const VERSION: &str = "v1";
/// Rejected messages of a kind are logged if their number is a power of two or a multiple of this.
const LOG_INTERVAL: u64 = 1024;

/// Kinds of signed messages.
const KINDS: [SubjectKind; 4] = [
    SubjectKind::Effect,
    SubjectKind::EffectResult,
    SubjectKind::Workflow,
    SubjectKind::WorkflowEvent,
];

/// Signs and verifies messages.
#[derive(Debug, Default)]
pub struct Signer {
    keys: RwLock<Arc<[Key]>>,
    accepts_unsigned: bool,
    rejected: [AtomicU64; KINDS.len()],
}

/// Shared key.
struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

/// Reason why a message is not authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The message has no signature.
    #[error("the message has no signature; its sender has no signing key (nats.signing.keys)")]
    Missing,
    /// No key verifies the signature.
    #[error("the signature of the message is invalid; no key in nats.signing.keys verifies it")]
    Invalid,
}

/// Error of a key that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a signing key has {0} bytes, but at least {MIN_KEY_BYTES} are required; create one with \
     `openssl rand -hex 32`"
)]
pub struct ShortKey(usize);

impl Signer {
    /// Creates a signer with these keys.
    ///
    /// # Errors
    /// If a key is too short.
    pub fn new<K: AsRef<[u8]>>(keys: &[K]) -> Result<Self, ShortKey> {
        let signer = Self::default();
        signer.replace(keys)?;
        Ok(signer)
    }

    /// Accepts messages without a signature. Invalid signatures are rejected nevertheless.
    #[must_use]
    pub fn accepting_unsigned(mut self, accepts: bool) -> Self {
        self.accepts_unsigned = accepts;
        self
    }

    /// Replaces the keys.
    ///
    /// # Errors
    /// If a key is too short; the previous keys stay in use.
    pub fn replace<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<(), ShortKey> {
        let keys: Result<Arc<[Key]>, ShortKey> =
            keys.iter().map(|key| Key::new(key.as_ref())).collect();
        *self.keys.write() = keys?;
        Ok(())
    }

    /// Returns whether messages are signed and verified.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.keys().is_empty()
    }

    /// Signs a message. Without keys, the message is unchanged.
    #[must_use]
    pub fn sign(&self, mut message: Message) -> Message {
        let keys = self.keys();
        let Some(key) = keys.first() else {
            return message;
        };
        let Some((_, context)) = context(&message) else {
            return message;
        };

        message
            .headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case(SIGNATURE));

        let code = key.derive(&context).code(&message).finalize().into_bytes();
        message.headers.push((
            SIGNATURE.into(),
            format!("{VERSION}={}", hex::encode(code)).into(),
        ));

        message
    }

    /// Signs an event that this node publishes for another system, with the time of the
    /// publication. Without keys, the message is unchanged.
    #[must_use]
    pub fn vouch(&self, mut message: Message, now: Timestamp) -> Message {
        if !self.is_enabled() {
            return message;
        }

        message
            .headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case(PUBLISHED_AT));
        message
            .headers
            .push((PUBLISHED_AT.into(), now.to_compact_string()));

        self.sign(message)
    }

    /// Returns the time at which a node published a message, or at which it created a fact; `None`
    /// if no node has signed it, also if missing signatures are accepted.
    #[must_use]
    pub fn vouched_at(&self, message: &Message) -> Option<Timestamp> {
        let (_, context) = context(message)?;
        // Not the method of the signer: events of other systems have no signature, and are no
        // rejections to count.
        verify(&self.keys(), &context, message).ok()?;
        let header = |wanted: &str| {
            let found = message
                .headers
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.as_str())
        };
        Timestamp::parse(header(PUBLISHED_AT).or_else(|| header("ce-time"))?).ok()
    }

    /// Verifies a message. Without keys, every message is authentic.
    ///
    /// # Errors
    /// If the signature is missing or invalid. The message is counted, and logged at a bounded
    /// rate.
    pub fn verify(&self, message: &Message) -> Result<(), SignatureError> {
        let keys = self.keys();
        if keys.is_empty() {
            return Ok(());
        }

        // No key signs such a subject, so no signature under it can be valid.
        let Some((kind, context)) = context(message) else {
            return Err(SignatureError::Invalid);
        };
        let verified = match verify(&keys, &context, message) {
            Err(SignatureError::Missing) if self.accepts_unsigned => Ok(()),
            verified => verified,
        };
        if let Err(error) = verified {
            self.count(kind, &message.subject, error);
        }
        verified
    }

    /// Returns the number of rejected messages by kind.
    pub fn rejected(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS
            .iter()
            .zip(&self.rejected)
            .map(|(kind, count)| (kind.token(), count.load(Ordering::Relaxed)))
    }

    fn count(&self, kind: SubjectKind, subject: &str, error: SignatureError) {
        let kinds = KINDS.iter().zip(&self.rejected);
        for (_, count) in kinds.filter(|(counted, _)| **counted == kind) {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            if number.is_power_of_two() || number.is_multiple_of(LOG_INTERVAL) {
                tracing::warn!(subject, number, %error, "message rejected");
            }
        }
    }

    fn keys(&self) -> Arc<[Key]> {
        Arc::clone(&self.keys.read())
    }
}

impl Key {
    fn new(key: &[u8]) -> Result<Self, ShortKey> {
        if key.len() < MIN_KEY_BYTES {
            return Err(ShortKey(key.len()));
        }
        Ok(Self::of(key))
    }

    fn of(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC accepts keys of any length"))
    }

    /// Returns the key of a context: an effect, or workflow commands.
    fn derive(&self, context: &str) -> Self {
        let mut mac = self.0.clone();
        mac.update(context.as_bytes());
        // In hexadecimal: operators derive the key of an effect with `openssl` and pass the text to
        // a worker.
        Self::of(hex::encode(mac.finalize().into_bytes()).as_bytes())
    }

    /// Returns the authentication code of a message, not finalized. Each part is preceded by its
    /// length.
    fn code(&self, message: &Message) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        let mut put = |part: &[u8]| {
            mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            mac.update(part);
        };

        put(VERSION.as_bytes());
        put(message.subject.as_bytes());
        // Names of headers have no case, and NATS clients do not keep their order.
        let mut headers: Vec<(CompactString, &str)> = message
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
            .filter(|(name, _)| is_signed(name))
            .collect();
        headers.sort();

        put(headers.len().to_string().as_bytes());
        for (name, value) in headers {
            put(name.as_bytes());
            put(value.as_bytes());
        }

        put(&message.payload);
        mac
    }
}

fn verify(keys: &[Key], context: &str, message: &Message) -> Result<(), SignatureError> {
    let mut found = message
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(SIGNATURE));
    let (_, value) = found.next().ok_or(SignatureError::Missing)?;
    let code = value
        .trim()
        .strip_prefix(VERSION)
        .and_then(|value| value.strip_prefix('='));

    let code = code
        // Two signatures: it is not defined which one counts.
        .filter(|_| found.next().is_none())
        .and_then(|code| hex::decode(code).ok())
        .ok_or(SignatureError::Invalid)?;

    // In constant time for each key.
    let is_valid = keys.iter().any(|key| {
        key.derive(context)
            .code(message)
            .verify_slice(&code)
            .is_ok()
    });

    if is_valid {
        Ok(())
    } else {
        Err(SignatureError::Invalid)
    }
}

/// Returns the kind of a signed message, and the context of its key.
fn context(message: &Message) -> Option<(SubjectKind, String)> {
    let subject = Subject::parse(&message.subject).ok();
    // The record of a start has one token more than the form of a subject.
    let subject = subject.or_else(|| parse_start(&message.subject))?;
    let context = match subject.kind {
        SubjectKind::Effect | SubjectKind::EffectResult => format!("orlog.effect.{}", subject.name),
        SubjectKind::Workflow => "orlog.workflow".to_owned(),
        SubjectKind::WorkflowEvent => "orlog.fact".to_owned(),
        SubjectKind::Aggregate => "orlog.event".to_owned(),
        SubjectKind::DeadLetter => return None,
    };
    Some((subject.kind, context))
}

/// Returns whether a header, in lower case, is interpreted and therefore signed.
fn is_signed(name: &str) -> bool {
    name.starts_with("ce-") || name == "content-type" || name == "traceparent"
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";
    const SUBJECT: &str = "tenant.acme.effect.pay%2Echarge.7";

    fn message() -> Message {
        let headers = [
            ("ce-type", "orlog.effect.command"),
            ("Content-Type", "application/json"),
        ];
        Message {
            subject: SUBJECT.to_owned(),
            id: None,
            headers: headers
                .map(|(name, value)| (name.into(), value.into()))
                .to_vec(),
            payload: "{}".into(),
        }
    }

    fn signer(keys: &[&str]) -> Signer {
        Signer::new(keys).unwrap()
    }

    #[test]
    fn first_key_signs_and_all_keys_verify() {
        let (old, both, new) = (signer(&[OLD]), signer(&[NEW, OLD]), signer(&[NEW]));
        assert_eq!(both.verify(&old.sign(message())), Ok(()));
        assert_eq!(both.verify(&both.sign(message())), Ok(()));
        assert_eq!(new.verify(&both.sign(message())), Ok(()));
        assert_eq!(
            new.verify(&old.sign(message())),
            Err(SignatureError::Invalid)
        );
        assert_eq!(new.verify(&message()), Err(SignatureError::Missing));
        old.replace(&[NEW]).unwrap();
        assert_eq!(new.verify(&old.sign(message())), Ok(()));
        let rejected: Vec<_> = new.rejected().collect();
        assert_eq!(
            rejected,
            [
                ("effect", 2),
                ("effect_result", 0),
                ("workflow", 0),
                ("workflow_event", 0)
            ]
        );
    }

    #[test]
    fn without_keys_messages_are_neither_signed_nor_verified() {
        let none = Signer::default();
        assert_eq!(none.sign(message()), message());
        assert_eq!(
            (none.verify(&message()), none.is_enabled()),
            (Ok(()), false)
        );
        assert_eq!(Signer::new(&["short"]).unwrap_err(), ShortKey(5));
    }

    #[test]
    fn missing_signatures_can_be_accepted_and_invalid_ones_cannot() {
        let signer = signer(&[OLD]).accepting_unsigned(true);
        assert_eq!(signer.verify(&message()), Ok(()));
        let foreign = Signer::new(&[NEW]).unwrap().sign(message());
        assert_eq!(signer.verify(&foreign), Err(SignatureError::Invalid));
    }

    #[test]
    fn every_interpreted_part_is_signed() {
        let signer = signer(&[OLD]);
        let original = signer.sign(message());
        let changed = |change: &dyn Fn(&mut Message)| {
            let mut message = original.clone();
            change(&mut message);
            signer.verify(&message)
        };
        let set = |name: &'static str, value: &'static str| {
            move |message: &mut Message| message.headers.push((name.into(), value.into()))
        };
        for change in [
            &(|message: &mut Message| message.payload = "[]".into()) as &dyn Fn(&mut Message),
            &|message: &mut Message| {
                "tenant.acme.effect.pay%2Echarge.8".clone_into(&mut message.subject);
            },
            &|message: &mut Message| {
                "tenant.evil.effect.pay%2Echarge.7".clone_into(&mut message.subject);
            },
            &|message: &mut Message| {
                "tenant.acme.effect.pay%2Erefund.7".clone_into(&mut message.subject);
            },
            &|message: &mut Message| {
                "tenant.acme.effect_result.pay%2Echarge.7".clone_into(&mut message.subject);
            },
            &|message: &mut Message| message.headers[0].1.push('x'),
            &|message: &mut Message| drop(message.headers.remove(1)),
            &set("ce-user", "root"),
            &set("traceparent", "00"),
            &set(SIGNATURE, "v1=00"),
            &|message: &mut Message| message.headers[2].1.push('0'),
            &|message: &mut Message| {
                message.headers[2].1 = message.headers[2].1.replace("v1=", "").into();
            },
        ] {
            assert_eq!(changed(change), Err(SignatureError::Invalid));
        }
        // Names in another case, another order, and headers that no node interprets.
        assert_eq!(changed(&|message| message.headers.reverse()), Ok(()));
        assert_eq!(
            changed(&|message| message.headers[1].0.make_ascii_lowercase()),
            Ok(())
        );
        assert_eq!(changed(&set("Nats-Stream", "WORKFLOW_COMMANDS")), Ok(()));
    }

    /// Requirements: R9.
    #[test]
    fn signature_of_a_fact_does_not_make_it_carry_a_result() {
        let signer = signer(&[OLD]);
        let fact = Message {
            subject: "tenant.acme.workflow_event.order.o-1".to_owned(),
            ..message()
        };
        let mut carrier = fact.clone();
        carrier
            .headers
            .push(("ce-orlogeffect".into(), "pay.charge".into()));
        assert_eq!(signer.verify(&carrier), Err(SignatureError::Missing));
        let result = signer.sign(carrier);
        assert_eq!(signer.verify(&result), Ok(()));
        assert_eq!(
            signer.verify(&Message {
                payload: "[]".into(),
                ..result.clone()
            }),
            Err(SignatureError::Invalid)
        );
        let mut changed = signer.sign(fact);
        assert_eq!(signer.verify(&changed), Ok(()));
        changed
            .headers
            .push(("ce-orlogeffect".into(), "pay.charge".into()));
        assert_eq!(signer.verify(&changed), Err(SignatureError::Invalid));
    }

    /// Requirements: F1.
    #[test]
    fn event_of_a_node_is_known_by_its_signature_and_the_time_of_its_publication() {
        let (signer, other) = (signer(&[OLD]).accepting_unsigned(true), signer(&[NEW]));
        let (created, now) = (
            "2026-11-21T08:30:00.000Z",
            Timestamp::parse("2026-11-26T12:00:00.000Z").unwrap(),
        );
        for subject in [
            "aggregate.order.1",
            "tenant.acme.workflow_event.order.1",
            "tenant.acme.workflow.order.1",
        ] {
            let mut event = Message {
                subject: subject.to_owned(),
                ..message()
            };
            event.headers.push(("ce-time".into(), created.into()));
            assert_eq!(
                signer.vouched_at(&event),
                None,
                "{subject}: a missing signature"
            );
            assert_eq!(
                signer.vouched_at(&signer.sign(event.clone())),
                Timestamp::parse(created).ok()
            );
            let vouched = signer.vouch(event.clone(), now);
            assert_eq!(
                (signer.vouched_at(&vouched), other.vouched_at(&vouched)),
                (Some(now), None)
            );
            assert_eq!(
                signer.vouched_at(&signer.vouch(vouched.clone(), now)),
                Some(now)
            );
            let mut later = vouched;
            later
                .headers
                .iter_mut()
                .filter(|(name, _)| name == PUBLISHED_AT)
                .for_each(|(_, at)| at.push('0'));
            assert_eq!(signer.vouched_at(&later), None, "{subject}: another time");
            let none = Signer::default();
            assert_eq!(
                (none.vouch(event.clone(), now), none.vouched_at(&event)),
                (event, None)
            );
        }
    }

    #[test]
    fn worker_of_one_effect_needs_its_derived_key_only() {
        let mut mac = Hmac::<Sha256>::new_from_slice(OLD.as_bytes()).unwrap();
        mac.update(b"orlog.effect.pay.charge");
        let derived = hex::encode(mac.finalize().into_bytes());
        let code = Key::of(derived.as_bytes())
            .code(&message())
            .finalize()
            .into_bytes();
        let mut signed = message();
        signed
            .headers
            .push((SIGNATURE.into(), format!("v1={}", hex::encode(code)).into()));
        assert_eq!(signer(&[OLD]).verify(&signed), Ok(()));
        "tenant.acme.effect.pay%2Erefund.7".clone_into(&mut signed.subject);
        assert_eq!(signer(&[OLD]).verify(&signed), Err(SignatureError::Invalid));
    }
}
