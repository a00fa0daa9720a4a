//! Recent events that the instances of a shard ignored, in memory. An ignored event changes nothing,
//! so that the history of its instance has no entry of it.

use std::collections::VecDeque;

use orlog_model::{EventId, EventType, InstanceKey, Timestamp};
use parking_lot::Mutex;

/// Maximum number of stored events of a shard.
const MAX_EVENTS: usize = 1_000;

/// Event that an instance ignored.
#[derive(Clone, Debug)]
pub struct IgnoredEvent {
    /// Type of the event.
    pub kind: EventType,
    /// Id of the event.
    pub id: EventId,
    /// When the instance ignored it.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

struct Entry {
    instance: InstanceKey,
    event: IgnoredEvent,
}

/// The last ignored events of a shard, oldest first.
#[derive(Default)]
pub(crate) struct IgnoredEvents(Mutex<VecDeque<Entry>>);

impl IgnoredEvents {
    pub(crate) fn record(&self, instance: InstanceKey, event: IgnoredEvent) {
        let mut entries = self.0.lock();
        if entries.len() == MAX_EVENTS {
            entries.pop_front();
        }
        entries.push_back(Entry { instance, event });
    }

    /// Returns the events that an instance ignored, oldest first.
    pub(crate) fn of(&self, instance: &InstanceKey) -> Vec<IgnoredEvent> {
        let entries = self.0.lock();
        let own = entries.iter().filter(|entry| entry.instance == *instance);
        own.map(|entry| entry.event.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, SagaName, TenantId};

    use super::*;

    #[test]
    fn oldest_events_make_room() {
        let ignored = IgnoredEvents::default();
        let instance = |correlation: &str| InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        };
        for number in 0..=MAX_EVENTS {
            let correlation = if number % 2 == 0 { "o-1" } else { "o-2" };
            let event = IgnoredEvent {
                kind: EventType::new("Paid").unwrap(),
                id: EventId::new(format!("e-{number}")).unwrap(),
                at: Timestamp::from_millis(0),
                reason: "the instance has ended".to_owned(),
            };
            ignored.record(instance(correlation), event);
        }

        let own = ignored.of(&instance("o-1"));
        assert_eq!(own.len(), MAX_EVENTS / 2);
        assert_eq!(own[0].id.as_str(), "e-2");
        assert!(ignored.of(&instance("o-3")).is_empty());
    }
}
