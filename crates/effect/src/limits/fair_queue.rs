//! Whose turn it is when many tenants want the same places.
//!
//! Deficit round robin (M. Shreedhar, G. Varghese, 1996) with a cost of one: each tenant in turn gets as many places as its
//! weight says, so a tenant with ten thousand items does not make one with a single item wait. Plain data: the places
//! themselves are given out by [`crate::limits::concurrency`].

use std::collections::{BTreeMap, VecDeque};

use orlog_model::TenantId;

/// Those who wait, by tenant.
#[derive(Debug)]
pub(crate) struct Fair<W> {
    queues: BTreeMap<TenantId, Queue<W>>,
    round: VecDeque<TenantId>,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: VecDeque<W>,
    /// What is left of the tenant's turn; 0 before it begins.
    turn: u32,
}

impl<W> Default for Fair<W> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), round: VecDeque::new() }
    }
}

impl<W> Fair<W> {
    pub(crate) fn is_empty(&self) -> bool {
        self.round.is_empty()
    }

    pub(crate) fn push(&mut self, tenant: &TenantId, waiter: W) {
        if let Some(queue) = self.queues.get_mut(tenant) {
            queue.waiting.push_back(waiter);
            return;
        }
        self.queues.insert(tenant.clone(), Queue { waiting: VecDeque::from([waiter]), turn: 0 });
        self.round.push_back(tenant.clone());
    }

    /// The next one of a tenant that `may` have a place; a tenant that may not loses the rest of its turn.
    pub(crate) fn pop(
        &mut self,
        weight: impl Fn(&TenantId) -> u32,
        may: impl Fn(&TenantId) -> bool,
    ) -> Option<(TenantId, W)> {
        for _ in 0..self.round.len() {
            let tenant = self.round.front()?.clone();
            let queue = self.queues.get_mut(&tenant).expect("who is in the round has a queue");
            if !may(&tenant) {
                queue.turn = 0;
                self.round.rotate_left(1);
                continue;
            }
            if queue.turn == 0 {
                queue.turn = weight(&tenant).max(1);
            }
            queue.turn -= 1;
            let waiter = queue.waiting.pop_front().expect("an empty queue leaves the round");
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

    fn order(fair: &mut Fair<u32>, count: usize, heavy: u32, barred: &str) -> String {
        let weight = |t: &TenantId| if t.as_str() == "a" { heavy } else { 1 };
        let popped = (0..count).map_while(|_| fair.pop(weight, |t| t.as_str() != barred));
        popped.map(|(tenant, _)| tenant.to_string()).collect()
    }

    fn three() -> Fair<u32> {
        let mut fair = Fair::default();
        for (name, count) in [("a", 6), ("b", 2), ("c", 3)] {
            (0..count).for_each(|n| fair.push(&tenant(name), n));
        }
        fair
    }

    #[test]
    fn tenants_take_turns_however_long_their_queues_are() {
        assert_eq!(order(&mut three(), 11, 1, ""), "abcabcacaaa");
    }

    #[test]
    fn a_weight_makes_a_turn_longer() {
        assert_eq!(order(&mut three(), 11, 3, ""), "aaabcaaabcc");
    }

    #[test]
    fn who_may_not_is_passed_over_and_stays() {
        let mut fair = three();
        assert_eq!(order(&mut fair, 11, 1, "a"), "bcbcc");
        assert!(!fair.is_empty());
        assert_eq!(order(&mut fair, 11, 1, ""), "aaaaaa");
        assert!(fair.is_empty());
    }

    #[test]
    fn within_a_tenant_who_came_first_goes_first() {
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
