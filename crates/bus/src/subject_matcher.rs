//! Whose message it is, told by the subject alone: so that of all the shards of a process only one decodes it.

use orlog_model::Slot;

use crate::subject::{self, Filter};
use crate::{Error, Part, Subscription, workflow};

impl Part {
    /// Whether a message under this subject is for this part.
    #[must_use]
    pub fn takes(&self, subject: &str) -> bool {
        self.range.contains(&self.slot_of(subject).0)
    }

    fn slot_of(&self, subject: &str) -> Slot {
        let tenant = subject::tenant_of(subject).unwrap_or_default();
        if self.slots.spreads(&tenant)
            && workflow::is_addressed(subject)
            && let Ok(key) = workflow::address(subject)
        {
            return self.slots.of(&key);
        }
        self.slots.home(&tenant)
    }
}

/// What a subscription wants.
#[derive(Clone, Debug)]
pub(crate) struct Interest {
    filters: Vec<Filter>,
    part: Option<Part>,
}

impl Interest {
    /// # Errors
    /// When a filter is none.
    pub(crate) fn of(subscription: &Subscription) -> Result<Self, Error> {
        Ok(Self { part: subscription.part.clone(), ..Self::in_subjects(&subscription.filters)? })
    }

    /// # Errors
    /// When a filter is none.
    pub(crate) fn in_subjects(filters: &[String]) -> Result<Self, Error> {
        let filters = filters.iter().map(|f| Filter::parse(f)).collect::<Result<_, _>>()?;
        Ok(Self { filters, part: None })
    }

    /// Whether a message under this subject is wanted.
    pub(crate) fn matches(&self, subject: &str) -> bool {
        self.filters.iter().any(|filter| filter.matches(subject))
            && self.part.as_ref().is_none_or(|part| part.takes(subject))
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, InstanceKey, SLOTS, SagaName, Slots, TenantId};

    use super::*;

    fn part() -> Part {
        Part { slots: Slots::spreading([TenantId::new("big").unwrap()]), range: 0..SLOTS }
    }

    #[track_caller]
    fn check(subject: &str, expected: Slot) {
        assert_eq!(part().slot_of(subject), expected, "{subject}");
        let at = expected.0;
        for (range, takes) in [(at..at + 1, true), (0..at, false), (at + 1..SLOTS, false)] {
            assert_eq!(Part { range, ..part() }.takes(subject), takes, "{subject}");
        }
    }

    #[test]
    fn a_message_lies_where_its_tenant_does() {
        let home = |tenant: &str| part().slots.home(&TenantId::new(tenant).unwrap());
        check("tenant.acme.aggregate.order.o-1", home("acme"));
        check("tenant.acme.workflow.order.o-1", home("acme"));
        check("workflow_event.order.o-1", home(""));
        check("tenant.%C3%A4%2A.aggregate.order.o-1", home("ä*"));
        check("tenant.%00.aggregate.order.o-1", home(""));
    }

    #[test]
    fn a_message_to_an_instance_of_a_spread_tenant_lies_where_the_instance_does() {
        let slots = part().slots;
        let tenant = TenantId::new("big").unwrap();
        let key = |correlation: &str| InstanceKey {
            tenant: tenant.clone(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        };
        check("tenant.big.workflow.order.o-1", slots.of(&key("o-1")));
        check("tenant.big.workflow.order.a%20b", slots.of(&key("a b")));
        check("tenant.big.workflow.order.o-1.x", slots.home(&tenant));
        check("tenant.big.aggregate.order.o-1", slots.home(&tenant));
    }
}
