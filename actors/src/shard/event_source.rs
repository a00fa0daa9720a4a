//! Event sources of a shard: its streams and the subjects that it reads from each.
//!
//! The subjects depend on the kind of the messages and the partition of the shard, not on settings
//! of the node. Another node continues at the checkpoint of the shard, so a message that a setting
//! filters would never be read.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use orlog_bus::effect_queue::DEAD_LETTER_NAME;
use orlog_bus::subject::{self, SubjectKind};
use orlog_bus::{Bus, Delivery, MaxInFlight, Partition, Subscription};
use orlog_model::{Event, SlotAssigner, StreamPosition, TenantId};

/// Name of the stream of the embedded log.
pub const EMBEDDED_STREAM: &str = "events";

/// Stream of events and of messages to instances.
#[derive(Clone)]
pub struct EventSource {
    /// Stream name, under which checkpoints are stored.
    pub name: String,
    /// The bus of the stream.
    pub bus: Arc<dyn Bus>,
    /// Subject kinds that are read. Dead letters: those of effect workers only, in a stream of
    /// their own.
    pub kinds: Vec<SubjectKind>,
    /// Sharing of the stream between processes. `None`: the shards of this process read all
    /// messages, and each selects its own. `Some`: other processes exist, and each message is
    /// delivered to one shard. For a key-sharded tenant, that shard forwards the message to the
    /// instances.
    pub sharing: Option<StreamSharing>,
    /// Decides which events are applied. `None`: all, because only this process publishes to the
    /// bus.
    pub authority: Option<Arc<dyn EventAuthority>>,
}

/// Decides whether an event or a signal of a shared bus is applied: contexts can require signatures
/// of their members.
///
/// The decision depends on the message, the time at which the bus stored it, and the records at
/// that time, so that it is the same on every pod, after a restart, and in a replay.
#[async_trait]
pub trait EventAuthority: Send + Sync + 'static {
    /// Checks the event of a message, and sets its user to the actor that signed it.
    ///
    /// # Errors
    /// The reason why the event must not be applied.
    fn check(&self, bus: &dyn Bus, delivery: &Delivery, event: &mut Event) -> Result<(), String>;

    /// Waits until decisions are based on the records that are durable now, or until the records
    /// are not available. A rejection before can be outdated.
    async fn refresh(&self);
}

/// Tenants whose messages a node applies. A reload can change them.
pub trait TenantAdmission: Send + Sync + 'static {
    /// Returns whether the node applies the messages of a tenant.
    fn admits(&self, tenant: &TenantId) -> bool;
}

/// Distribution of a stream between shards.
#[derive(Clone, Default)]
pub struct StreamSharing {
    /// Tenants whose messages this node applies; `None`: any tenant. Messages of other tenants
    /// become dead letters, because another node may have accepted them.
    pub admission: Option<Arc<dyn TenantAdmission>>,
}

impl StreamSharing {
    fn allows(&self, tenant: &TenantId) -> bool {
        let admission = self.admission.as_ref();
        admission.is_none_or(|admission| admission.admits(tenant))
    }
}

impl EventSource {
    /// Returns the only stream of a single process.
    #[must_use]
    pub fn embedded(bus: Arc<dyn Bus>) -> Self {
        let kinds = vec![
            SubjectKind::Aggregate,
            SubjectKind::WorkflowEvent,
            SubjectKind::Workflow,
        ];
        Self {
            name: EMBEDDED_STREAM.to_owned(),
            bus,
            kinds,
            sharing: None,
            authority: None,
        }
    }

    /// Checks the event of a message, and sets its user to the actor that signed it.
    ///
    /// # Errors
    /// The reason why the event must not be applied.
    pub fn check(&self, delivery: &Delivery, event: &mut Event) -> Result<(), String> {
        self.authority.as_ref().map_or(Ok(()), |authority| {
            authority.check(&*self.bus, delivery, event)
        })
    }

    /// Returns whether this node applies messages of a tenant.
    pub(crate) fn allows(&self, tenant: &TenantId) -> bool {
        self.sharing
            .as_ref()
            .is_none_or(|sharing| sharing.allows(tenant))
    }

    /// Returns whether the stream contains the dead letters of effect workers.
    #[must_use]
    pub fn has_dead_letters(&self) -> bool {
        self.kinds.contains(&SubjectKind::DeadLetter)
    }

    /// Returns the subscription of a shard.
    pub(crate) fn subscription(
        &self,
        name: &str,
        slots: &SlotAssigner,
        range: &Range<u16>,
        after: Option<StreamPosition>,
        max_in_flight: MaxInFlight,
    ) -> Subscription {
        let partition = self.sharing.is_some().then(|| Partition {
            slots: slots.clone(),
            range: range.clone(),
        });
        Subscription {
            name: name.to_owned(),
            filters: self.filters(),
            partition,
            start_after: after,
            max_in_flight,
        }
    }

    /// Returns the subject filters, those of all tenants.
    pub(crate) fn filters(&self) -> Vec<String> {
        self.kinds
            .iter()
            .flat_map(|kind| {
                let name = (*kind == SubjectKind::DeadLetter).then_some(DEAD_LETTER_NAME);
                subject::filters(None, *kind, name)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use orlog_bus::{Consumer, Error, Message, PublishAck, ScanStart, StreamScan};
    use orlog_model::SLOTS;
    use uuid::Uuid;

    use super::*;

    /// Bus without subscribers.
    struct EmptyBus(AtomicU64);

    #[async_trait]
    impl Bus for EmptyBus {
        fn stream_id(&self) -> Uuid {
            Uuid::nil()
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
            Ok(self.0.load(std::sync::atomic::Ordering::Relaxed))
        }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    /// Admits the listed tenants only.
    struct TenantList(Vec<TenantId>);

    impl TenantAdmission for TenantList {
        fn admits(&self, tenant: &TenantId) -> bool {
            self.0.contains(tenant)
        }
    }

    fn source(kind: SubjectKind, allowed: Option<&[&str]>) -> EventSource {
        let admission = allowed.map(|names| {
            let listed = names.iter().map(|name| tenant(name)).collect();
            Arc::new(TenantList(listed)) as Arc<dyn TenantAdmission>
        });
        EventSource {
            name: "S".to_owned(),
            bus: Arc::new(EmptyBus(AtomicU64::new(0))),
            kinds: vec![kind],
            sharing: Some(StreamSharing { admission }),
            authority: None,
        }
    }

    #[test]
    fn subscription_does_not_depend_on_the_allowed_tenants() {
        let slots = SlotAssigner::with_key_sharded([tenant("big")]);
        let subscription = |allowed| {
            source(SubjectKind::Aggregate, allowed).subscription(
                "shard-0",
                &slots,
                &(0..SLOTS / 2),
                None,
                MaxInFlight::total(1),
            )
        };
        let subscribed = subscription(Some(&["acme", "big"]));
        assert_eq!(
            subscribed.filters,
            ["tenant.*.aggregate.>", "aggregate.>"],
            "the partition alone selects the messages of the shard"
        );
        assert_eq!(subscribed, subscription(None));
    }

    #[test]
    fn only_dead_letters_of_effect_workers_are_read() {
        let dead_letters = source(SubjectKind::DeadLetter, None).filters();
        assert_eq!(
            dead_letters,
            ["tenant.*.deadletter.effect.*", "deadletter.effect.*"]
        );
    }

    #[test]
    fn allowlist_decides_which_tenants_are_applied() {
        let listed = source(SubjectKind::Aggregate, Some(&["", "acme"]));
        assert!(listed.allows(&tenant("acme")));
        assert!(listed.allows(&TenantId::default_tenant()));
        assert!(!listed.allows(&tenant("beta")));

        let any = source(SubjectKind::Aggregate, None);
        assert!(any.allows(&tenant("beta")));
    }
}
