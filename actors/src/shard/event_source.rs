//! Where a shard's inputs come from: the streams it reads, and what it wants of each.

use std::ops::Range;
use std::sync::Arc;

use orlog_bus::subject::{self, Kind};
use orlog_bus::{Bus, Part, Subscription};
use orlog_model::{Slots, StreamPosition, TenantId};

/// More filters than this cost the servers more than what they leave out.
const MOST_FILTERS: usize = 1000;

/// A stream that events and words to instances come from.
#[derive(Clone)]
pub struct EventSource {
    /// Its name, under which checkpoints are kept.
    pub name: String,
    /// It.
    pub bus: Arc<dyn Bus>,
    /// What of it is read.
    pub kinds: Vec<Kind>,
    /// `None`: the shards of this process read everything between them, and each takes its own. `Some`: there are other
    /// processes, and a message is delivered to the one shard it is for; of a tenant that is spread, that is the one that
    /// sends it on to the instances.
    pub sharing: Option<Sharing>,
}

/// How a stream is shared between shards.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    /// All tenants there are; `None`: any.
    pub tenants: Option<Vec<TenantId>>,
}

impl EventSource {
    /// The one stream of a process that is alone.
    #[must_use]
    pub fn embedded(bus: Arc<dyn Bus>) -> Self {
        let kinds = vec![Kind::Aggregate, Kind::WorkflowEvent, Kind::Workflow];
        Self { name: "events".to_owned(), bus, kinds, sharing: None }
    }

    /// What a shard subscribes to.
    pub(crate) fn subscription(
        &self,
        name: &str,
        slots: &Slots,
        range: &Range<u16>,
        after: Option<StreamPosition>,
        max_in_flight: usize,
    ) -> Subscription {
        let part = self.sharing.is_some().then(|| Part { slots: slots.clone(), range: range.clone() });
        Subscription {
            name: name.to_owned(),
            filters: self.filters(slots, range),
            part,
            after,
            max_in_flight,
        }
    }

    /// Those of the tenants that may concern the shard, where they are known and not too many; else those of all.
    fn filters(&self, slots: &Slots, range: &Range<u16>) -> Vec<String> {
        let all = || self.kinds.iter().flat_map(|kind| subject::filters(None, *kind, None)).collect();
        let Some(tenants) = self.sharing.as_ref().and_then(|sharing| sharing.tenants.as_ref()) else {
            return all();
        };
        let mut filters = Vec::new();
        for kind in &self.kinds {
            let concerns = |tenant: &&TenantId| {
                range.contains(&slots.home(tenant).0) || *kind == Kind::Workflow && slots.spreads(tenant)
            };
            for tenant in tenants.iter().filter(concerns) {
                filters.extend(subject::filters(Some(tenant), *kind, None));
            }
        }
        if filters.is_empty() || filters.len() > MOST_FILTERS { all() } else { filters }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use async_trait::async_trait;
    use orlog_bus::{Consumer, Error, Message, Past, Receipt, Since};
    use orlog_model::SLOTS;
    use uuid::Uuid;

    use super::*;

    /// Nobody reads it here.
    struct Nothing(AtomicU64);

    #[async_trait]
    impl Bus for Nothing {
        fn stream_id(&self) -> Uuid {
            Uuid::nil()
        }

        async fn publish(&self, _: Vec<Message>) -> Result<Vec<Receipt>, Error> {
            Err(Error::Unavailable("a test".to_owned()))
        }

        async fn subscribe(&self, _: Subscription) -> Result<Box<dyn Consumer>, Error> {
            Err(Error::Unavailable("a test".to_owned()))
        }

        async fn read_past(&self, _: Vec<String>, _: Since) -> Result<Box<dyn Past>, Error> {
            Err(Error::Unavailable("a test".to_owned()))
        }

        async fn last_sequence(&self) -> Result<u64, Error> {
            Ok(self.0.load(std::sync::atomic::Ordering::Relaxed))
        }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn source(kind: Kind, tenants: Option<&[&str]>) -> EventSource {
        let tenants = tenants.map(|all| all.iter().map(|name| tenant(name)).collect());
        EventSource {
            name: "S".to_owned(),
            bus: Arc::new(Nothing(AtomicU64::new(0))),
            kinds: vec![kind],
            sharing: Some(Sharing { tenants }),
        }
    }

    #[test]
    fn a_shard_asks_for_the_tenants_that_may_concern_it() {
        let slots = Slots::spreading([tenant("big")]);
        let home = slots.home(&tenant("acme")).0;
        let here = home..home + 1;
        let elsewhere = if home == 0 { 1..2 } else { 0..home };
        let tenants = ["acme", "big"];
        let filters = |kind, range: &Range<u16>| source(kind, Some(&tenants)).filters(&slots, range);
        assert_eq!(filters(Kind::Aggregate, &here)[0], "tenant.acme.aggregate.>");
        assert!(filters(Kind::Workflow, &elsewhere).contains(&"tenant.big.workflow.>".to_owned()));
        let everybody = source(Kind::Aggregate, None).filters(&slots, &here);
        assert_eq!(everybody, ["tenant.*.aggregate.>", "aggregate.>"]);
        let many: Vec<String> = (0..=MOST_FILTERS).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(source(Kind::Aggregate, Some(&many)).filters(&slots, &(0..SLOTS)), everybody);
    }
}
