//! Clock that advances only on request of a test. Its wall clock can be set back.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use orlog_model::{Clock, SteadyTime, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Simulated time. Sleepers wake in the order of their due times; sleepers with equal due times wake in
/// the order of arrival.
///
/// [`SimClock::advance`] jumps: all due sleepers see the new time. To wake each sleeper at its own
/// time, wait between calls of [`SimClock::advance_to_next`] until all sleepers sleep again.
pub struct SimClock {
    state: Mutex<State>,
    slept: Notify,
}

struct State {
    /// Wall-clock time, as if it was never set back; the steady time has the same number.
    now: Timestamp,
    /// Time by which the wall clock was set back.
    set_back: Duration,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    next: u64,
}

impl SimClock {
    /// Creates a clock with the time `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Arc<Self> {
        let state = State {
            now: start,
            set_back: Duration::ZERO,
            sleepers: BTreeMap::new(),
            next: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            slept: Notify::new(),
        })
    }

    /// Sets the wall clock back. Sleepers sleep as long as before.
    pub fn set_back(&self, duration: Duration) {
        self.state.lock().set_back += duration;
    }

    /// Advances by `duration` and wakes due sleepers.
    pub fn advance(&self, duration: Duration) {
        let at = self.state.lock().now.saturating_add(duration);
        self.advance_to(at);
    }

    /// Advances to `at`, never backwards, and wakes due sleepers.
    pub fn advance_to(&self, at: Timestamp) {
        let woken = {
            let mut state = self.state.lock();
            state.now = state.now.max(at);
            let after = state.now.saturating_add(Duration::from_millis(1));
            let pending = state.sleepers.split_off(&(after, 0));
            std::mem::replace(&mut state.sleepers, pending)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// Advances to the next due time and returns it; `None` if there is no sleeper with a finite due time.
    pub fn advance_to_next(&self) -> Option<Timestamp> {
        let due = self.next_due()?;
        self.advance_to(due);
        Some(due)
    }

    /// Returns the due time of the next sleeper.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.state
            .lock()
            .sleepers
            .keys()
            .next()
            .map(|(due, _)| *due)
            .filter(|due| *due < Timestamp::MAX)
    }

    /// Returns the number of sleepers.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.state.lock().sleepers.len()
    }

    /// Waits until a sleeper is due within `span` from now, and returns its due time.
    pub async fn due_within(&self, span: Duration) -> Timestamp {
        loop {
            let mut slept = std::pin::pin!(self.slept.notified());
            slept.as_mut().enable();
            match self.next_due() {
                Some(due) if due <= self.state.lock().now.saturating_add(span) => return due,
                Some(_) | None => slept.await,
            }
        }
    }

    /// Waits until there are at least `count` sleepers.
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
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let state = self.state.lock();
        state.now.saturating_sub(state.set_back)
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime::from_millis(self.state.lock().now.as_millis())
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let due = Timestamp::from_millis(at.as_millis());
        Box::pin(SleepFuture {
            clock: self,
            due,
            sequence: None,
        })
    }

    /// The wall clock is never set forward, so one sleep is sufficient.
    fn sleep_until_due(&self, due: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.sleep_until(self.steady_at(due))
    }
}

struct SleepFuture<'a> {
    clock: &'a SimClock,
    due: Timestamp,
    sequence: Option<u64>,
}

impl Future for SleepFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock;
        let mut state = clock.state.lock();
        if state.now >= self.due {
            return Poll::Ready(());
        }
        let sequence = *self.sequence.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state
            .sleepers
            .insert((self.due, sequence), context.waker().clone());
        drop(state);
        clock.slept.notify_waiters();
        Poll::Pending
    }
}

impl Drop for SleepFuture<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            self.clock
                .state
                .lock()
                .sleepers
                .remove(&(self.due, sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000);

    #[tokio::test]
    async fn sleepers_wake_in_deadline_order() {
        let clock = SimClock::new(START);
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = [30, 10, 20]
            .map(|millis| {
                let (clock, order) = (Arc::clone(&clock), Arc::clone(&order));
                tokio::spawn(async move {
                    clock
                        .sleep_until_due(START.saturating_add(Duration::from_millis(millis)))
                        .await;
                    order.lock().push(millis);
                })
            })
            .into();
        clock.until_sleeping(3).await;
        assert_eq!(
            clock.advance_to_next(),
            Some(START.saturating_add(Duration::from_millis(10)))
        );
        assert_eq!(clock.sleepers(), 2);
        clock.advance(Duration::from_secs(1));
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), [10, 20, 30]);
    }

    #[tokio::test]
    async fn dropped_sleep_is_removed_and_past_deadline_resolves_immediately() {
        let clock = SimClock::new(START);
        let mut sleep = clock.sleep_until(SteadyTime::MAX);
        assert!(futures::poll!(&mut sleep).is_pending());
        assert_eq!((clock.sleepers(), clock.next_due()), (1, None));
        drop(sleep);
        assert_eq!(clock.sleepers(), 0);
        clock.sleep_until_due(START).await;
    }
}
