//! Matches messages by subject alone, so that only one shard of a process decodes a message.

use orlog_model::Slot;

use crate::subject::{self, Filter};
use crate::{Error, Partition, Subscription, workflow};

impl Partition {
    /// Returns whether a message under this subject belongs to this partition.
    #[must_use]
    pub fn contains(&self, subject: &str) -> bool {
        self.range.contains(&self.slot_of(subject).0)
    }

    fn slot_of(&self, subject: &str) -> Slot {
        // Each subject needs one slot, also an invalid one: otherwise no shard would report its
        // message.
        let tenant = subject::tenant_of(subject).unwrap_or_default();
        if self.slots.is_key_sharded(&tenant)
            && workflow::is_instance_subject(subject)
            // A malformed instance falls back to the home slot, whose shard stores a dead letter.
            && let Ok(key) = workflow::instance_of(subject)
        {
            return self.slots.slot_of(&key);
        }
        self.slots.home_slot(&tenant)
    }
}

/// Filter of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct SubjectMatcher {
    filters: Vec<Filter>,
    partition: Option<Partition>,
}

impl SubjectMatcher {
    /// Creates the matcher of a subscription.
    ///
    /// # Errors
    /// If a filter is not a valid subject filter.
    pub(crate) fn for_subscription(subscription: &Subscription) -> Result<Self, Error> {
        Ok(Self {
            partition: subscription.partition.clone(),
            ..Self::for_filters(&subscription.filters)?
        })
    }

    /// Creates the matcher of subject filters.
    ///
    /// # Errors
    /// If a filter is not a valid subject filter.
    pub(crate) fn for_filters(filters: &[String]) -> Result<Self, Error> {
        let filters = filters
            .iter()
            .map(|f| Filter::parse(f))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            filters,
            partition: None,
        })
    }

    /// Returns whether a message under this subject matches.
    pub(crate) fn matches(&self, subject: &str) -> bool {
        self.filters.iter().any(|filter| filter.matches(subject))
            && self
                .partition
                .as_ref()
                .is_none_or(|partition| partition.contains(subject))
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, InstanceKey, SLOTS, SagaName, SlotAssigner, TenantId};

    use super::*;

    fn partition() -> Partition {
        Partition {
            slots: SlotAssigner::with_key_sharded([TenantId::new("big").unwrap()]),
            range: 0..SLOTS,
        }
    }

    #[track_caller]
    fn check(subject: &str, expected: Slot) {
        assert_eq!(partition().slot_of(subject), expected, "{subject}");
        let at = expected.0;
        for (range, takes) in [(at..at + 1, true), (0..at, false), (at + 1..SLOTS, false)] {
            assert_eq!(
                Partition {
                    range,
                    ..partition()
                }
                .contains(subject),
                takes,
                "{subject}"
            );
        }
    }

    #[test]
    fn message_maps_to_its_tenant_slot() {
        let home = |tenant: &str| partition().slots.home_slot(&TenantId::new(tenant).unwrap());
        check("tenant.acme.aggregate.order.o-1", home("acme"));
        check("tenant.acme.workflow.order.o-1", home("acme"));
        check("workflow_event.order.o-1", home(""));
        check("tenant.%C3%A4%2A.aggregate.order.o-1", home("ä*"));
        check("tenant.%00.aggregate.order.o-1", home(""));
    }

    #[test]
    fn message_of_a_key_sharded_tenant_maps_to_the_instance_slot() {
        let slots = partition().slots;
        let tenant = TenantId::new("big").unwrap();
        let key = |correlation: &str| InstanceKey {
            tenant: tenant.clone(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        };
        check("tenant.big.workflow.order.o-1", slots.slot_of(&key("o-1")));
        check(
            "tenant.big.workflow.order.a%20b",
            slots.slot_of(&key("a b")),
        );
        check("tenant.big.workflow.order.o-1.x", slots.home_slot(&tenant));
        check("tenant.big.aggregate.order.o-1", slots.home_slot(&tenant));
    }
}
