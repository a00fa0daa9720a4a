//! Concurrency limits of an upstream: in total and per tenant; waiting requests are admitted in
//! fair order between tenants, and by priority within a tenant. If the upstream has a rate, one
//! request at a time has its turn to wait for it, so that the rate is also shared in fair order.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::count::{Operation, count};
use orlog_model::{Priority, TenantId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::limits::fair_queue::FairQueue;
use crate::policy::TenantLimits;

/// Grants permits. A dropped permit is returned, even if it was not yet delivered to its waiter.
pub(crate) struct ConcurrencyLimiter {
    capacity: usize,
    share: TenantLimits,
    /// A permit contains a turn, and one request at a time has it.
    takes_turns: bool,
    state: Mutex<State>,
}

struct State {
    free: usize,
    is_turn_taken: bool,
    waiting: FairQueue<oneshot::Sender<ConcurrencyPermit>>,
    /// Permits in use by tenant; maintained only if tenants have a limit.
    acquired: BTreeMap<TenantId, usize>,
}

/// Permit; dropping it returns it.
pub(crate) struct ConcurrencyPermit {
    /// `None` after it was returned.
    limiter: Option<Arc<ConcurrencyLimiter>>,
    tenant: Option<TenantId>,
    has_turn: bool,
}

impl ConcurrencyLimiter {
    pub(crate) fn new(capacity: usize, share: TenantLimits, takes_turns: bool) -> Arc<Self> {
        let capacity = capacity.max(1);
        let state = State {
            free: capacity,
            is_turn_taken: false,
            waiting: FairQueue::default(),
            acquired: BTreeMap::new(),
        };

        Arc::new(Self {
            capacity,
            share,
            takes_turns,
            state: Mutex::new(state),
        })
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        tenant: &TenantId,
        priority: Priority,
    ) -> ConcurrencyPermit {
        let turn = {
            let mut state = self.lock();
            // A free permit is not enough: requests that wait come first.
            if state.free > 0
                && !state.is_turn_taken
                && state.waiting.is_empty()
                && self.may(&state, tenant)
            {
                return self.take(&mut state, tenant);
            }

            let (sender, turn) = oneshot::channel();
            state.waiting.push(tenant, priority, sender);
            turn
        };

        // The state may have changed between the check and the push by the last permit that became
        // free.
        self.admit();
        turn.await
            .expect("the limiter owns the queue and outlives its waiters")
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    pub(crate) fn in_use(&self) -> usize {
        self.capacity - self.lock().free
    }

    fn may(&self, state: &State, tenant: &TenantId) -> bool {
        self.share.max_concurrency.is_none_or(|limit| {
            state.acquired.get(tenant).copied().unwrap_or(0) < limit.get() as usize
        })
    }

    fn take(self: &Arc<Self>, state: &mut State, tenant: &TenantId) -> ConcurrencyPermit {
        state.free -= 1;

        let counted = self.share.max_concurrency.map(|_| tenant.clone());
        if let Some(tenant) = &counted {
            *state.acquired.entry(tenant.clone()).or_default() += 1;
        }

        state.is_turn_taken = self.takes_turns;

        ConcurrencyPermit {
            limiter: Some(Arc::clone(self)),
            tenant: counted,
            has_turn: self.takes_turns,
        }
    }

    /// Grants free permits in fair order. It sends them outside the lock. The permit of a cancelled
    /// waiter is granted to the next waiter here: dropping it would call this function again, once
    /// per cancelled waiter.
    fn admit(self: &Arc<Self>) {
        while let Some((waiter, permit)) = self.next() {
            if let Err(permit) = waiter.send(permit) {
                permit.give_back();
            }
        }
    }

    /// Counts a permit as free; returns `true` if a request waits.
    fn free(&self, tenant: Option<&TenantId>, has_turn: bool) -> bool {
        let mut state = self.lock();
        state.free += 1;
        // A permit whose turn has ended must not end the turn of the next one.
        state.is_turn_taken &= !has_turn;

        if let Some(tenant) = tenant
            && let Some(count) = state.acquired.get_mut(tenant)
        {
            *count -= 1;

            // Tenants come and go: one without a permit needs no entry.
            if *count == 0 {
                state.acquired.remove(tenant);
            }
        }

        !state.waiting.is_empty()
    }

    fn next(self: &Arc<Self>) -> Option<(oneshot::Sender<ConcurrencyPermit>, ConcurrencyPermit)> {
        let mut state = self.lock();
        if state.free == 0 || state.is_turn_taken || state.waiting.is_empty() {
            return None;
        }

        // Taken out for the call: its closures borrow the rest of the state.
        let mut waiting = std::mem::take(&mut state.waiting);
        let popped = waiting.pop(
            |tenant| self.share.weight(tenant),
            |tenant| self.may(&state, tenant),
        );
        state.waiting = waiting;

        let (tenant, waiter) = popped?;
        // The permit is taken under the lock in which it was free. A cancelled waiter returns it.
        let permit = self.take(&mut state, &tenant);
        Some((waiter, permit))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The counts are consistent after every statement.
        count(Operation::Lock);
        self.state.lock()
    }
}

impl ConcurrencyPermit {
    /// Ends the turn: the next request may wait for the rate.
    pub(crate) fn end_turn(&mut self) {
        if let Some(limiter) = self
            .limiter
            .as_ref()
            .filter(|_| std::mem::take(&mut self.has_turn))
        {
            limiter.lock().is_turn_taken = false;
            limiter.admit();
        }
    }

    /// Returns the permit without a notification.
    fn give_back(mut self) {
        if let Some(limiter) = self.limiter.take() {
            limiter.free(self.tenant.as_ref(), self.has_turn);
        }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take()
            && limiter.free(self.tenant.as_ref(), self.has_turn)
        {
            limiter.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use orlog_model::Priority;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn waiting(
        limiter: &Arc<ConcurrencyLimiter>,
        name: &'static str,
    ) -> BoxFuture<'static, ConcurrencyPermit> {
        let limiter = Arc::clone(limiter);
        let mut permit =
            async move { limiter.acquire(&tenant(name), Priority::Normal).await }.boxed();
        assert!(
            (&mut permit).now_or_never().is_none(),
            "there is a place at once"
        );
        permit
    }

    #[tokio::test]
    async fn idle_tenant_is_not_delayed_by_a_busy_one() {
        let limiter = ConcurrencyLimiter::new(1, TenantLimits::default(), false);
        let permit = limiter.acquire(&tenant("busy"), Priority::Normal).await;
        let busy = [(); 3].map(|()| waiting(&limiter, "busy"));
        let quiet = waiting(&limiter, "quiet");
        drop(permit);
        let [first, second, _third] = busy;
        drop(first.await);
        drop(quiet.await);
        drop(second.await);
    }

    #[tokio::test]
    async fn tenant_limit_leaves_capacity_to_others() {
        let share = TenantLimits {
            max_concurrency: NonZeroU32::new(1),
            ..TenantLimits::default()
        };
        let limiter = ConcurrencyLimiter::new(3, share, false);
        let permit = limiter.acquire(&tenant("a"), Priority::Normal).await;
        let second = waiting(&limiter, "a");
        let other = limiter
            .acquire(&tenant("b"), Priority::Normal)
            .now_or_never();
        assert!(other.is_some(), "b waits behind a");
        assert_eq!(limiter.in_use(), 2);
        drop(permit);
        drop(second.await);
    }

    #[tokio::test]
    async fn dropped_waiter_releases_its_permit() {
        let limiter = ConcurrencyLimiter::new(1, TenantLimits::default(), false);
        let permit = limiter.acquire(&tenant("a"), Priority::Normal).await;
        let (cancelled, granted, last) = (
            waiting(&limiter, "a"),
            waiting(&limiter, "a"),
            waiting(&limiter, "a"),
        );
        drop(cancelled);
        drop(permit);
        // The receiver has the permit and does not use the value.
        drop(granted);
        drop(last.await);
        assert_eq!(limiter.in_use(), 0);
    }

    #[tokio::test]
    async fn dropping_many_waiters_does_not_overflow_the_stack() {
        let limiter = ConcurrencyLimiter::new(1, TenantLimits::default(), false);
        let permit = limiter.acquire(&tenant("a"), Priority::Normal).await;
        let crowd: Vec<_> = (0..100_000).map(|_| waiting(&limiter, "a")).collect();
        drop(crowd);
        drop(permit);
        drop(limiter.acquire(&tenant("b"), Priority::Normal).await);
        assert_eq!(limiter.in_use(), 0);
    }

    #[tokio::test]
    async fn turns_are_taken_in_fair_order() {
        let limiter = ConcurrencyLimiter::new(9, TenantLimits::default(), true);
        let mut first = limiter.acquire(&tenant("busy"), Priority::Normal).await;
        let busy = [(); 3].map(|()| waiting(&limiter, "busy"));
        let quiet = waiting(&limiter, "quiet");
        first.end_turn();
        let [second, third, _fourth] = busy;
        let mut second = second.await;
        assert!(
            futures::poll!(std::pin::pin!(third)).is_pending(),
            "two requests have the turn"
        );
        second.end_turn();
        let quiet = quiet
            .now_or_never()
            .expect("the other tenant has the next turn");
        assert_eq!(limiter.in_use(), 3);
        drop(quiet);
    }
}
