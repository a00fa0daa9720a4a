//! Work of requests on threads that may block.

use super::problem::Problem;
use orlog_node::blocking;

/// Runs `work` on a thread that may block. Continues its panic here: the layer of the request logs
/// it and responds with OR0021.
///
/// # Errors
/// The error of `work`; [`super::problem::Code::Unavailable`] if the process is shutting down.
pub(crate) async fn run_blocking<T, F>(work: F) -> Result<T, Problem>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Problem> + Send + 'static,
{
    blocking::run_blocking(work).await
}
