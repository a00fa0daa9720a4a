//! The audit at the end of a run: the runner's books against the world's.

use std::collections::{BTreeMap, BTreeSet};

use orlog_bus::subject::{self, Kind};
use orlog_bus::{Bus as _, Subscription, codec};
use orlog_model::{EventId, EventType, InstanceKey, Record, Status};
use orlog_store::Reader;
use serde_json::Value;
use uuid::Uuid;

use crate::fake_upstreams::event;
use crate::runtime::{Rig, tenant};
use crate::sagas::{Order, order_end, order_key};

impl Rig {
    /// Holds every order against its plan: its last status, what the world did for it and in which order, its history, and
    /// the one fact it ends with. Nothing may be left: no work, no timer, no kept input, no dead letter.
    ///
    /// # Panics
    /// When something is lost, doubled, out of order or left over; the message says what.
    pub async fn audit(&self, orders: &[Order]) {
        self.audit_keys();
        for (key, plan) in orders {
            self.audit_order(key, plan);
        }
        self.audit_leftovers();
        self.audit_facts(orders).await;
    }

    /// One key for each deed: nothing was done under two.
    fn audit_keys(&self) {
        let mut keys: BTreeMap<(InstanceKey, String), BTreeSet<Uuid>> = BTreeMap::new();
        for deed in self.world.deeds() {
            keys.entry((deed.instance, deed.tag)).or_default().insert(deed.key);
        }
        for ((instance, tag), keys) in keys {
            assert_eq!(keys.len(), 1, "{instance}: {tag} was done under several keys: {keys:?}");
        }
    }

    fn audit_order(&self, key: &InstanceKey, plan: &Value) {
        let reader = self.runtime.reader(key).expect("this process owns every slot");
        let instance = reader.instance(key).expect("the store can be read");
        let instance = instance.unwrap_or_else(|| panic!("{key} was lost"));
        let (status, deeds) = order_end(plan);
        let history = reader.history(key, 0, usize::MAX).expect("the store can be read");
        let told = || format!("{key}, plan {plan}, history {:#?}", notes(&history));
        assert_eq!(instance.status, status, "the end of {}", told());
        assert_eq!(self.world.done_for(key), deeds, "what was done for {}", told());
        let versions: Vec<u64> = history.iter().map(|record| record.version).collect();
        assert!(versions.iter().copied().eq(1..=instance.version), "versions {versions:?} of {}", told());
        assert!(instance.timers.is_empty(), "timers are left of {}", told());
    }

    fn audit_leftovers(&self) {
        for reader in self.runtime.readers() {
            for table in ["outbox", "schedule", "held", "deadletter"] {
                let rows = reader.rows(table, None, 10).expect("the store can be read");
                assert!(rows.is_empty(), "left in {table}: {rows:#?}");
            }
        }
    }

    async fn audit_facts(&self, orders: &[Order]) {
        let facts = self.facts().await;
        for (key, plan) in orders {
            let expected = match order_end(plan).0 {
                Status::Completed => vec!["OrderCompleted"],
                Status::Failed => vec!["OrderFailed"],
                Status::Stuck | Status::Cancelled | Status::Running | Status::Compensating => vec![],
            };
            let found: Vec<&str> = facts
                .iter()
                .filter(|(_, of, _)| of == key.correlation.as_str())
                .map(|(_, _, kind)| kind.as_str())
                .collect();
            assert_eq!(found, expected, "the facts about {key}, plan {plan}");
        }
    }

    /// The facts on the bus, each event once: its id, its correlation id and its type.
    ///
    /// # Panics
    /// When the bus cannot be read.
    pub async fn facts(&self) -> Vec<(EventId, String, EventType)> {
        let end = EventType::new("AuditEnd").expect("a short word");
        let id = EventId::new(format!("audit:{}", self.embedded().last_sequence().await.unwrap_or(0)));
        let marker = event(&order_key(&tenant(), 0), orlog_model::Timestamp::from_millis(0));
        let id = id.expect("a short word");
        let marker = orlog_model::Event { id: id.clone(), kind: end.clone(), ..marker };
        let filters = [Kind::WorkflowEvent, Kind::Aggregate].into_iter();
        let subscription = Subscription {
            name: id.to_string(),
            filters: filters.flat_map(|kind| subject::filters(None, kind, None)).collect(),
            part: None,
            after: Some(orlog_model::StreamPosition::behind(self.embedded().stream_id(), 0)),
            max_in_flight: usize::MAX,
        };
        self.publish(&marker).await;
        let mut consumer = self.embedded().subscribe(subscription).await.expect("the bus can be read");
        let mut facts = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            for delivery in consumer.next(1024).await.expect("the bus can be read") {
                let event =
                    codec::decode(&delivery.message, delivery.published_at).expect("only events are here");
                if event.id == id {
                    return facts;
                }
                let is_fact = delivery.message.subject.contains("workflow_event");
                if is_fact && seen.insert(event.id.clone()) {
                    facts.push((event.id, event.subject.unwrap_or_default(), event.kind));
                }
            }
        }
    }
}

/// What happened, in a few words each.
#[must_use]
pub fn notes(history: &[Record]) -> Vec<String> {
    history
        .iter()
        .map(|record| format!("{} {} -> {}: {}", record.version, record.label, record.status, record.note))
        .collect()
}

/// The last status of every instance, for comparing one run with another.
///
/// # Panics
/// When a store cannot be read.
#[must_use]
pub fn statuses(rig: &Rig, keys: &[InstanceKey]) -> Vec<(String, Option<Status>)> {
    let status = |key: &InstanceKey| {
        let reader: Reader = rig.runtime.reader(key).expect("this process owns every slot");
        reader.instance(key).expect("the store can be read").map(|instance| instance.status)
    };
    keys.iter().map(|key| (key.correlation.to_string(), status(key))).collect()
}
