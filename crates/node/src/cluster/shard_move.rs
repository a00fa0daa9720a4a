//! Moves of a shard: acquire and start, stop and release. Each wait has a bound or is logged.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::membership::{Membership, Pod, ShardLease};
use orlog_store::Error as StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::host::ShardHost;

/// Interval of the log records about a move that takes long. A start has no timeout of its own:
/// each of its waits has one, and a snapshot may be large.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a request to the membership.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of a move.
pub(super) enum MoveResult {
    Acquired(u16, ShardLease),
    /// The shard does not run here; the next reconciliation decides.
    NotAcquired(u16, Obstacle),
    Released(u16),
}

/// Why a shard was not acquired.
pub(super) enum Obstacle {
    /// Another pod was faster, or should own the shard.
    OtherOwner,
    /// The log of the shard has this epoch, which is later than that of the lease. The next lease
    /// is later than the log.
    LaterEpoch(u64),
    /// The lease cannot be written, or the shard does not start.
    Failure(String),
}

/// Acquires a shard and starts it.
pub(super) async fn take(
    host: Arc<dyn ShardHost>,
    membership: Arc<dyn Membership>,
    me: Pod,
    shard: u16,
    seen: ShardLease,
    log_epoch: u64,
    stopped: watch::Receiver<bool>,
) -> MoveResult {
    let started_at = Instant::now();
    let acquiring = tokio::time::timeout(
        REQUEST_TIMEOUT,
        membership.acquire(shard, &me, seen, log_epoch),
    );
    let unwritten = |error: &dyn std::fmt::Display| {
        let failure = format!("its lease cannot be written: {error}");
        MoveResult::NotAcquired(shard, Obstacle::Failure(failure))
    };
    let lease = match acquiring.await {
        Ok(Ok(Some(lease))) => lease,
        Ok(Ok(None)) => return MoveResult::NotAcquired(shard, Obstacle::OtherOwner),
        Ok(Err(error)) => return unwritten(&error),
        Err(_) => return unwritten(&format!("no response within {REQUEST_TIMEOUT:?}")),
    };

    // No timeout: a snapshot has any size, and a thread that loads it cannot be ended from outside.
    // Each wait inside has its own.
    let epoch = lease.epoch;

    match report_long(shard, "start", host.run_shard(shard, epoch, stopped)).await {
        Ok(()) => {
            let took_millis = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(shard, epoch, took_millis, "shard started");
            MoveResult::Acquired(shard, lease)
        }
        Err(error) => {
            // On an error the record stays, and this pod acquires the shard again.
            drop(tokio::time::timeout(REQUEST_TIMEOUT, membership.release(shard, lease)).await);
            MoveResult::NotAcquired(shard, obstacle(&error))
        }
    }
}

/// Returns the obstacle of a failed start.
fn obstacle(error: &anyhow::Error) -> Obstacle {
    match error.downcast_ref() {
        // The records were lost, or belong to another cluster name.
        Some(StoreError::Fenced { epoch, .. }) => Obstacle::LaterEpoch(*epoch),
        _ => Obstacle::Failure(format!("{error:#}")),
    }
}

/// Stops a shard. Announces the release of the lease, if there is one.
pub(super) async fn release(
    host: Arc<dyn ShardHost>,
    membership: Arc<dyn Membership>,
    shard: u16,
    grace: Duration,
    lease: Option<ShardLease>,
) -> MoveResult {
    let released = report_long(shard, "stop", host.stop_shard(shard, grace)).await;

    // No further commits happen here; the release does not wait until the files are closed.
    if let Some(lease) = lease
        && let Err(error) = announce_release(&*membership, shard, lease).await
    {
        tracing::warn!(
            shard,
            error,
            "shard release not announced; other pods will detect it"
        );
    }

    if let Some(released) = released
        && let Err(error) = report_long(shard, "close", released.close()).await
    {
        tracing::warn!(shard, %error, "store of a released shard did not close cleanly");
    }

    tracing::info!(shard, "shard stopped");
    MoveResult::Released(shard)
}

/// Releases the lease of a shard that does not run here.
pub(super) async fn release_lease(
    membership: Arc<dyn Membership>,
    shard: u16,
    lease: ShardLease,
) -> MoveResult {
    match announce_release(&*membership, shard, lease).await {
        Ok(()) => tracing::info!(shard, "lease of a shard that does not run here released"),
        Err(error) => tracing::warn!(shard, error, "shard release not announced; retrying"),
    }
    // Not `Released`: this result starts the delay after which a failed announcement is repeated.
    MoveResult::NotAcquired(shard, Obstacle::OtherOwner)
}

async fn announce_release(
    membership: &dyn Membership,
    shard: u16,
    lease: ShardLease,
) -> Result<(), String> {
    match tokio::time::timeout(REQUEST_TIMEOUT, membership.release(shard, lease)).await {
        Ok(released) => released.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {REQUEST_TIMEOUT:?}")),
    }
}

/// Waits for a part of a move, and logs while it takes long.
async fn report_long<T>(shard: u16, action: &'static str, work: impl Future<Output = T>) -> T {
    let started_at = Instant::now();
    let mut work = std::pin::pin!(work);
    loop {
        // The timeout ends only the wait: the pinned future is polled again and loses no progress.
        if let Ok(result) = tokio::time::timeout(REPORT_INTERVAL, &mut work).await {
            return result;
        }
        tracing::warn!(shard, action, waited = ?started_at.elapsed(), "shard move takes long");
    }
}
