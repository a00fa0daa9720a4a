//! Consistency check at the end of a run: compares the runtime with the upstreams.

use std::collections::{BTreeMap, BTreeSet};

use orlog_bus::subject::{self, SubjectKind};
use orlog_bus::{Bus as _, MaxInFlight, Subscription, codec};
use orlog_model::{EventId, EventType, HistoryEntry, InstanceKey, Status};
use orlog_store::Reader;
use uuid::Uuid;

use crate::fake_upstreams::{FakeUpstreams, event};
use crate::runtime::{TestRuntime, tenant};
use crate::sagas::{PlannedOrder, expected_order_end, order_key};

impl TestRuntime {
    /// Checks every order against its plan: final status, executed actions and their order, history and the
    /// one final fact. Nothing may be left: no work, no timer, no buffered input, no dead letter.
    ///
    /// # Panics
    /// If something is lost, duplicated, out of order or left over; the message describes it.
    pub async fn assert_consistent(&self, orders: &[PlannedOrder]) {
        check_keys(&self.upstreams);
        for order in orders {
            let reader = self
                .runtime
                .reader(&order.0)
                .expect("this process owns every slot");
            check_order(&reader, &self.upstreams, order);
        }
        // A message is consumed when it is spilled. A duplicate is dropped when its instance applies it.
        let has_none = |runtime: &TestRuntime| {
            let rows = |reader: Reader| reader.inspect_rows("buffered_input", None, 1);
            runtime
                .runtime
                .readers()
                .into_iter()
                .all(|reader| rows(reader).is_ok_and(|rows| rows.is_empty()))
        };
        self.wait_until("no input is buffered or spilled", has_none)
            .await;
        self.runtime
            .readers()
            .for_each(|reader| check_leftovers(&reader));
        self.check_facts(orders).await;
    }

    async fn check_facts(&self, orders: &[PlannedOrder]) {
        let facts = self.facts().await;
        for (key, plan) in orders {
            let expected = match expected_order_end(plan).0 {
                Status::Completed => vec!["OrderCompleted"],
                Status::Failed => vec!["OrderFailed"],
                Status::Stuck | Status::Cancelled | Status::Running | Status::Compensating => {
                    vec![]
                }
            };
            let found: Vec<&str> = facts
                .iter()
                .filter(|(_, of, _)| of == key.correlation.as_str())
                .map(|(_, _, kind)| kind.as_str())
                .collect();
            assert_eq!(found, expected, "the facts about {key}, plan {plan}");
        }
    }

    /// Returns the facts on the bus, each event once: event id, correlation id and type.
    ///
    /// # Panics
    /// If the bus cannot be read.
    pub async fn facts(&self) -> Vec<(EventId, String, EventType)> {
        let end = EventType::new("ConsistencyCheckEnd").expect("a valid name");
        let id = EventId::new(format!(
            "consistency:{}",
            self.embedded().last_sequence().await.unwrap_or(0)
        ));
        let marker = event(
            &order_key(&tenant(), 0),
            orlog_model::Timestamp::from_millis(0),
        );
        let id = id.expect("a valid name");
        let marker = orlog_model::Event {
            id: id.clone(),
            kind: end.clone(),
            ..marker
        };
        let filters = [SubjectKind::WorkflowEvent, SubjectKind::Aggregate].into_iter();
        let subscription = Subscription {
            name: id.to_string(),
            filters: filters
                .flat_map(|kind| subject::filters(None, kind, None))
                .collect(),
            partition: None,
            start_after: Some(orlog_model::StreamPosition::after(
                self.embedded().stream_id(),
                0,
            )),
            max_in_flight: MaxInFlight::total(usize::MAX),
        };
        self.publish(&marker).await;
        let mut consumer = self
            .embedded()
            .subscribe(subscription)
            .await
            .expect("the bus can be read");
        let mut facts = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            for delivery in consumer.next(1024).await.expect("the bus can be read") {
                let event = codec::decode(&delivery.message, delivery.published_at)
                    .expect("the bus contains only events");
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

/// Checks that each action has one key and was not executed under two keys.
///
/// # Panics
/// If an action was executed under several keys.
pub fn check_keys(upstreams: &FakeUpstreams) {
    let mut keys: BTreeMap<(InstanceKey, String), BTreeSet<Uuid>> = BTreeMap::new();
    for action in upstreams.executed() {
        keys.entry((action.instance, action.tag))
            .or_default()
            .insert(action.key);
    }
    for ((instance, tag), keys) in keys {
        assert_eq!(
            keys.len(),
            1,
            "{instance}: {tag} was executed under several keys: {keys:?}"
        );
    }
}

/// Checks an order against its plan: final status, executed actions and their order, and history.
///
/// # Panics
/// If something is lost, duplicated or out of order; the message describes it.
pub fn check_order(reader: &Reader, upstreams: &FakeUpstreams, (key, plan): &PlannedOrder) {
    let instance = reader.instance(key).expect("the store can be read");
    let instance = instance.unwrap_or_else(|| panic!("{key} was lost"));
    let (status, actions) = expected_order_end(plan);
    let history = reader
        .history(key, 0, usize::MAX)
        .expect("the store can be read");
    let details = || format!("{key}, plan {plan}, history {:#?}", history_notes(&history));
    assert_eq!(instance.status, status, "the status of {}", details());
    assert_eq!(
        upstreams.executed_for(key),
        actions,
        "the executed actions of {}",
        details()
    );
    let versions: Vec<u64> = history.iter().map(|record| record.version).collect();
    assert!(
        versions.iter().copied().eq(1..=instance.version),
        "versions {versions:?} of {}",
        details()
    );
    assert!(
        instance.timers.is_empty(),
        "timers remain for {}",
        details()
    );
}

/// Checks that a store contains no work, timer, buffered input or dead letter.
///
/// # Panics
/// If something is left; the message contains the rows.
pub fn check_leftovers(reader: &Reader) {
    for table in ["outbox", "schedule", "buffered_input", "deadletter"] {
        let rows = reader
            .inspect_rows(table, None, 10)
            .expect("the store can be read");
        assert!(rows.is_empty(), "rows remain in {table}: {rows:#?}");
    }
}

/// Returns the notes of the history entries.
#[must_use]
pub fn history_notes(history: &[HistoryEntry]) -> Vec<String> {
    history
        .iter()
        .map(|record| {
            format!(
                "{} {} -> {}: {}",
                record.version, record.input_label, record.status, record.note
            )
        })
        .collect()
}

/// Returns the final status of every instance, to compare two runs.
///
/// # Panics
/// If a store cannot be read.
#[must_use]
pub fn final_statuses(
    runtime: &TestRuntime,
    keys: &[InstanceKey],
) -> Vec<(String, Option<Status>)> {
    let status = |key: &InstanceKey| {
        let reader: Reader = runtime
            .runtime
            .reader(key)
            .expect("this process owns every slot");
        reader
            .instance(key)
            .expect("the store can be read")
            .map(|instance| instance.status)
    };
    keys.iter()
        .map(|key| (key.correlation.to_string(), status(key)))
        .collect()
}
