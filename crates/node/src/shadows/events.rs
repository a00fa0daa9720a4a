//! Events that only the candidate consumes: read from the bus, because no live instance received
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlog_actors::EventSource;
use orlog_bus::{Delivery, Error, ScanStart, codec, subject, workflow};
use orlog_model::{Event, EventType, InstanceKey, TenantId, Timestamp};
use orlog_program::Program;

/// Maximum number of messages that one page reads.
const MAX_MESSAGES: usize = 50_000;

/// Additional events of the instances of a page.
#[derive(Default)]
pub(crate) struct AdditionalEvents {
    pub(super) by_instance: BTreeMap<InstanceKey, Vec<(Timestamp, Event)>>,
    /// Time until which all events are known; `None`: all.
    pub(super) known_until: Option<Timestamp>,
}

/// Returns the event types that the candidate consumes and the live definition does not.
pub(crate) fn additional_types(live: &dyn Program, candidate: &dyn Program) -> BTreeSet<EventType> {
    let types = |program: &dyn Program| -> BTreeSet<EventType> {
        program
            .manifest()
            .subscriptions
            .iter()
            .map(|one| one.kind.clone())
            .collect()
    };
    types(candidate).difference(&types(live)).cloned().collect()
}

/// Reads the events of these types of the instances, each within the times of its instance.
///
/// # Errors
/// If a stream cannot be read.
pub(crate) async fn additional_events(
    sources: &[EventSource],
    tenant: &TenantId,
    types: &BTreeSet<EventType>,
    candidate: &dyn Program,
    instances: &BTreeMap<InstanceKey, (Timestamp, Timestamp)>,
) -> Result<AdditionalEvents, Error> {
    read(sources, tenant, types, candidate, instances, MAX_MESSAGES).await
}

async fn read(
    sources: &[EventSource],
    tenant: &TenantId,
    types: &BTreeSet<EventType>,
    candidate: &dyn Program,
    instances: &BTreeMap<InstanceKey, (Timestamp, Timestamp)>,
    max_messages: usize,
) -> Result<AdditionalEvents, Error> {
    let mut found = AdditionalEvents::default();
    // Earlier events belong to none of the instances.
    let Some(from) = instances.values().map(|(start, _)| *start).min() else {
        return Ok(found);
    };

    let mut read = 0;
    for source in sources.iter().filter(|source| !source.has_dead_letters()) {
        let kinds = source.kinds.iter().copied();
        let filters = kinds
            .flat_map(|kind| subject::filters(Some(tenant), kind, None))
            .collect();
        let mut scan = source.bus.scan(filters, ScanStart::Time(from)).await?;

        loop {
            let deliveries = scan.next().await?;
            let Some(first) = deliveries.first() else {
                break;
            };
            read += deliveries.len();

            if read > max_messages {
                // None of these deliveries is processed, so the first one is the first unknown one.
                // Messages of the same millisecond may be among them.
                let until = first.published_at.saturating_sub(Duration::from_millis(1));
                found.known_until = Some(found.known_until.map_or(until, |other| other.min(until)));
                break;
            }

            for delivery in &deliveries {
                let Some((at, event)) = event(source, delivery, types) else {
                    continue;
                };
                let Ok(correlation) = candidate.correlate(&event) else {
                    continue;
                };

                let saga = candidate.definition_ref().saga.clone();
                let key = InstanceKey {
                    tenant: tenant.clone(),
                    saga,
                    correlation,
                };

                if instances
                    .get(&key)
                    .is_some_and(|(start, end)| (start..=end).contains(&&at))
                {
                    found.by_instance.entry(key).or_default().push((at, event));
                }
            }
        }
    }

    for events in found.by_instance.values_mut() {
        events.sort_by_key(|(at, _)| *at);
    }

    Ok(found)
}

/// Returns the event of a message if it has one of the types, and if its context accepts it. A
/// signal has an address and is no event of a type.
#[must_use]
pub(crate) fn event(
    source: &EventSource,
    delivery: &Delivery,
    types: &BTreeSet<EventType>,
) -> Option<(Timestamp, Event)> {
    let message = &delivery.message;
    let at = delivery.published_at;

    if delivery.defect.is_some() || workflow::is_instance_subject(&message.subject) {
        return None;
    }

    let mut event = codec::decode(message, at)
        .ok()
        .filter(|event| types.contains(&event.kind))?;
    source.check(delivery, &mut event).ok()?;

    Some((at, event))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orlog_bus::embedded::{Embedded, Options};
    use orlog_bus::{Bus, Message};
    use orlog_model::Clock as _;
    use orlog_testkit::SimClock;
    use orlog_testkit::sagas::{order, order_key, order_placed};
    use serde_json::json;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    #[tokio::test]
    async fn events_are_known_until_the_first_message_of_a_batch_that_is_not_processed() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SimClock::new(START);
        let options = Options::default();
        let bus = Embedded::open(
            dir.path().join("bus"),
            &options,
            Arc::<SimClock>::clone(&clock),
        );
        let bus: Arc<dyn Bus> = Arc::new(bus.unwrap());
        let sources = [EventSource::embedded(Arc::clone(&bus))];
        let tenant = TenantId::new("acme").unwrap();
        let candidate = order(Duration::from_hours(1));
        let types = BTreeSet::from([EventType::new("OrderPlaced").unwrap()]);

        let mut instances = BTreeMap::new();
        for number in 0..4 {
            clock.advance(Duration::from_secs(1));
            let key = order_key(&tenant, number);
            let event = order_placed(&key, &json!({}), clock.now());
            let message: Message = codec::encode(&event, codec::aggregate_subject(&event));
            bus.publish(vec![Arc::new(message)]).await.unwrap();
            instances.insert(key, (START, START.saturating_add(Duration::from_mins(1))));
        }

        let read = async |max_messages| {
            let candidate = candidate.as_ref();
            let found = read(
                &sources,
                &tenant,
                &types,
                candidate,
                &instances,
                max_messages,
            );
            found.await.unwrap()
        };
        let all = read(4).await;
        assert_eq!((all.known_until, all.by_instance.len()), (None, 4));

        let first = START.saturating_add(Duration::from_secs(1));
        let limited = read(3).await;
        let processed: Vec<_> = limited.by_instance.values().flatten().collect();
        let until = limited.known_until.unwrap();
        assert!(
            processed.is_empty() && until < first || processed.iter().all(|(at, _)| *at <= until),
            "{until} {processed:?}"
        );
        assert!(until < first.saturating_add(Duration::from_secs(processed.len() as u64)));
    }
}
