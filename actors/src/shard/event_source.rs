//! Event sources of a shard: its streams and the subjects that it reads from each.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use orlog_bus::effect_queue::DEAD_LETTER_NAME;
use orlog_bus::subject::{self, SubjectKind};
use orlog_bus::{Bus, Delivery, MaxInFlight, Partition, Subscription};
use orlog_model::{Event, SlotAssigner, StreamPosition, TenantId};

/// Name of the stream of the embedded log.
pub const EMBEDDED_STREAM: &str = "events";
/// Maximum number of filters. More filters cost the servers more than they save.
const MAX_FILTERS: usize = 1000;

/// Stream of events and of messages to instances.
#[derive(Clone)]
pub struct EventSource {
    /// Stream name, under which checkpoints are stored.
    pub name: String,
    /// The bus of the stream.
    pub bus: Arc<dyn Bus>,
    /// Subject kinds that are read. Dead letters: those of effect workers only, in a stream of their own.
    pub kinds: Vec<SubjectKind>,
    /// Sharing of the stream between processes. `None`: the shards of this process read all messages, and
    /// each selects its own. `Some`: other processes exist, and each message is delivered to one shard. For
    /// a key-sharded tenant, that shard forwards the message to the instances.
    pub sharing: Option<StreamSharing>,
    /// Decides which events are applied. `None`: all, because only this process publishes to the bus.
    pub authority: Option<Arc<dyn EventAuthority>>,
}

/// Decides whether an event or a signal of a shared bus is applied: contexts can require signatures of their members.
///
/// The decision depends on the message, the time at which the bus stored it, and the records at that time, so that it is the
/// same on every pod, after a restart, and in a replay.
#[async_trait]
pub trait EventAuthority: Send + Sync + 'static {
    /// Checks the event of a message, and sets its user to the actor that signed it.
    ///
    /// # Errors
    /// The reason why the event must not be applied.
    fn check(&self, bus: &dyn Bus, delivery: &Delivery, event: &mut Event) -> Result<(), String>;

    /// Waits until decisions are based on the records that are durable now, or until the records are not available. A
    /// rejection before can be outdated.
    async fn refresh(&self);
}

/// Distribution of a stream between shards.
#[derive(Clone, Debug, Default)]
pub struct StreamSharing {
    /// All tenants; `None`: any tenant.
    pub tenants: Option<Vec<TenantId>>,
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
            filters: self.filters(slots, range),
            partition,
            start_after: after,
            max_in_flight,
        }
    }

    /// Returns the filters of the tenants of the shard, or of all tenants if they are unknown or too many.
    pub(crate) fn filters(&self, slots: &SlotAssigner, range: &Range<u16>) -> Vec<String> {
        let name = |kind| (kind == SubjectKind::DeadLetter).then_some(DEAD_LETTER_NAME);
        let all = || {
            self.kinds
                .iter()
                .flat_map(|kind| subject::filters(None, *kind, name(*kind)))
                .collect()
        };
        let Some(tenants) = self
            .sharing
            .as_ref()
            .and_then(|sharing| sharing.tenants.as_ref())
        else {
            return all();
        };
        let mut filters = Vec::new();
        for kind in &self.kinds {
            let concerns = |tenant: &&TenantId| {
                range.contains(&slots.home_slot(tenant).0)
                    || *kind == SubjectKind::Workflow && slots.is_key_sharded(tenant)
            };
            for tenant in tenants.iter().filter(concerns) {
                filters.extend(subject::filters(Some(tenant), *kind, name(*kind)));
            }
        }
        if filters.is_empty() || filters.len() > MAX_FILTERS {
            all()
        } else {
            filters
        }
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

    fn source(kind: SubjectKind, tenants: Option<&[&str]>) -> EventSource {
        let tenants = tenants.map(|all| all.iter().map(|name| tenant(name)).collect());
        EventSource {
            name: "S".to_owned(),
            bus: Arc::new(EmptyBus(AtomicU64::new(0))),
            kinds: vec![kind],
            sharing: Some(StreamSharing { tenants }),
            authority: None,
        }
    }

    #[test]
    fn shard_subscribes_only_to_its_tenants() {
        let slots = SlotAssigner::with_key_sharded([tenant("big")]);
        let home = slots.home_slot(&tenant("acme")).0;
        let here = home..home + 1;
        let other_slots = if home == 0 { 1..2 } else { 0..home };
        let tenants = ["acme", "big"];
        let filters =
            |kind, range: &Range<u16>| source(kind, Some(&tenants)).filters(&slots, range);
        assert_eq!(
            filters(SubjectKind::Aggregate, &here)[0],
            "tenant.acme.aggregate.>"
        );
        assert!(
            filters(SubjectKind::Workflow, &other_slots)
                .contains(&"tenant.big.workflow.>".to_owned())
        );
        let all_tenants = source(SubjectKind::Aggregate, None).filters(&slots, &here);
        assert_eq!(all_tenants, ["tenant.*.aggregate.>", "aggregate.>"]);
        let dead_letters = source(SubjectKind::DeadLetter, None).filters(&slots, &here);
        assert_eq!(
            dead_letters,
            ["tenant.*.deadletter.effect.*", "deadletter.effect.*"]
        );
        let many: Vec<String> = (0..=MAX_FILTERS).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            source(SubjectKind::Aggregate, Some(&many)).filters(&slots, &(0..SLOTS)),
            all_tenants
        );
    }
}
