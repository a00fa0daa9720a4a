//! Reads of the stores, on threads of a lower priority than commits and requests.
//!
//! At most `http.max_concurrent_reads` requests and pages read at the same time; another one waits
//! up to `http.request_timeout`.

mod pool;
mod scope;

use std::sync::Arc;

use orlog_store::Cancellation;
use tokio::sync::Semaphore;

use crate::blocking::ShuttingDown;
pub use pool::PoolExhausted;
use pool::ReadPool;
pub(crate) use scope::ReadParts;
pub use scope::StoreScope;

/// Reads of the stores of this process.
pub struct Reads {
    parts: Arc<ReadParts>,
    pool: ReadPool,
}

impl Reads {
    pub(crate) fn new(parts: ReadParts) -> Self {
        let http = &parts.config.http;
        let pool = ReadPool::new(http.max_concurrent_reads, http.request_timeout);
        Self {
            parts: Arc::new(parts),
            pool,
        }
    }

    /// Reads the stores on a thread of the pool, of which a caller uses at most its share. Scans
    /// end when the future is dropped.
    ///
    /// # Errors
    /// The error of `read`; [`PoolExhausted`] if no thread is free in time; [`ShuttingDown`].
    pub async fn run<T, E, F>(&self, share: Option<&Arc<Semaphore>>, read: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<PoolExhausted> + From<ShuttingDown> + Send + 'static,
        F: FnOnce(StoreScope) -> Result<T, E> + Send + 'static,
    {
        let parts = Arc::clone(&self.parts);
        let permit = self.pool.acquire(share).await?;
        let cancellation = Cancellation::default();
        // Dropped with this future: the scan of a client that disconnects ends, and frees its
        // place.
        let _request = cancellation.on_drop();

        self.pool
            .run(permit, move || read(StoreScope::new(parts, cancellation)))
            .await
    }
}
