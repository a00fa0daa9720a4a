//! Waiting for conditions, all with one deadline.

use std::panic::Location;
use std::time::{Duration, Instant};

/// Maximum time that a test waits for a condition. Long enough for a loaded machine: a test that passes never waits
/// for it.
pub const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Poll interval of conditions that cannot notify.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Awaits a future.
///
/// # Panics
/// If it is not ready within [`WAIT_TIMEOUT`].
#[track_caller]
pub fn within<T>(description: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let location = Location::caller();
    // On the heap, because futures of tests are large.
    let work = Box::pin(work);
    async move {
        let done = tokio::time::timeout(WAIT_TIMEOUT, work).await;
        done.unwrap_or_else(|_| panic!("{location}: {description}: not within {WAIT_TIMEOUT:?}"))
    }
}

/// Polls until there is a value.
///
/// # Panics
/// If there is none within [`WAIT_TIMEOUT`].
#[track_caller]
pub fn until<T, F: Future<Output = Option<T>>>(
    description: &str,
    mut poll: impl FnMut() -> F,
) -> impl Future<Output = T> {
    within(description, async move {
        let mut again = tokio::time::interval(POLL_INTERVAL);
        loop {
            again.tick().await;
            if let Some(found) = poll().await {
                return found;
            }
        }
    })
}

/// Checks a condition until it holds; an error describes the state.
///
/// # Panics
/// If it does not hold within [`WAIT_TIMEOUT`], with the last state.
#[track_caller]
pub fn until_ok<T>(
    description: &str,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> impl Future<Output = T> {
    let location = Location::caller();
    async move {
        let mut last = String::new();
        let waiting = async {
            let mut again = tokio::time::interval(POLL_INTERVAL);
            loop {
                again.tick().await;
                match check().await {
                    Ok(found) => return found,
                    Err(state) => last = state,
                }
            }
        };
        let found = tokio::time::timeout(WAIT_TIMEOUT, waiting).await;
        found.unwrap_or_else(|_| panic!("{location}: {description} stays at {last}"))
    }
}

/// Polls until there is a value, and blocks the thread.
///
/// # Panics
/// If there is none within [`WAIT_TIMEOUT`].
#[track_caller]
pub fn until_blocking<T>(description: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(
            started.elapsed() < WAIT_TIMEOUT,
            "{description}: not within {WAIT_TIMEOUT:?}"
        );
        std::thread::park_timeout(POLL_INTERVAL);
    }
}
