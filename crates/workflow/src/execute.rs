//! Execution of one attempt: panics become errors, deadlines drop the future.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::error::TaskError;
use crate::machine::{Attempt, Fault, panic_message};
use crate::value::Value;

/// End of an attempt.
pub(crate) enum Done {
    Task { branch: u32, result: Result<Value, Fault> },
    Undo(Result<(), Fault>),
}

/// Returns the future of an attempt. A concurrent attempt is a Tokio task of its own; dropping the future aborts it.
pub(crate) fn execute(attempt: Attempt, clock: Clock, is_concurrent: bool) -> BoxFuture<'static, Done> {
    let run = run(attempt, clock);
    if !is_concurrent {
        return run;
    }
    let task = AbortOnDrop(tokio::spawn(run.in_current_span()));
    Box::pin(async move { task.join().await })
}

fn run(attempt: Attempt, clock: Clock) -> BoxFuture<'static, Done> {
    match attempt {
        Attempt::Task(attempt) => {
            let (branch, deadline_ms) = (attempt.branch, attempt.deadline_ms);
            let task = attempt.task.run(attempt.context, attempt.input);
            Box::pin(async move { Done::Task { branch, result: limited(task, deadline_ms, clock).await } })
        }
        Attempt::Undo(attempt) => {
            let deadline_ms = attempt.deadline_ms;
            let undo = attempt.undo.run(attempt.context, attempt.input, attempt.output);
            Box::pin(async move { Done::Undo(limited(undo, deadline_ms, clock).await) })
        }
    }
}

/// Executes a future until its deadline.
async fn limited<T>(
    future: BoxFuture<'static, Result<T, TaskError>>,
    deadline_ms: Option<u64>,
    clock: Clock,
) -> Result<T, Fault> {
    let future = AssertUnwindSafe(future).catch_unwind();
    let result = match deadline_ms {
        None => future.await,
        Some(deadline_ms) => {
            tokio::select! {
                biased;
                result = future => result,
                () = expired(deadline_ms, clock) => return Err(Fault::TimedOut),
            }
        }
    };
    let result = result.unwrap_or_else(|panic| Err(TaskError::retryable(panic_message(&*panic))));
    result.map_err(Fault::Error)
}

async fn expired(deadline_ms: u64, clock: Clock) {
    while clock.now_ms() < deadline_ms {
        clock.wait_until(deadline_ms).await;
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<Done>);

impl AbortOnDrop {
    async fn join(mut self) -> Done {
        // The task catches panics of user code, and only this future aborts it.
        (&mut self.0).await.expect("an attempt neither panics nor is aborted while it is awaited")
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
