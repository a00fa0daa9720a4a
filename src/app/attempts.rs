//! What was tried for an instance and did not go well at once: kept in memory for whoever looks at it.
//!
//! Bounded: the last instances in trouble, the last attempts of each. An attempt that goes well is kept only where one went
//! wrong before, so that what runs smoothly costs nothing but a look.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlog_effect::limits::breaker::State;
use orlog_effect::{Attempted, Ending, Observer};
use orlog_model::{Clock, InstanceKey, Timestamp, TraceParent, WorkItem};
use uuid::Uuid;

/// Instances whose attempts are kept.
const INSTANCES: usize = 10_000;
/// Attempts that are kept of each.
const OF_EACH: usize = 50;

/// An attempt that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// For which work item.
    pub work: Uuid,
    /// What people call it.
    pub label: String,
    /// Whom it asked.
    pub upstream: String,
    /// What it came to.
    pub ending: Ending,
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
}

/// The last attempts of those in trouble.
pub struct Attempts {
    next: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    of: HashMap<InstanceKey, VecDeque<Made>>,
    /// Oldest trouble first.
    order: VecDeque<InstanceKey>,
}

impl Attempts {
    /// Keeps what it hears, and passes it on.
    #[must_use]
    pub fn heard_by(next: Arc<dyn Observer>, clock: Arc<dyn Clock>) -> Self {
        Self { next, clock, kept: Mutex::default() }
    }

    /// The last attempts of an instance in trouble, oldest first.
    #[must_use]
    pub fn of(&self, key: &InstanceKey) -> Vec<Made> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.of.get(key).map(|made| made.iter().cloned().collect()).unwrap_or_default()
    }
}

impl Kept {
    fn note(&mut self, key: &InstanceKey, went_well: bool, made: impl FnOnce() -> Made) {
        if let Some(before) = self.of.get_mut(key) {
            if before.len() == OF_EACH {
                before.pop_front();
            }
            before.push_back(made());
        } else if !went_well {
            if self.order.len() == INSTANCES
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
            }
            self.order.push_back(key.clone());
            self.of.insert(key.clone(), VecDeque::from([made()]));
        }
    }
}

impl Observer for Attempts {
    fn attempting(&self, item: &WorkItem) -> Option<TraceParent> {
        self.next.attempting(item)
    }

    fn attempted(&self, attempted: &Attempted<'_>) {
        let made = || Made {
            work: attempted.item.id,
            label: attempted.item.work.label(),
            upstream: attempted.upstream.to_owned(),
            ending: attempted.ending,
            at: self.clock.now(),
            took: attempted.took,
        };
        let went_well = attempted.ending == Ending::Done;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.note(&attempted.item.instance, went_well, made);
        drop(kept);
        self.next.attempted(attempted);
    }

    fn breaker_changed(&self, upstream: &str, state: State) {
        self.next.breaker_changed(upstream, state);
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, SagaName, TenantId};

    use super::*;

    fn key(number: usize) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(format!("o-{number}")).unwrap(),
        }
    }

    fn made(millis: i64) -> Made {
        Made {
            work: Uuid::nil(),
            label: "payments.charge".to_owned(),
            upstream: "payments".to_owned(),
            ending: Ending::Down,
            at: Timestamp::from_millis(millis),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn the_last_attempts_of_the_last_in_trouble_are_kept() {
        let mut kept = Kept::default();
        kept.note(&key(0), true, || made(0));
        assert!(kept.of.is_empty(), "what goes well at once is not kept");
        for n in 0..60 {
            kept.note(&key(1), n == 59, || made(n));
        }
        let of_one = &kept.of[&key(1)];
        assert_eq!((of_one.len(), of_one[0].at.millis(), of_one[49].at.millis()), (50, 10, 59));
        for number in 2..INSTANCES + 2 {
            kept.note(&key(number), false, || made(1));
        }
        assert_eq!((kept.of.len(), kept.order.len()), (INSTANCES, INSTANCES));
        assert!(!kept.of.contains_key(&key(1)));
    }
}
