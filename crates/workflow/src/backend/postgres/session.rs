//! Connection that one task keeps: a pool tests a connection each time that it gives and takes it,
//! which costs two round trips.

use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};

/// Time after which a connection that was not used is tested before its next use.
const IDLE: Duration = Duration::from_secs(1);

/// Connection that one task keeps.
pub(super) struct Session {
    pool: PgPool,
    kept: Option<(PoolConnection<Postgres>, Instant)>,
}

impl Session {
    pub(super) fn new(pool: PgPool) -> Self {
        Self { pool, kept: None }
    }

    /// Returns the connection. The caller keeps it after a success, so that a connection with an
    /// error returns to the pool, which tests it.
    pub(super) async fn take(&mut self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        match self.kept.take() {
            Some((connection, used)) if used.elapsed() < IDLE => Ok(connection),
            kept => {
                // Returned first: the pool may have no other connection.
                drop(kept);
                self.pool.acquire().await
            }
        }
    }

    pub(super) fn keep(&mut self, connection: PoolConnection<Postgres>) {
        self.kept = Some((connection, Instant::now()));
    }
}
