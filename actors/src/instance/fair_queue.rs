//! Queue that gives each tenant an equal share of the time of its consumers.
//!
//! Deficit round robin (M. Shreedhar, G. Varghese, 1996) with times that are known only afterwards:
//! an item costs one quantum when it is taken, and the difference to its time when it is done. A
//! tenant whose item took longer skips turns until the others have had the same time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use orlog_model::TenantId;

/// Time of a tenant in each round, in microseconds.
const QUANTUM_MICROS: i64 = 10_000;

/// Queue of items by tenant.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    shares: BTreeMap<TenantId, Share<T>>,
    /// Tenants with a share; the first one has its turn.
    turns: VecDeque<TenantId>,
    waiting: usize,
    running: usize,
}

#[derive(Debug)]
struct Share<T> {
    items: VecDeque<T>,
    running: usize,
    /// Time that the tenant can use in this round; negative after an item that took longer.
    credit_micros: i64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            shares: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            running: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Appends an item of a tenant.
    pub(crate) fn push(&mut self, tenant: &TenantId, item: T) {
        self.waiting += 1;
        if let Some(share) = self.shares.get_mut(tenant) {
            share.items.push_back(item);
            return;
        }

        let share = Share {
            items: VecDeque::from([item]),
            running: 0,
            credit_micros: QUANTUM_MICROS,
        };
        self.shares.insert(tenant.clone(), share);
        self.turns.push_back(tenant.clone());
    }

    /// Takes the next item. The caller reports its time with [`FairQueue::finish`].
    pub(crate) fn pop(&mut self) -> Option<(TenantId, T)> {
        if self.waiting == 0 {
            return None;
        }
        loop {
            // One pass over all tenants; then their time is renewed.
            for _ in 0..self.turns.len() {
                let taken = self.pop_of_first();
                self.turns.rotate_left(1);
                if taken.is_some() {
                    return taken;
                }
            }
            self.start_round();
        }
    }

    /// Takes an item of the tenant that has its turn, if it has one and time is left.
    fn pop_of_first(&mut self) -> Option<(TenantId, T)> {
        let tenant = self.turns.front()?;
        let share = self.shares.get_mut(tenant)?;
        if share.credit_micros <= 0 {
            return None;
        }

        let item = share.items.pop_front()?;

        // The real time is known only afterwards: the item costs one quantum now.
        share.credit_micros -= QUANTUM_MICROS;
        share.running += 1;
        self.waiting -= 1;
        self.running += 1;
        Some((tenant.clone(), item))
    }

    /// Starts the next round in which a tenant with items has time, and removes the shares without
    /// items and debts.
    fn start_round(&mut self) {
        // As many rounds at once as the smallest debt requires, so that a long item does not cost
        // one pass for each of its quanta.
        let with_items = self.shares.values().filter(|share| !share.items.is_empty());
        let debt = with_items.map(|share| -share.credit_micros).min();
        let rounds = debt.unwrap_or_default().max(0) / QUANTUM_MICROS + 1;

        for share in self.shares.values_mut() {
            let credit = share.credit_micros + rounds * QUANTUM_MICROS;
            share.credit_micros = credit.min(QUANTUM_MICROS);
        }

        // A debt outlives the items: a tenant must not get rid of it by sending none for a moment.
        self.shares.retain(|_, share| {
            !share.items.is_empty() || share.running > 0 || share.credit_micros < QUANTUM_MICROS
        });
        self.turns.retain(|tenant| self.shares.contains_key(tenant));
    }

    /// Records the time of an item that was taken.
    pub(crate) fn finish(&mut self, tenant: &TenantId, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 2);
        if let Some(share) = self.shares.get_mut(tenant) {
            share.running -= 1;
            share.credit_micros += QUANTUM_MICROS - micros;
        }

        self.running -= 1;
        // Without competitors, no tenant has had more than its share.
        if self.waiting == 0 && self.running == 0 {
            self.shares.clear();
            self.turns.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    /// Queue with this number of items of each tenant.
    fn queue(items: &[(&str, usize)]) -> FairQueue<()> {
        let mut queue = FairQueue::default();
        for (name, count) in items {
            (0..*count).for_each(|_| queue.push(&tenant(name), ()));
        }
        queue
    }

    /// Runs items, which take this time by tenant, and returns the tenants in order.
    fn run(
        queue: &mut FairQueue<()>,
        count: usize,
        millis: impl Fn(&TenantId) -> u64,
    ) -> Vec<String> {
        let mut order = Vec::new();
        for _ in 0..count {
            let (tenant, ()) = queue.pop().unwrap();
            queue.finish(&tenant, Duration::from_millis(millis(&tenant)));
            order.push(tenant.to_string());
        }
        order
    }

    fn count(order: &[String], name: &str) -> usize {
        order.iter().filter(|tenant| *tenant == name).count()
    }

    #[test]
    fn tenants_with_equal_items_take_turns() {
        let mut queue = queue(&[("a", 100), ("b", 3)]);
        let order = run(&mut queue, 6, |_| 10);
        assert_eq!(order, ["a", "b", "a", "b", "a", "b"]);
    }

    #[test]
    fn tenant_with_long_items_has_the_same_time_as_others() {
        let mut queue = queue(&[("long", 50), ("short", 1_000)]);
        let order = run(&mut queue, 505, |tenant| match tenant.as_str() {
            "long" => 1_000,
            _ => 10,
        });
        let long = count(&order, "long");
        assert!((5..=6).contains(&long), "{long}");
    }

    #[test]
    fn debt_remains_while_others_wait() {
        let mut queue = queue(&[("long", 1), ("short", 200)]);
        assert_eq!(run(&mut queue, 1, |_| 1_000), ["long"]);
        // A tenant that sends one item at a time has no more than its share.
        queue.push(&tenant("long"), ());
        let order = run(&mut queue, 90, |_| 10);
        assert_eq!(count(&order, "short"), 90);
    }

    #[test]
    fn queue_without_waiting_items_keeps_nothing() {
        let mut queue = queue(&[("a", 2), ("b", 1)]);
        run(&mut queue, 3, |_| 500);
        assert!(queue.pop().is_none());
        assert!(queue.shares.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn items_that_run_at_the_same_time_count() {
        let mut queue = queue(&[("a", 10), ("b", 10)]);
        let taken: Vec<_> = (0..4).map(|_| queue.pop().unwrap().0.to_string()).collect();
        assert_eq!(taken, ["a", "b", "a", "b"]);
    }
}
