//! Fair queue of the tenants that share the permits of an upstream.
//!
//! Deficit round robin (M. Shreedhar, G. Varghese, 1996) with a cost of one: each tenant in turn
//! receives as many permits as its weight. A tenant with ten thousand items therefore does not
//! block one with a single item. Within the share of a tenant, the priorities take turns. The queue
//! is plain data; [`crate::limits::concurrency`] grants the permits.

use std::collections::{BTreeMap, VecDeque};

use orlog_model::{Priority, PriorityQueue, TenantId};

#[derive(Debug)]
pub(crate) struct FairQueue<W> {
    queues: BTreeMap<TenantId, TenantQueue<W>>,
    round: VecDeque<TenantId>,
}

#[derive(Debug)]
struct TenantQueue<W> {
    waiting: PriorityQueue<W>,
    /// Remaining permits of the tenant's turn; 0 before it starts.
    turn: u32,
}

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            round: VecDeque::new(),
        }
    }
}

impl<W> FairQueue<W> {
    pub(crate) fn is_empty(&self) -> bool {
        self.round.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting.len()).sum()
    }

    pub(crate) fn push(&mut self, tenant: &TenantId, priority: Priority, waiter: W) {
        if let Some(queue) = self.queues.get_mut(tenant) {
            queue.waiting.push(priority, waiter);
            return;
        }

        let mut waiting = PriorityQueue::default();
        waiting.push(priority, waiter);
        self.queues
            .insert(tenant.clone(), TenantQueue { waiting, turn: 0 });

        // A new tenant is the last one of the round.
        self.round.push_back(tenant.clone());
    }

    /// Returns the next request of a tenant for which `may` is true; any other tenant loses the
    /// rest of its turn.
    pub(crate) fn pop(
        &mut self,
        weight: impl Fn(&TenantId) -> u32,
        may: impl Fn(&TenantId) -> bool,
    ) -> Option<(TenantId, W)> {
        // One round at most: if all tenants are at their limits, none is served.
        for _ in 0..self.round.len() {
            let tenant = self.round.front()?.clone();
            let queue = self
                .queues
                .get_mut(&tenant)
                .expect("a tenant in the round has a queue");

            // A tenant at its limit must not block the others.
            if !may(&tenant) {
                queue.turn = 0;
                self.round.rotate_left(1);
                continue;
            }

            // A turn of 0 has not started, also after `may` ended the last one.
            if queue.turn == 0 {
                queue.turn = weight(&tenant).max(1);
            }
            queue.turn -= 1;

            let waiter = queue
                .waiting
                .pop()
                .expect("an empty queue leaves the round");

            if queue.waiting.is_empty() {
                self.queues.remove(&tenant);
                self.round.pop_front();
            } else if queue.turn == 0 {
                self.round.rotate_left(1);
            }
            return Some((tenant, waiter));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn order(fair: &mut FairQueue<u32>, count: usize, heavy: u32, barred: &str) -> String {
        let weight = |t: &TenantId| if t.as_str() == "a" { heavy } else { 1 };
        let popped = (0..count).map_while(|_| fair.pop(weight, |t| t.as_str() != barred));
        popped.map(|(tenant, _)| tenant.to_string()).collect()
    }

    fn three() -> FairQueue<u32> {
        let mut fair = FairQueue::default();
        for (name, count) in [("a", 6), ("b", 2), ("c", 3)] {
            (0..count).for_each(|n| fair.push(&tenant(name), Priority::Normal, n));
        }
        fair
    }

    #[test]
    fn tenants_alternate_regardless_of_queue_length() {
        assert_eq!(order(&mut three(), 11, 1, ""), "abcabcacaaa");
    }

    #[test]
    fn weight_extends_a_turn() {
        assert_eq!(order(&mut three(), 11, 3, ""), "aaabcaaabcc");
    }

    #[test]
    fn blocked_tenant_is_skipped_and_stays_queued() {
        let mut fair = three();
        assert_eq!(order(&mut fair, 11, 1, "a"), "bcbcc");
        assert!(!fair.is_empty());
        assert_eq!(order(&mut fair, 11, 1, ""), "aaaaaa");
        assert!(fair.is_empty());
    }

    #[test]
    fn priorities_order_the_requests_of_a_tenant_and_change_no_share() {
        let mut fair = three();
        fair.push(&tenant("a"), Priority::High, 100);
        fair.push(&tenant("b"), Priority::Low, 100);
        let popped: Vec<_> = std::iter::from_fn(|| fair.pop(|_| 1, |_| true)).collect();
        let tenants: String = popped
            .iter()
            .map(|(tenant, _)| tenant.to_string())
            .collect();
        assert_eq!(tenants, "abcabcabcaaaa");
        let of = |name| {
            popped
                .iter()
                .filter(move |(of, _)| *of == tenant(name))
                .map(|(_, n)| *n)
        };
        assert_eq!(of("a").next(), Some(100), "the high one is first");
        assert_eq!(of("b").next_back(), Some(100), "the low one is last");
    }

    #[test]
    fn requests_of_one_tenant_are_fifo() {
        let mut fair = three();
        let mut last = None;
        while let Some((tenant, n)) = fair.pop(|_| 1, |_| true) {
            if tenant.as_str() == "a" {
                assert!(last < Some(n), "{n} after {last:?}");
                last = Some(n);
            }
        }
    }
}
