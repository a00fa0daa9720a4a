//! The places at an upstream: so many at once, so many of one tenant, and the rest waits in fair order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlog_model::TenantId;
use tokio::sync::oneshot;

use crate::limits::fair_queue::Fair;
use crate::policy::Share;

/// Gives out places. A place that is dropped, also on its way to whoever waited for it, comes back.
pub(crate) struct Turnstile {
    capacity: usize,
    share: Share,
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: Fair<oneshot::Sender<Place>>,
    /// Places of each tenant; kept only where tenants have a limit.
    taken: BTreeMap<TenantId, usize>,
}

/// A place; dropping it gives it back.
pub(crate) struct Place {
    /// `None` once it has been given back.
    turnstile: Option<Arc<Turnstile>>,
    tenant: Option<TenantId>,
}

impl Turnstile {
    pub(crate) fn new(capacity: usize, share: Share) -> Arc<Self> {
        let capacity = capacity.max(1);
        let state = State { free: capacity, waiting: Fair::default(), taken: BTreeMap::new() };
        Arc::new(Self { capacity, share, state: Mutex::new(state) })
    }

    /// Waits for a place. Dropping the future gives up the turn.
    pub(crate) async fn place(self: &Arc<Self>, tenant: &TenantId) -> Place {
        let turn = {
            let mut state = self.lock();
            if state.free > 0 && state.waiting.is_empty() && self.may(&state, tenant) {
                return self.take(&mut state, tenant);
            }
            let (sender, turn) = oneshot::channel();
            state.waiting.push(tenant, sender);
            turn
        };
        self.admit();
        turn.await.expect("who waits is told: the queue lives as long as the turnstile")
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.capacity - self.lock().free
    }

    fn may(&self, state: &State, tenant: &TenantId) -> bool {
        self.share
            .concurrency
            .is_none_or(|most| state.taken.get(tenant).copied().unwrap_or(0) < most.get() as usize)
    }

    fn take(self: &Arc<Self>, state: &mut State, tenant: &TenantId) -> Place {
        state.free -= 1;
        let counted = self.share.concurrency.map(|_| tenant.clone());
        if let Some(tenant) = &counted {
            *state.taken.entry(tenant.clone()).or_default() += 1;
        }
        Place { turnstile: Some(Arc::clone(self)), tenant: counted }
    }

    /// Gives free places to those whose turn it is. They are told outside the lock, and the place of one who has gone away
    /// is given to the next one here: dropping it would come back here, once for each of those who have gone.
    fn admit(self: &Arc<Self>) {
        while let Some((waiter, place)) = self.next() {
            if let Err(place) = waiter.send(place) {
                place.give_back();
            }
        }
    }

    /// Counts a place as free; `true` when somebody waits.
    fn free(&self, tenant: Option<&TenantId>) -> bool {
        let mut state = self.lock();
        state.free += 1;
        if let Some(tenant) = tenant
            && let Some(count) = state.taken.get_mut(tenant)
        {
            *count -= 1;
            if *count == 0 {
                state.taken.remove(tenant);
            }
        }
        !state.waiting.is_empty()
    }

    fn next(self: &Arc<Self>) -> Option<(oneshot::Sender<Place>, Place)> {
        let mut state = self.lock();
        if state.free == 0 || state.waiting.is_empty() {
            return None;
        }
        let mut waiting = std::mem::take(&mut state.waiting);
        let popped = waiting.pop(|tenant| self.share.weight(tenant), |tenant| self.may(&state, tenant));
        state.waiting = waiting;
        let (tenant, waiter) = popped?;
        let place = self.take(&mut state, &tenant);
        Some((waiter, place))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The counts are whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Becomes free and tells nobody.
    fn give_back(mut self) {
        if let Some(turnstile) = self.turnstile.take() {
            turnstile.free(self.tenant.as_ref());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(turnstile) = self.turnstile.take()
            && turnstile.free(self.tenant.as_ref())
        {
            turnstile.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn waiting(turnstile: &Arc<Turnstile>, name: &'static str) -> BoxFuture<'static, Place> {
        let turnstile = Arc::clone(turnstile);
        let mut place = async move { turnstile.place(&tenant(name)).await }.boxed();
        assert!((&mut place).now_or_never().is_none(), "there is a place at once");
        place
    }

    #[tokio::test]
    async fn a_quiet_tenant_does_not_wait_behind_a_busy_one() {
        let turnstile = Turnstile::new(1, Share::default());
        let held = turnstile.place(&tenant("busy")).await;
        let busy = [(); 3].map(|()| waiting(&turnstile, "busy"));
        let quiet = waiting(&turnstile, "quiet");
        drop(held);
        let [first, second, _third] = busy;
        drop(first.await);
        drop(quiet.await);
        drop(second.await);
    }

    #[tokio::test]
    async fn a_tenant_at_its_limit_leaves_the_rest_to_others() {
        let share = Share { concurrency: NonZeroU32::new(1), ..Share::default() };
        let turnstile = Turnstile::new(3, share);
        let held = turnstile.place(&tenant("a")).await;
        let second = waiting(&turnstile, "a");
        let other = turnstile.place(&tenant("b")).now_or_never();
        assert!(other.is_some(), "b waits behind a");
        assert_eq!(turnstile.taken(), 2);
        drop(held);
        drop(second.await);
    }

    #[tokio::test]
    async fn whoever_goes_away_loses_no_place() {
        let turnstile = Turnstile::new(1, Share::default());
        let held = turnstile.place(&tenant("a")).await;
        let (gone, told, last) =
            (waiting(&turnstile, "a"), waiting(&turnstile, "a"), waiting(&turnstile, "a"));
        drop(gone);
        drop(held);
        // It has been given the place and never looks at it.
        drop(told);
        drop(last.await);
        assert_eq!(turnstile.taken(), 0);
    }

    #[tokio::test]
    async fn a_crowd_that_goes_away_at_once_does_not_overflow_the_stack() {
        let turnstile = Turnstile::new(1, Share::default());
        let held = turnstile.place(&tenant("a")).await;
        let crowd: Vec<_> = (0..100_000).map(|_| waiting(&turnstile, "a")).collect();
        drop(crowd);
        drop(held);
        drop(turnstile.place(&tenant("b")).await);
        assert_eq!(turnstile.taken(), 0);
    }
}
