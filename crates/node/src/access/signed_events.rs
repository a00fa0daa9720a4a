//! Signed events: verification of events by the keys and the lists of a context, as they were when
//! the bus stored the event.
//!
//! The decision is a function of the message, the time at which the bus stored it, and the history
//! in the registry. It is the same on every pod, after a restart and in a replay. An event that a
//! node published has the signature of the nodes ([`orlog_bus::signature`]); without a signing key
//! of the nodes, no event counts as theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use orlog_actors::EventAuthority;
use orlog_bus::{Bus, Delivery, Message};
use orlog_model::{Event, TenantId, Timestamp};
use orlog_signature::{
    EVENT_SIGNATURE, EventMessage, EventSignature, EventSignatureError, KeyId, PublicKey,
    TimeError, TimeWindow,
};
use parking_lot::Mutex;

use super::store::AccessRegistry;
use crate::auth::{Caller, ConfiguredKeys, Right, SignerKey, SignerKeys as _, UNKNOWN_KEY};
use crate::config::Config;

/// Time for which a rejected event waits for the current registry.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without a refresh after a registry did not respond, so that forged events do not delay a
/// shard.
const REFRESH_PAUSE: Duration = Duration::from_secs(30);

/// Verification of signed events.
pub struct SignedEvents {
    access: Arc<AccessRegistry>,
    configured: Arc<ConfiguredKeys>,
    window: TimeWindow,
    /// Time within which a repeated event is a duplicate, for events that a node published.
    dedupe_window: Duration,
    /// Time before which the registry is not refreshed again, because it did not respond.
    refresh_after: Mutex<Option<Instant>>,
}

/// Reason why an event is not accepted in a context that requires signed events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRejection {
    /// The event has no signature.
    #[error(
        "the context requires signed events, and this event has none; sign it with the key of a \
         member who may publish"
    )]
    Unsigned,
    /// The signature cannot be read.
    #[error(transparent)]
    Unreadable(#[from] EventSignatureError),
    /// The node does not know the key, or the key did not sign the event. The publisher learns no
    /// difference.
    #[error(
        "the signature is not by a known key: the node does not know the key {0}, or the event \
         was changed after it was signed; add the key to the actor, and sign the subject, the \
         attributes and the data as they are sent"
    )]
    NotAuthentic(KeyId),
    /// The key was not valid.
    #[error("the key {0} could not be used at {1}: {2}; sign with another key of the actor")]
    InvalidKey(KeyId, Timestamp, String),
    /// The bus stored the event outside the time window of its signature.
    #[error("the event was stored at {1}, outside the time window of its signature: {0}")]
    Time(TimeError, Timestamp),
    /// The actor is no member who may publish.
    #[error(
        "the signer {0:?} may not publish events in this context; an admin can add it to the admins"
    )]
    NotPermitted(String),
    /// A node published the event too long ago.
    #[error(
        "a node published the event {0} before the bus stored it, so that it can be a repetition \
         that is no longer detected; publish it again"
    )]
    Late(String),
}

impl SignedEvents {
    pub(crate) fn new(
        config: &Config,
        access: Arc<AccessRegistry>,
        configured: Arc<ConfiguredKeys>,
    ) -> Self {
        let window = config.auth.signatures.time_window();
        let dedupe_window = config.store.dedupe_window;

        Self {
            access,
            configured,
            window,
            dedupe_window,
            refresh_after: Mutex::default(),
        }
    }

    /// Returns whether the context of a tenant required signed events at a time.
    pub fn is_required(&self, tenant: &TenantId, at: Timestamp) -> bool {
        self.access.requires_signed_events(tenant, at)
    }

    /// Verifies the signature of an event at the time at which the bus stored it. Returns the
    /// signer, who is the user of the event.
    ///
    /// # Errors
    /// The reason why the event is not accepted.
    pub fn verify(
        &self,
        tenant: &TenantId,
        message: &Message,
        at: Timestamp,
    ) -> Result<String, EventRejection> {
        let Message {
            subject,
            headers,
            payload,
            ..
        } = message;

        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let read = EventSignature::read(EventMessage {
            subject,
            headers,
            data: payload,
        })?;
        let mut signer = self.signer(&read.ok_or(EventRejection::Unsigned)?, at)?;

        // The rights at the time of the bus: a node that was down for a day, and a replay, decide
        // as the others did.
        self.access.enter_at(&mut signer, tenant, at);
        let may_publish = signer.tenants.contains(tenant) && signer.roles.allow(Right::Publish);
        let name = signer.name.unwrap_or_default();

        if may_publish {
            Ok(name)
        } else {
            Err(EventRejection::NotPermitted(name))
        }
    }

    /// Returns the actor that signed an event.
    fn signer(&self, signature: &EventSignature, at: Timestamp) -> Result<Caller, EventRejection> {
        let id = signature.key_id;
        let found = self.find(id);

        // An unknown key costs as much as a wrong signature.
        let public_key = found.as_ref().map_or(UNKNOWN_KEY, |key| key.public_key);
        let is_valid = signature.is_by(&PublicKey::from(public_key));
        let key = found
            .filter(|_| is_valid)
            .ok_or(EventRejection::NotAuthentic(id))?;

        // Only after the signature: before it, everyone could ask which keys exist and whether they
        // are revoked.
        if let Some(reason) = key.invalidity_at(at) {
            return Err(EventRejection::InvalidKey(id, at, reason));
        }

        let checked = self.window.check(
            signature.created,
            signature.expires,
            at.as_millis().div_euclid(1000),
        );
        checked.map_err(|error| EventRejection::Time(error, at))?;

        Ok(key.into_caller(id))
    }

    fn find(&self, id: KeyId) -> Option<SignerKey> {
        let id = id.to_string();
        self.configured.find(&id).or_else(|| self.access.find(&id))
    }

    /// Checks the age of an event that a node published. Within the deduplication window of the
    /// stores, a repetition is a duplicate.
    fn check_age(
        &self,
        published_at: Timestamp,
        stored_at: Timestamp,
    ) -> Result<(), EventRejection> {
        let age = stored_at
            .as_millis()
            .saturating_sub(published_at.as_millis());
        // The clock of the node can be ahead of that of the bus: a negative age counts as 0.
        let age = Duration::from_millis(u64::try_from(age).unwrap_or_default());

        if age < self.dedupe_window {
            Ok(())
        } else {
            Err(EventRejection::Late(format!("{age:?}")))
        }
    }
}

#[async_trait]
impl EventAuthority for SignedEvents {
    fn check(&self, bus: &dyn Bus, delivery: &Delivery, event: &mut Event) -> Result<(), String> {
        let Delivery {
            message,
            published_at,
            ..
        } = delivery;
        if !self.is_required(&event.tenant, *published_at) {
            return Ok(());
        }

        // A node has verified the event before it published it, and its own HMAC covers the time of
        // that.
        let checked = if let Some(at) = bus.vouched_at(message) {
            self.check_age(at, *published_at)
        } else {
            self.verify(&event.tenant, message, *published_at)
                .map(|signer| event.user = Some(signer))
        };
        checked.map_err(|rejection| rejection.to_string())
    }

    async fn refresh(&self) {
        // While the registry is not available, a shard waits at most once per pause, not for each
        // rejected event.
        let is_paused = self
            .refresh_after
            .lock()
            .is_some_and(|after| Instant::now() < after);
        if is_paused {
            return;
        }

        let refreshed = tokio::time::timeout(REFRESH_TIMEOUT, self.access.refresh()).await;
        let error = match refreshed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {REFRESH_TIMEOUT:?}"),
        };

        *self.refresh_after.lock() = Some(Instant::now() + REFRESH_PAUSE);
        tracing::warn!(
            error,
            "events are verified with the last known contexts and actors"
        );
    }
}

/// Returns whether an event has the signature of an actor, which may be invalid.
#[must_use]
pub fn is_signed(event: &Event) -> bool {
    let name = &EVENT_SIGNATURE["ce-".len()..];
    event
        .attributes
        .as_ref()
        .is_some_and(|attributes| attributes.extensions.contains_key(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use async_trait::async_trait;
    use orlog_bus::embedded::JournalRegistry;
    use orlog_bus::registry::Registry;
    use orlog_bus::{Consumer, Error, PublishAck, ScanStart, StreamScan, Subscription, codec};
    use orlog_model::ActorId;
    use orlog_signature::SigningKey;
    use uuid::Uuid;

    use super::super::{Actor, Context, Key, Keyed as _};
    use super::*;

    const SUBJECT: &str = "tenant.acme.workflow_event.event.o-1";
    /// Time at which the requirement starts, in seconds.
    const START: i64 = 10_000;

    /// Bus with a node that published its messages at a time.
    struct VouchingBus(Option<Timestamp>);

    #[async_trait]
    impl Bus for VouchingBus {
        fn stream_id(&self) -> Uuid {
            Uuid::nil()
        }

        fn vouched_at(&self, _: &Message) -> Option<Timestamp> {
            self.0
        }

        async fn publish(&self, _: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, Error> {
            Err(Error::Unavailable("a test".to_owned()))
        }

        async fn subscribe(&self, _: Subscription) -> Result<Box<dyn Consumer>, Error> {
            Err(Error::Unavailable("a test".to_owned()))
        }

        async fn scan(&self, _: Vec<String>, _: ScanStart) -> Result<Box<dyn StreamScan>, Error> {
            Err(Error::Unavailable("a test".to_owned()))
        }

        async fn last_sequence(&self) -> Result<u64, Error> {
            Ok(0)
        }
    }

    struct Fixture {
        events: SignedEvents,
        key: SigningKey,
        _dir: tempfile::TempDir,
    }

    fn seconds(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn acme() -> TenantId {
        TenantId::new("acme").unwrap()
    }

    impl Fixture {
        /// Returns the context of acme, in which robo may publish; `change` changes its later
        /// history.
        async fn new(change: impl FnOnce(&mut Context, &mut Actor)) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let registry = JournalRegistry::open(&dir.path().join("registry"), None).unwrap();
            let access = Arc::new(AccessRegistry::new(
                Arc::new(registry) as Arc<dyn Registry>,
                None,
            ));
            let key = SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap();
            let (robo, public_key) = (ActorId::new("robo").unwrap(), key.public_key());
            let (mut actor, mut context) = (Actor::new(seconds(1)), Context::new(seconds(1)));
            let added = Key::new(public_key, seconds(1));
            actor.add_key(added, seconds(1), None).unwrap();
            let admins = BTreeSet::from(["actor:robo".parse().unwrap()]);
            context.replace([admins, BTreeSet::new(), BTreeSet::new()], seconds(1), None);
            context.set_require_signed_events(true, seconds(START), None);
            change(&mut context, &mut actor);
            access.put(&robo, Some(actor), 0).await.unwrap();
            access.put(&acme(), Some(context), 0).await.unwrap();
            let config = Config::default();
            let configured = Arc::new(ConfiguredKeys::new(&config).unwrap());
            Self {
                events: SignedEvents::new(&config, access, configured),
                key,
                _dir: dir,
            }
        }

        /// Returns an event that is signed at a time, in seconds.
        fn signed(&self, created: i64) -> Message {
            let headers = [
                ("ce-specversion", "1.0"),
                ("ce-id", "e-1"),
                ("ce-type", "OrderPlaced"),
                ("ce-source", "urn:shop"),
                ("content-type", "application/json"),
            ];
            let message = EventMessage {
                subject: SUBJECT,
                headers: headers.into_iter(),
                data: b"{\"total\":125}",
            };
            let signature = self
                .key
                .sign_event(message, created, Duration::from_mins(5));
            let signature = [(EVENT_SIGNATURE, signature.as_str())];
            let headers = headers.into_iter().chain(signature);
            let headers = headers
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            Message {
                subject: SUBJECT.to_owned(),
                id: None,
                headers,
                payload: b"{\"total\":125}".as_slice().into(),
            }
        }

        /// Checks a message that the bus stored at a time. Returns the user of the event.
        fn check(
            &self,
            bus: &VouchingBus,
            message: Message,
            stored: i64,
        ) -> Result<Option<String>, String> {
            let published_at = seconds(stored);
            let message = Arc::new(message);
            let Ok(mut event) = codec::decode(&message, published_at) else {
                return Err("undecodable".to_owned());
            };
            let delivery = Delivery {
                sequence: 1,
                attempt: 1,
                published_at,
                message,
                defect: None,
            };
            self.events
                .check(bus, &delivery, &mut event)
                .map(|()| event.user)
        }

        fn reason(&self, message: Message, stored: i64) -> String {
            self.check(&VouchingBus(None), message, stored).unwrap_err()
        }
    }

    /// Requirements: F1.
    #[tokio::test]
    async fn signature_is_checked_at_the_time_at_which_the_bus_stored_the_event() {
        let fixture = Fixture::new(|_, _| {}).await;
        let check = |created: i64, stored: i64| {
            fixture.check(&VouchingBus(None), fixture.signed(created), stored)
        };
        for stored in [START + 100, START + 400, START + 70] {
            assert_eq!(
                check(START + 100, stored),
                Ok(Some("robo".to_owned())),
                "{stored}"
            );
        }
        for (stored, part) in [
            (START + 401, "301s old"),
            (START + 69, "31s after"),
            (START + 700, "600s old"),
        ] {
            let reason = fixture.reason(fixture.signed(START + 100), stored);
            assert!(reason.contains(part), "{reason}");
        }
        let unsigned = Message {
            headers: fixture
                .signed(START)
                .headers
                .into_iter()
                .filter(|(name, _)| name != EVENT_SIGNATURE)
                .collect(),
            ..fixture.signed(START)
        };
        assert!(fixture.reason(unsigned.clone(), START).contains("has none"));
        // Before the requirement, and in a tenant without a record, the user is not that of a
        // signature.
        assert_eq!(
            fixture.check(&VouchingBus(None), unsigned.clone(), START - 1),
            Ok(None)
        );
        let other = Message {
            subject: SUBJECT.replace("acme", "beta"),
            ..unsigned
        };
        assert_eq!(fixture.check(&VouchingBus(None), other, START), Ok(None));
    }

    /// Requirements: F1.
    #[tokio::test]
    async fn later_changes_of_keys_and_lists_do_not_apply_to_stored_events() {
        let fixture = Fixture::new(|context, actor| {
            let (robo, id) = (ActorId::new("robo").unwrap(), actor.keys[0].id.clone());
            let others = BTreeSet::from(["user:ada".parse().unwrap()]);
            context.replace(
                [others, BTreeSet::new(), BTreeSet::new()],
                seconds(START + 100),
                None,
            );
            actor
                .revoke_key(&robo, &id, seconds(START + 200), None)
                .unwrap();
            context.set_require_signed_events(false, seconds(START + 300), None);
        })
        .await;
        let check = |at: i64| fixture.check(&VouchingBus(None), fixture.signed(at), at);
        assert_eq!(check(START + 99), Ok(Some("robo".to_owned())));
        assert!(
            check(START + 100)
                .unwrap_err()
                .contains("\"robo\" may not publish")
        );
        assert!(check(START + 200).unwrap_err().contains("it is revoked"));
        assert_eq!(
            check(START + 300),
            Ok(None),
            "the requirement was withdrawn"
        );
    }

    #[tokio::test]
    async fn unknown_key_and_changed_event_have_the_same_reason() {
        let (fixture, stranger) = (Fixture::new(|_, _| {}).await, Fixture::new(|_, _| {}).await);
        let mut changed = fixture.signed(START);
        changed.payload = b"{\"total\":1}".as_slice().into();
        let own = fixture.key.key_id().to_string();
        let unknown = fixture.reason(stranger.signed(START), START);
        let unknown = unknown.replace(&stranger.key.key_id().to_string(), &own);
        assert_eq!(unknown, fixture.reason(changed, START));
    }

    /// Requirements: F1.
    #[tokio::test]
    async fn event_of_a_node_is_accepted_within_the_dedupe_window_after_its_publication() {
        let fixture = Fixture::new(|_, _| {}).await;
        let mut unsigned = fixture.signed(START);
        unsigned.headers.retain(|(name, _)| name != EVENT_SIGNATURE);
        let day = 24 * 60 * 60;
        let check = |published: i64, stored: i64| {
            fixture.check(
                &VouchingBus(Some(seconds(published))),
                unsigned.clone(),
                stored,
            )
        };
        assert_eq!(
            (check(START, START), check(START, START + day - 1)),
            (Ok(None), Ok(None))
        );
        assert_eq!(
            check(START + 5, START),
            Ok(None),
            "the clock of the node is ahead"
        );
        assert!(
            check(START, START + day)
                .unwrap_err()
                .contains("publish it again")
        );
    }

    #[tokio::test]
    async fn record_that_cannot_be_read_keeps_its_requirement() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Arc::new(JournalRegistry::open(&dir.path().join("registry"), None).unwrap());
        let access = AccessRegistry::new(Arc::clone(&registry) as Arc<dyn Registry>, None);
        for (tenant, required) in [("acme", true), ("beta", false)] {
            let record = format!(r#"{{"members":{{}},"require_signed_events":{required}}}"#);
            registry
                .put(&format!("context.{tenant}"), Some(record), 0)
                .await
                .unwrap();
            let tenant = TenantId::new(tenant).unwrap();
            assert_eq!(
                access.requires_signed_events(&tenant, seconds(1)),
                required,
                "{tenant}"
            );
        }
    }

    /// Requirements: F1.
    #[tokio::test]
    async fn any_changed_byte_is_rejected() {
        let fixture = Fixture::new(|_, _| {}).await;
        let original = fixture.signed(START);
        let parts = 2 + original.headers.len();
        let part = |message: &Message, part: usize| match part {
            0 => message.subject.clone(),
            1 => String::from_utf8(message.payload.to_vec()).unwrap(),
            header => message.headers[header - 2].1.to_string(),
        };
        let mut count = 0;
        for (number, index, bit) in (0..parts)
            .flat_map(|number| (0..part(&original, number).len()).map(move |index| (number, index)))
            .flat_map(|(number, index)| (0..7).map(move |bit| (number, index, bit)))
        {
            let mut bytes = part(&original, number).into_bytes();
            bytes[index] ^= 1 << bit;
            let text = String::from_utf8(bytes).unwrap();
            let mut changed = original.clone();
            match number {
                0 => changed.subject.clone_from(&text),
                1 => changed.payload = text.clone().into(),
                header => changed.headers[header - 2].1 = text.as_str().into(),
            }
            // Another tenant does not require signatures: to publish to its subjects needs another
            // permission.
            let tenant = orlog_bus::subject::tenant_of(&changed.subject);
            if tenant.is_ok_and(|tenant| tenant == acme()) {
                let checked = fixture.check(&VouchingBus(None), changed, START);
                assert!(checked.is_err(), "{text:?}");
                count += 1;
            }
        }
        assert!(count > 1500, "{count}");
    }
}
