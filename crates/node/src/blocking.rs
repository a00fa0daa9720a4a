//! Work on threads that may block.

use tokio::task::{JoinError, JoinHandle};

/// The process is shutting down and does no more work on threads that may block.
#[derive(Debug, thiserror::Error)]
#[error("the process is shutting down: {0}")]
pub struct ShuttingDown(JoinError);

/// Runs `work` on a thread that may block. Continues its panic here.
///
/// # Errors
/// The error of `work`, or [`ShuttingDown`].
pub async fn run_blocking<T, E, F>(work: F) -> Result<T, E>
where
    T: Send + 'static,
    E: From<ShuttingDown> + Send + 'static,
    F: FnOnce() -> Result<T, E> + Send + 'static,
{
    finish(tokio::task::spawn_blocking(work)).await
}

/// Waits for work on a thread that may block. Continues its panic here.
///
/// # Errors
/// As [`run_blocking`].
pub(crate) async fn finish<T, E>(work: JoinHandle<Result<T, E>>) -> Result<T, E>
where
    E: From<ShuttingDown>,
{
    match work.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            // The owner of the work reports the panic: the layer of a request responds with OR0021.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(ShuttingDown(error).into()),
        },
    }
}
