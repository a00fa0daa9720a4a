//! Claim of a stream, which runs beside its other events and is never ended by them.

use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Claim that waits for jobs, or takes them; at most one at a time.
///
/// It is a task of its own: a stream that writes to a slow worker does not poll, and a claim that
/// is not polled keeps the jobs of its notification from other workers.
///
/// Dropped, it ends the claim. The claims of jobs that it has taken until then expire.
pub(super) struct PendingClaim<T> {
    /// At most one task.
    claim: JoinSet<T>,
    /// Ends the wait of the claim.
    interrupt: Arc<Notify>,
}

impl<T: Send + 'static> PendingClaim<T> {
    /// Returns one without a claim.
    pub(super) fn none() -> Self {
        Self {
            claim: JoinSet::new(),
            interrupt: Arc::default(),
        }
    }

    /// Returns whether there is a claim.
    pub(super) fn is_pending(&self) -> bool {
        !self.claim.is_empty()
    }

    /// Starts a claim. It must return soon after a notification.
    pub(super) fn start<F>(&mut self, claim: impl FnOnce(Arc<Notify>) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        // For each claim, so that a notification of the last one does not interrupt it.
        self.interrupt = Arc::default();
        self.claim.spawn(claim(Arc::clone(&self.interrupt)));
    }

    /// Ends the wait of the claim. Jobs that it takes at this moment are returned by
    /// [`Self::next`].
    pub(super) fn interrupt(&self) {
        self.interrupt.notify_one();
    }

    /// Returns the result of the claim; waits for ever without one. Dropping the future does not
    /// drop the claim.
    pub(super) async fn next(&mut self) -> T {
        match self.claim.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is shutting down.
            Some(Err(_)) | None => pending().await,
        }
    }

    /// Interrupts the claim and returns its result; `None` without one.
    pub(super) async fn end(&mut self) -> Option<T> {
        if !self.is_pending() {
            return None;
        }
        self.interrupt();
        Some(self.next().await)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    /// Starts a claim that has sent a request to another pod, whose response is the result.
    fn taking(claim: &mut PendingClaim<u32>) -> oneshot::Sender<u32> {
        let (response, received) = oneshot::channel();
        claim.start(|_| async { received.await.unwrap() });
        response
    }

    #[tokio::test]
    async fn claim_takes_jobs_while_the_stream_does_not_poll_it() {
        let mut claim = PendingClaim::none();
        let (taken, mut jobs) = oneshot::channel();
        claim.start(|_| async { taken.send(7) });

        yield_now().await;
        assert_eq!(jobs.try_recv(), Ok(7));
        assert_eq!(claim.next().await, Ok(()));
    }

    #[tokio::test]
    async fn claim_ends_with_the_stream() {
        let mut claim = PendingClaim::none();
        let mut response = taking(&mut claim);
        drop(claim);
        response.closed().await;
    }

    #[tokio::test]
    async fn events_of_the_stream_do_not_drop_jobs_that_are_being_taken() {
        let mut claim = PendingClaim::none();
        let response = taking(&mut claim);
        // Each message, acknowledgement or ping of the stream drops the future of `next`.
        for _ in 0..3 {
            yield_now().await;
            assert_eq!(claim.next().now_or_never(), None);
            claim.interrupt();
        }

        response.send(7).unwrap();
        assert_eq!(claim.next().await, 7);
        assert!(!claim.is_pending());
        assert_eq!(claim.next().now_or_never(), None);
    }

    #[tokio::test]
    async fn end_of_the_stream_waits_for_jobs_that_are_being_taken() {
        let mut claim = PendingClaim::none();
        let response = taking(&mut claim);
        {
            let mut end = Box::pin(claim.end());
            assert_eq!(end.as_mut().now_or_never(), None);
            response.send(7).unwrap();
            assert_eq!(end.await, Some(7));
        }
        assert_eq!(claim.end().await, None);
    }

    #[tokio::test]
    async fn interrupt_ends_the_wait_of_its_own_claim_only() {
        let mut claim = PendingClaim::none();
        let wait = async |interrupt: Arc<Notify>| interrupt.notified().await;
        claim.start(wait);
        claim.interrupt();
        claim.next().await;

        claim.interrupt();
        claim.start(wait);
        yield_now().await;
        assert_eq!(claim.next().now_or_never(), None);
    }
}
