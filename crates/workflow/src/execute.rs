//! Execution of one attempt: panics become errors, deadlines drop the future.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::error::TaskError;
use crate::machine::{Attempt, Fault, panic_message};
use crate::value::Value;

/// End of an attempt.
pub(crate) enum Done {
    Task {
        branch: u32,
        result: Result<Value, Fault>,
    },
    Undo(Result<(), Fault>),
}

/// Future of an attempt.
pub(crate) enum Execution {
    Task {
        branch: u32,
        future: Limited<Value>,
    },
    Undo(Limited<()>),
    /// Tokio task.
    Spawned(AbortOnDrop),
}

/// Function of the user, with its deadline.
pub(crate) struct Limited<T> {
    future: BoxFuture<'static, Result<T, TaskError>>,
    expired: Option<BoxFuture<'static, ()>>,
}

pub(crate) struct AbortOnDrop(tokio::task::JoinHandle<Done>);

/// Returns the future of an attempt. A concurrent attempt is a Tokio task of its own; dropping the
/// future aborts it.
pub(crate) fn execute(attempt: Attempt, clock: Clock, is_concurrent: bool) -> Execution {
    let execution = match attempt {
        Attempt::Task(attempt) => {
            let future = attempt.task.run(attempt.context, attempt.input);
            Execution::Task {
                branch: attempt.branch,
                future: limited(future, attempt.deadline_ms, clock),
            }
        }
        Attempt::Undo(attempt) => {
            let future = attempt
                .undo
                .run(attempt.context, attempt.input, attempt.output);
            Execution::Undo(limited(future, attempt.deadline_ms, clock))
        }
    };
    // Attempts of one instance that run at the same time use several threads. A single one needs
    // none of its own.
    if is_concurrent {
        return Execution::Spawned(AbortOnDrop(tokio::spawn(execution.in_current_span())));
    }
    execution
}

fn limited<T>(
    future: BoxFuture<'static, Result<T, TaskError>>,
    deadline_ms: Option<u64>,
    clock: Clock,
) -> Limited<T> {
    Limited {
        future,
        expired: deadline_ms.map(|deadline_ms| expired(deadline_ms, clock).boxed()),
    }
}

async fn expired(deadline_ms: u64, clock: Clock) {
    // A sleep can end slightly early, and a clock can be set back.
    while clock.now_ms() < deadline_ms {
        clock.wait_until(deadline_ms).await;
    }
}

impl Future for Execution {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        match &mut *self {
            Self::Task { branch, future } => future.poll_unpin(context).map(|result| Done::Task {
                branch: *branch,
                result,
            }),
            Self::Undo(future) => future.poll_unpin(context).map(Done::Undo),
            // The task catches panics of user code, and only this future aborts it.
            Self::Spawned(task) => task.0.poll_unpin(context).map(|done| {
                done.expect("an attempt neither panics nor is aborted while it is awaited")
            }),
        }
    }
}

impl<T> Future for Limited<T> {
    type Output = Result<T, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The task precedes its deadline: a result that is ready counts.
        match catch_unwind(AssertUnwindSafe(|| self.future.poll_unpin(context))) {
            Ok(Poll::Ready(result)) => return Poll::Ready(result.map_err(Fault::Error)),
            // A panic says nothing about the next attempt, so the retry policy decides.
            Err(panic) => {
                return Poll::Ready(Err(Fault::Error(TaskError::retryable(panic_message(
                    &*panic,
                )))));
            }
            Ok(Poll::Pending) => {}
        }
        match &mut self.expired {
            Some(expired) => expired.poll_unpin(context).map(|()| Err(Fault::TimedOut)),
            None => Poll::Pending,
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
