//! Recent events that the instances of a shard ignored, in memory. An ignored event changes
//! nothing, so that the history of its instance has no entry of it.

use std::collections::VecDeque;

use orlog_model::{EventId, EventType, InstanceKey, Timestamp};
use parking_lot::Mutex;

/// Maximum number of stored events of a shard.
const MAX_EVENTS: usize = 1_000;
/// Maximum number of events that are returned of an instance.
const MAX_PER_INSTANCE: usize = 100;
/// Maximum size of a reason, which a program in Rust or WebAssembly can compose.
const MAX_REASON_BYTES: usize = 512;

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
    pub(crate) fn record(&self, instance: InstanceKey, mut event: IgnoredEvent) {
        let end = event.reason.floor_char_boundary(MAX_REASON_BYTES);
        event.reason.truncate(end);

        let mut entries = self.0.lock();
        if entries.len() == MAX_EVENTS {
            entries.pop_front();
        }
        entries.push_back(Entry { instance, event });
    }

    /// Returns the last events that an instance ignored, oldest first.
    pub(crate) fn of(&self, instance: &InstanceKey) -> Vec<IgnoredEvent> {
        let entries = self.0.lock();
        let latest = entries
            .iter()
            .rev()
            .filter(|entry| entry.instance == *instance);
        let mut own: Vec<_> = latest
            .take(MAX_PER_INSTANCE)
            .map(|entry| entry.event.clone())
            .collect();

        own.reverse();
        own
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, SagaName, TenantId};

    use super::*;

    fn instance(correlation: &str) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        }
    }

    #[test]
    fn oldest_events_make_room() {
        let ignored = IgnoredEvents::default();
        ignore(&ignored, "o-0", 0);
        for number in 1..MAX_EVENTS {
            ignore(&ignored, "o-1", number);
        }
        assert_eq!(ignored.of(&instance("o-0")).len(), 1);

        ignore(&ignored, "o-2", MAX_EVENTS);
        assert!(ignored.of(&instance("o-0")).is_empty());
        let own = ignored.of(&instance("o-1"));
        assert_eq!(own.len(), MAX_PER_INSTANCE);
        assert_eq!(own.last().unwrap().id.as_str(), "e-999");
    }

    #[test]
    fn long_reason_is_truncated_between_characters() {
        let ignored = IgnoredEvents::default();
        let event = IgnoredEvent {
            reason: "é".repeat(MAX_REASON_BYTES) + "x",
            ..event(1)
        };
        ignored.record(instance("o-1"), event);
        assert_eq!(ignored.of(&instance("o-1"))[0].reason, "é".repeat(256));
    }

    fn ignore(ignored: &IgnoredEvents, correlation: &str, number: usize) {
        ignored.record(instance(correlation), event(number));
    }

    fn event(number: usize) -> IgnoredEvent {
        IgnoredEvent {
            kind: EventType::new("Paid").unwrap(),
            id: EventId::new(format!("e-{number}")).unwrap(),
            at: Timestamp::from_millis(0),
            reason: "the instance has ended".to_owned(),
        }
    }
}
