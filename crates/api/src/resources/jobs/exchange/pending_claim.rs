//! Claim of a stream that is polled between other events, and never dropped while it takes jobs.

use std::future::{Future, pending};
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Notify;

/// Claim that waits for jobs, or takes them; at most one at a time.
pub(super) struct PendingClaim<T> {
    claim: Option<BoxFuture<'static, T>>,
    /// Ends the wait of the claim.
    interrupt: Arc<Notify>,
}

impl<T> PendingClaim<T> {
    /// Returns one without a claim.
    pub(super) fn none() -> Self {
        Self {
            claim: None,
            interrupt: Arc::default(),
        }
    }

    /// Returns whether there is a claim.
    pub(super) fn is_pending(&self) -> bool {
        self.claim.is_some()
    }

    /// Starts a claim. It must return soon after a notification.
    pub(super) fn start<F>(&mut self, claim: impl FnOnce(Arc<Notify>) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        // For each claim, so that a notification of the last one does not interrupt it.
        self.interrupt = Arc::default();
        self.claim = Some(Box::pin(claim(Arc::clone(&self.interrupt))));
    }

    /// Ends the wait of the claim. Jobs that it takes at this moment are returned by
    /// [`Self::next`].
    pub(super) fn interrupt(&self) {
        self.interrupt.notify_one();
    }

    /// Returns the result of the claim; waits for ever without one. Dropping the future does not
    /// drop the claim.
    pub(super) async fn next(&mut self) -> T {
        let result = match &mut self.claim {
            Some(claim) => claim.await,
            None => pending().await,
        };
        self.claim = None;
        result
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

    use super::*;

    /// Starts a claim that has sent a request to another pod, whose response is the result.
    fn taking(claim: &mut PendingClaim<u32>) -> oneshot::Sender<u32> {
        let (response, received) = oneshot::channel();
        claim.start(|_| async { received.await.unwrap() });
        response
    }

    #[test]
    fn events_of_the_stream_do_not_drop_jobs_that_are_being_taken() {
        let mut claim = PendingClaim::none();
        let response = taking(&mut claim);
        // Each message, acknowledgement or ping of the stream drops the future of `next`.
        for _ in 0..3 {
            assert_eq!(claim.next().now_or_never(), None);
            claim.interrupt();
        }

        response.send(7).unwrap();
        assert_eq!(claim.next().now_or_never(), Some(7));
        assert!(!claim.is_pending());
        assert_eq!(claim.next().now_or_never(), None);
    }

    #[test]
    fn end_of_the_stream_waits_for_jobs_that_are_being_taken() {
        let mut claim = PendingClaim::none();
        let response = taking(&mut claim);
        {
            let mut end = Box::pin(claim.end());
            assert_eq!(end.as_mut().now_or_never(), None);
            response.send(7).unwrap();
            assert_eq!(end.now_or_never(), Some(Some(7)));
        }
        assert_eq!(claim.end().now_or_never(), Some(None));
    }

    #[test]
    fn interrupt_ends_the_wait_of_its_own_claim_only() {
        let mut claim = PendingClaim::none();
        let wait = async |interrupt: Arc<Notify>| interrupt.notified().await;
        claim.start(wait);
        claim.interrupt();
        assert_eq!(claim.next().now_or_never(), Some(()));

        claim.interrupt();
        claim.start(wait);
        assert_eq!(claim.next().now_or_never(), None);
    }
}
