//! Events that only the candidate consumes: read from the bus, because no live instance received
//! them.

use std::collections::{BTreeMap, BTreeSet};

use orlog_actors::EventSource;
use orlog_bus::{Delivery, Error, ScanStart, codec, subject, workflow};
use orlog_model::{Event, EventType, InstanceKey, TenantId, Timestamp};
use orlog_program::Program;

/// Maximum number of messages that one page reads.
const MAX_MESSAGES: usize = 50_000;

/// Additional events of the instances of a page.
#[derive(Default)]
pub struct AdditionalEvents {
    pub(super) by_instance: BTreeMap<InstanceKey, Vec<(Timestamp, Event)>>,
    /// Time until which all events are known; `None`: all.
    pub(super) known_until: Option<Timestamp>,
}

/// Returns the event types that the candidate consumes and the live definition does not.
pub fn additional_types(live: &dyn Program, candidate: &dyn Program) -> BTreeSet<EventType> {
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
pub async fn additional_events(
    sources: &[EventSource],
    tenant: &TenantId,
    types: &BTreeSet<EventType>,
    candidate: &dyn Program,
    instances: &BTreeMap<InstanceKey, (Timestamp, Timestamp)>,
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
            let Some(last) = deliveries.last() else { break };
            read += deliveries.len();

            if read > MAX_MESSAGES {
                let until = last.published_at;
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
pub fn event(
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
