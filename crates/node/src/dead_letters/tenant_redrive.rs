//! Redrive of the dead letters of tenants that a node admits now.
//!
//! While nodes have different lists of tenants, a node accepts an event that the owner of its shard
//! does not admit; the owner stores it as a dead letter `tenant_not_allowed`. When a node starts a
//! shard, and when a reload changes its list, it scans these dead letters and redrives those of
//! tenants that it admits, oldest first for each tenant.
//!
//! - A shard has at most one scan. A scan reads bounded pages; of all scans, one reads a page at a
//!   time. The pause between two pages is at least as long as the page took. A page that fails is
//!   repeated; the other shards wait for it at most `REDRIVE_TIMEOUT` each time. While a shard of
//!   the node cannot commit, no page is redriven.
//! - It stops when the node drains or no longer owns the shard. The next owner scans the shard when
//!   it starts it.
//! - A dead letter is removed after the bus has stored its message. After a crash in between it is
//!   redriven again, and its instances recognize the duplicate within the dedupe window of the
//!   store.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use orlog_actors::{ControlError, Runtime, TenantAdmission};
use orlog_bus::RetryLog;
use orlog_model::{DeadLetterReason, TenantId};
use orlog_store::{Reader, SweepCursor, SweepPage};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::audit::{AuditOutcome, AuditRecord, AuditTrail};
use crate::background::BackgroundTasks;
use crate::config::Config;
use crate::definitions::change::DefinitionLocks;

/// Maximum number of dead letters to redrive per page. Deployments wait for them.
const MAX_FOUND: usize = 64;
/// Dead letters per page.
const SCAN_PAGE: usize = 512;
/// Minimum pause between two pages.
const PAUSE: Duration = Duration::from_millis(2);
/// Delay before a failed page is repeated for the first time; it doubles with each failure.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum delay before a failed page is repeated. Each repetition can publish a message again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Delay of the second scan after a change of the list. A shard that applied the previous list to a
/// message stores its dead letter within this time.
const SETTLE_DELAY: Duration = Duration::from_secs(10);
/// Time until a redrive is durable, after which the page is repeated. Deployments wait for the
/// page.
const REDRIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Route of the audit records.
const AUDIT_ROUTE: &str = "redrive of an admitted tenant";

/// Shards whose dead letters are to be scanned.
#[derive(Default)]
pub(crate) struct ScanRequests {
    requested: Mutex<BTreeMap<u16, DueTimes>>,
    changed: Notify,
}

/// Times at which a shard is to be scanned. The scan at the last one serves all requests between.
#[derive(Clone, Copy)]
struct DueTimes {
    first: Instant,
    last: Instant,
}

impl ScanRequests {
    /// Requests a scan of a shard after a delay.
    pub(crate) fn add(&self, shard: u16, delay: Duration) {
        let due = Instant::now() + delay;
        let single = DueTimes {
            first: due,
            last: due,
        };

        let mut requested = self.requested.lock();
        let times = requested.entry(shard).or_insert(single);
        times.first = times.first.min(due);
        times.last = times.last.max(due);
        drop(requested);
        self.changed.notify_one();
    }

    /// Waits for the next request that is due, for a shard that is not scanned. One scan serves all
    /// requests for its shard that are due.
    async fn next(&self, scanned: &BTreeSet<u16>) -> u16 {
        loop {
            // Before the requests are read, so that one that is added meanwhile ends the wait.
            let changed = self.changed.notified();
            let earliest = self
                .requested
                .lock()
                .iter()
                .filter(|(shard, _)| !scanned.contains(shard))
                .min_by_key(|(_, times)| times.first)
                .map(|(shard, times)| (*shard, *times));
            let Some((shard, times)) = earliest else {
                changed.await;
                continue;
            };

            let now = Instant::now();
            if times.first <= now {
                self.start(shard, now);
                return shard;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(times.first) => {}
            }
        }
    }

    /// Removes the requests for a shard that are due.
    fn start(&self, shard: u16, now: Instant) {
        let mut requested = self.requested.lock();
        if let Some(times) = requested.get_mut(&shard)
            && times.last > now
        {
            // The second scan after a change of the list stays requested.
            times.first = times.last;
        } else {
            requested.remove(&shard);
        }
    }
}

/// Redrives the dead letters of tenants that the node admits now.
pub(crate) struct TenantRedrive {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) tenants: Arc<dyn TenantAdmission>,
    pub(crate) locks: Arc<DefinitionLocks>,
    pub(crate) audit: Arc<AuditTrail>,
    pub(crate) requests: Arc<ScanRequests>,
    /// Held while a page is redriven.
    pub(crate) page: tokio::sync::Mutex<()>,
}

/// Reason why a page was not completed.
enum Interruption {
    /// The node drains or no longer owns the shard.
    Ended,
    /// The page is repeated.
    Failed(String),
}

impl TenantRedrive {
    /// Scans the shards that run, and those that start later, until the node stops.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        if !self.config.role.runs_sagas() {
            return;
        }

        background.repeat(
            "tenant redrive",
            self,
            Duration::ZERO,
            |redrive| async move {
                // All shards, also after a panic, which ended the scans in progress.
                redrive.request_all(Duration::ZERO);
                match redrive.serve().await {}
            },
        );
    }

    /// Serves the requests, for several shards at the same time: a shard whose scan fails must not
    /// delay the others.
    async fn serve(self: Arc<Self>) -> Infallible {
        // They end with this future: the node waits for it when it stops.
        let mut scans = FuturesUnordered::new();
        let mut scanned = BTreeSet::new();
        loop {
            tokio::select! {
                shard = self.requests.next(&scanned) => {
                    scanned.insert(shard);
                    scans.push(self.scan(shard));
                }
                Some(shard) = scans.next() => {
                    scanned.remove(&shard);
                }
            }
        }
    }

    /// Scans all shards, because the node admits other tenants than before.
    pub(crate) fn tenants_changed(&self) {
        self.request_all(Duration::ZERO);
        self.request_all(SETTLE_DELAY);
    }

    fn request_all(&self, delay: Duration) {
        for shard in self.runtime.owned_shards() {
            self.requests.add(shard, delay);
        }
    }

    /// Scans a shard once, and returns it.
    async fn scan(&self, shard: u16) -> u16 {
        let mut next = Some(SweepCursor::default());
        let mut retries = RetryLog::default();
        let mut retry_delay = MIN_RETRY_DELAY;
        while let Some(from) = next.take() {
            let started = Instant::now();
            let mut redriven = BTreeMap::new();
            let page = self.redrive_page(shard, &from, &mut redriven).await;
            // Also those of a page that failed later: a repetition does not find them again.
            for (tenant, count) in redriven {
                self.report(&tenant, count);
            }

            match page {
                Ok(following) => {
                    retries.succeeded(|failures| {
                        tracing::info!(
                            shard,
                            failures,
                            "dead letters of admitted tenants are read again"
                        );
                    });
                    retry_delay = MIN_RETRY_DELAY;
                    next = following;
                    tokio::time::sleep(started.elapsed().max(PAUSE)).await;
                }
                Err(Interruption::Ended) => return shard,
                Err(Interruption::Failed(error)) => {
                    retries.failed(|failures| {
                        tracing::warn!(
                            shard,
                            error,
                            failures,
                            "redrive of admitted tenants failed; retrying"
                        );
                    });
                    // The same page again: dead letters that were redriven are removed, so that the
                    // others remain.
                    next = Some(from);
                    tokio::time::sleep(retry_delay).await;
                    retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
        shard
    }

    /// Redrives the dead letters of a page, and returns the start of the next one.
    async fn redrive_page(
        &self,
        shard: u16,
        from: &SweepCursor,
        redriven: &mut BTreeMap<TenantId, u64>,
    ) -> Result<Option<SweepCursor>, Interruption> {
        let _turn = self.page.lock().await;
        let reader = self.reader(shard)?;
        let page = self.read_page(shard, &reader, from).await?;
        if page.found.is_empty() {
            return Ok(page.next);
        }

        // As for a redrive by an operator: a replay may apply the same message.
        let _alone = self.locks.deploying.lock().await;
        for (tenant, id) in page.found {
            // The shard may have moved, and the list may have changed.
            let reader = self.reader(shard)?;
            if self.tenants.admits(&tenant) && self.redrive(shard, &reader, &tenant, id).await? {
                *redriven.entry(tenant).or_default() += 1;
            }
        }
        Ok(page.next)
    }

    /// Returns the reader of a shard of this node.
    fn reader(&self, shard: u16) -> Result<Reader, Interruption> {
        if !self.runtime.health().accepting {
            return Err(Interruption::Ended);
        }
        let mut readers = self.runtime.numbered_readers();
        let found = readers.find(|(number, _)| *number == shard);
        found.map(|(_, reader)| reader).ok_or(Interruption::Ended)
    }

    /// Reads the ids of a page.
    async fn read_page(
        &self,
        shard: u16,
        reader: &Reader,
        from: &SweepCursor,
    ) -> Result<SweepPage<(TenantId, Uuid)>, Interruption> {
        let tenants = Arc::clone(&self.tenants);
        let reader = reader.clone();
        let from = from.clone();
        let scan = move || {
            reader.sweep_dead_letters(&from, MAX_FOUND, SCAN_PAGE, |dead_letter| {
                dead_letter.reason == DeadLetterReason::TenantNotAllowed
                    && tenants.admits(&dead_letter.tenant)
            })
        };
        read(shard, scan).await
    }

    /// Redrives a dead letter. Returns `false` if it is no longer stored, or if the bus rejects it
    /// permanently; then it stays.
    async fn redrive(
        &self,
        shard: u16,
        reader: &Reader,
        tenant: &TenantId,
        id: Uuid,
    ) -> Result<bool, Interruption> {
        let found = {
            let reader = reader.clone();
            let tenant = tenant.clone();
            read(shard, move || reader.dead_letter(&tenant, id)).await?
        };
        let Some(dead_letter) = found else {
            return Ok(false);
        };

        // Otherwise the message would be published, and its dead letter not removed.
        let health = self.runtime.health();
        if !health.is_running || !health.has_capacity {
            let error = "a shard does not run, or its store has no free space".to_owned();
            return Err(Interruption::Failed(error));
        }
        if let Some(error) = self.runtime.metrics().commit_failure() {
            return Err(Interruption::Failed(error));
        }

        let redrive = self.runtime.redrive(dead_letter);
        let Ok(redriven) = tokio::time::timeout(REDRIVE_TIMEOUT, redrive).await else {
            let error = format!("not durable within {REDRIVE_TIMEOUT:?}");
            return Err(Interruption::Failed(error));
        };
        match redriven {
            Ok(_) => Ok(true),
            Err(ControlError::Unavailable) => {
                let error = "the bus or a shard is unavailable".to_owned();
                Err(Interruption::Failed(error))
            }
            Err(error @ (ControlError::DeadLettered(_) | ControlError::Rejected(_))) => {
                tracing::warn!(
                    %tenant, %id, %error,
                    "dead letter of an admitted tenant not redriven; it stays stored"
                );
                Ok(false)
            }
        }
    }

    fn report(&self, tenant: &TenantId, count: u64) {
        tracing::info!(%tenant, count, "dead letters of an admitted tenant redriven");
        let record = AuditRecord {
            tenant: Some(tenant.to_string()),
            target: format!("reason=tenant_not_allowed&count={count}"),
            outcome: AuditOutcome::Succeeded,
            ..AuditRecord::of_process(AUDIT_ROUTE, self.config.node_name())
        };
        self.audit.record(&record);
    }
}

/// Reads from the store of a shard, off the threads of the runtime. Damage does not pass, so it
/// ends the scan.
async fn read<T: Send + 'static>(
    shard: u16,
    read: impl FnOnce() -> Result<T, orlog_store::Error> + Send + 'static,
) -> Result<T, Interruption> {
    // The task has no result only if it panicked or the process stops.
    let result = tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| Interruption::Ended)?;
    result.map_err(|error| {
        if error.is_damage() {
            tracing::error!(
                shard, %error,
                "redrive of admitted tenants ended; redrive the other dead letters after a repair"
            );
            Interruption::Ended
        } else {
            Interruption::Failed(error.to_string())
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::{SETTLE_DELAY, ScanRequests};

    /// Returns the shard whose scan is due now.
    fn due(requests: &ScanRequests, scanned: &[u16]) -> Option<u16> {
        let scanned: BTreeSet<_> = scanned.iter().copied().collect();
        requests.next(&scanned).now_or_never()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_for_a_shard_are_merged_and_wait_for_its_scan() {
        let requests = ScanRequests::default();
        for _ in 0..1000 {
            requests.add(1, Duration::ZERO);
            requests.add(1, SETTLE_DELAY);
        }
        requests.add(2, Duration::ZERO);

        assert_eq!(due(&requests, &[1]), Some(2), "shard 1 is scanned");
        assert_eq!(due(&requests, &[1]), None);
        assert_eq!(due(&requests, &[]), Some(1));
        assert_eq!(due(&requests, &[]), None, "the second scan is not due");
        tokio::time::advance(SETTLE_DELAY).await;
        assert_eq!(due(&requests, &[]), Some(1));
        assert_eq!(due(&requests, &[]), None, "one scan serves all requests");
    }
}
