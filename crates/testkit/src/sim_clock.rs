//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use orlog_model::{Clock, Timestamp};
use tokio::sync::Notify;

/// Simulated time. Whoever sleeps is woken in the order of due times, those of one time in the order in which they came.
///
/// [`SimClock::advance`] jumps: all whose time has come see the new present. To let each act at its own time, wait for
/// the fact that all are asleep again between calls of [`SimClock::advance_to_next`].
pub struct SimClock {
    state: Mutex<State>,
    slept: Notify,
}

struct State {
    now: Timestamp,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    next: u64,
}

impl SimClock {
    /// Shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Arc<Self> {
        let state = State { now: start, sleepers: BTreeMap::new(), next: 0 };
        Arc::new(Self { state: Mutex::new(state), slept: Notify::new() })
    }

    /// Moves on by `duration` and wakes whose time has come.
    pub fn advance(&self, duration: Duration) {
        let at = self.now().after(duration);
        self.advance_to(at);
    }

    /// Moves on to `at`, never back, and wakes whose time has come.
    pub fn advance_to(&self, at: Timestamp) {
        let woken = {
            let mut state = self.lock();
            state.now = state.now.max(at);
            let after = state.now.after(Duration::from_millis(1));
            let still = state.sleepers.split_off(&(after, 0));
            std::mem::replace(&mut state.sleepers, still)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// Moves on to the next due time and says which; `None`: nobody sleeps, or only for ever.
    pub fn advance_to_next(&self) -> Option<Timestamp> {
        let due = self.next_due()?;
        self.advance_to(due);
        Some(due)
    }

    /// The next time at which somebody wakes.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.lock().sleepers.keys().next().map(|(due, _)| *due).filter(|due| *due < Timestamp::MAX)
    }

    /// How many sleep.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// Waits until somebody sleeps who wakes within `span` from now, and says when.
    pub async fn due_within(&self, span: Duration) -> Timestamp {
        loop {
            let mut slept = std::pin::pin!(self.slept.notified());
            slept.as_mut().enable();
            match self.next_due() {
                Some(due) if due <= self.now().after(span) => return due,
                Some(_) | None => slept.await,
            }
        }
    }

    /// Waits until at least so many sleep.
    pub async fn until_sleeping(&self, count: usize) {
        loop {
            let mut slept = std::pin::pin!(self.slept.notified());
            slept.as_mut().enable();
            if self.sleepers() >= count {
                return;
            }
            slept.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Sleep { clock: self, due: at, place: None })
    }
}

struct Sleep<'a> {
    clock: &'a SimClock,
    due: Timestamp,
    place: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock;
        let mut state = clock.lock();
        if state.now >= self.due {
            return Poll::Ready(());
        }
        let place = *self.place.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.sleepers.insert((self.due, place), context.waker().clone());
        drop(state);
        clock.slept.notify_waiters();
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.clock.lock().sleepers.remove(&(self.due, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000);

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_times() {
        let clock = SimClock::new(START);
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = [30, 10, 20]
            .map(|millis| {
                let (clock, order) = (Arc::clone(&clock), Arc::clone(&order));
                tokio::spawn(async move {
                    clock.sleep_until(START.after(Duration::from_millis(millis))).await;
                    order.lock().unwrap().push(millis);
                })
            })
            .into();
        clock.until_sleeping(3).await;
        assert_eq!(clock.advance_to_next(), Some(START.after(Duration::from_millis(10))));
        assert_eq!(clock.sleepers(), 2);
        clock.advance(Duration::from_secs(1));
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [10, 20, 30]);
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_no_trace_and_a_past_one_is_over_at_once() {
        let clock = SimClock::new(START);
        let mut sleep = clock.sleep_until(Timestamp::MAX);
        assert!(futures::poll!(&mut sleep).is_pending());
        assert_eq!((clock.sleepers(), clock.next_due()), (1, None));
        drop(sleep);
        assert_eq!(clock.sleepers(), 0);
        clock.sleep_until(START).await;
    }
}
