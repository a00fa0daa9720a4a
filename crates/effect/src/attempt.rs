//! One attempt: its start, its time limits and its end.

use std::pin::Pin;
use std::time::Duration;

use orlog_model::{Clock, SteadyTime, WorkItem};

use crate::attempt_start::{AttemptStart, StoredClaim};
use crate::dispatcher::{Dispatcher, stopped};
use crate::policy::Policy;
use crate::provider::{Attempt, ProviderError, RemoteResult};
use crate::upstream::Upstream;

/// Time in which an attempt must end.
#[derive(Clone, Copy)]
pub(crate) struct AttemptWindow {
    /// Timeout of the attempt: that of the policy, or less before the deadline.
    pub(crate) timeout: Duration,
    /// End of the timeout; `None`: never.
    until: Option<SteadyTime>,
    /// Deadline of the work item.
    deadline: Option<SteadyTime>,
}

impl AttemptWindow {
    /// Creates the window of an attempt that starts now.
    pub(crate) fn new(policy: &Policy, clock: &dyn Clock, deadline: Option<SteadyTime>) -> Self {
        let allowed = policy.attempt_timeout;

        // Functions in this process have neither limit. They must not cost a read of the clock.
        if deadline.is_none() && allowed == Duration::MAX {
            return Self {
                timeout: allowed,
                until: None,
                deadline,
            };
        }

        let now = clock.steady();
        let until = now
            .saturating_add(allowed)
            .min(deadline.unwrap_or(SteadyTime::MAX));

        Self {
            timeout: until.duration_since(now),
            until: Some(until),
            deadline,
        }
    }
}

/// Makes one attempt within its window; `None`: it did not end in time. The timeout of work in
/// another process counts from the start of the work: until then, only the deadline ends the
/// attempt, and nothing was executed. Such work is recalled when the dispatcher stops: the next
/// owner of the shard offers it again.
pub(crate) async fn execute(
    upstream: &Upstream,
    clock: &dyn Clock,
    item: &WorkItem,
    attempt: Attempt,
    window: AttemptWindow,
    claim: Option<Box<StoredClaim>>,
    dispatcher: Option<&dyn Dispatcher>,
) -> Option<RemoteResult> {
    let Some(remote) = upstream.provider.remote() else {
        let mut work = upstream.provider.execute(item, attempt);
        return before(clock, window.until, work.as_mut())
            .await
            .map(Into::into);
    };

    let mut stop = dispatcher.and_then(Dispatcher::stop_token);
    let start = AttemptStart::until(stop).with_claim(claim);
    let mut work = remote.execute_remotely(item, attempt, &start);
    let mut until = window.deadline;

    loop {
        tokio::select! {
            biased;

            // A result that is ready counts, also if its time has passed.
            result = before(clock, until, work.as_mut()) => {
                // Afterwards the work cannot start any more.
                drop(work);
                return result.or_else(|| {
                    (!start.has_started()).then(|| Err(not_claimed(&upstream.name)).into())
                });
            }

            // From now on, the timeout of the work itself counts.
            () = start.started() => until = match start.end() {
                Some(end) => Some(until.map_or(end, |until| until.min(end))),
                None => AttemptWindow::new(&upstream.policy, clock, window.deadline).until,
            },
            // The next owner of the shard offers the work again.
            () = stopped(stop) => {
                remote.recall(item);
                // Once only: the signal is permanent, and the loop would recall the work without a
                // pause.
                stop = None;
            }
        }
    }
}

fn not_claimed(upstream: &str) -> ProviderError {
    let message =
        format!("{upstream}: no worker claimed the job before its deadline; it was not executed");
    ProviderError::unavailable("not_claimed", message)
}

/// Runs a future unless `until` comes first. A future that is ready at once arms no timer.
pub(crate) async fn before<T>(
    clock: &dyn Clock,
    until: Option<SteadyTime>,
    work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
) -> Option<T> {
    let Some(until) = until else {
        return Some(work.await);
    };

    tokio::select! {
        biased;

        // A result that is ready counts, also if its time has passed.
        out = work => Some(out),
        () = async { clock.sleep_until(until).await } => None,
    }
}
