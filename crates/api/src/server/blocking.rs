//! Work on threads that may block.

use tokio::task::JoinHandle;

use super::problem::{Code, Problem};

/// Runs `work` on a thread that may block. Continues its panic here.
///
/// # Errors
/// The error of `work`; [`Code::Unavailable`] if the process is shutting down.
pub(crate) async fn run_blocking<T, F>(work: F) -> Result<T, Problem>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Problem> + Send + 'static,
{
    finish(tokio::task::spawn_blocking(work)).await
}

/// Waits for work on a thread that may block. Continues its panic here.
///
/// # Errors
/// As [`run_blocking`].
pub(super) async fn finish<T>(work: JoinHandle<Result<T, Problem>>) -> Result<T, Problem> {
    match work.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            // The layer of the request logs the panic and responds with OR0021.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(Problem::new(
                Code::Unavailable,
                format!("the process is shutting down: {error}"),
            )),
        },
    }
}
