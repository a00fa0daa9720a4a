//! Retention: purges expired rows in small batches.
//!
//! An index by time finds the ended instances (ADR 0056); tasks and dead letters are scanned in key
//! order. Due rows are purged by small groups of changes among all others. An interrupted pass is
//! repeated.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use orlog_actors::{MetricSink, Runtime};
use orlog_model::{Clock, InstanceKey, TenantId, Timestamp};
use orlog_store::{PURGE_BATCH, Reader, SweepCursor, SweepPage};
use prometheus_client::metrics::counter::Counter;
use uuid::Uuid;

use crate::background::BackgroundTasks;
use crate::config::Config;
use crate::definitions::change::DeployError;

/// Maximum delay between the start of a node and the first pass.
const STARTUP_DELAY: Duration = Duration::from_mins(1);
/// Maximum number of rows to purge per scan batch.
const MAX_FOUND: usize = 512;
/// Maximum number of rows that concurrent changes delete, so that other changes wait only briefly.
const GROUP_ROWS: u64 = 4096;
/// Rows per scan batch.
const SCAN_BATCH: usize = 2048;
/// Minimum pause between two batches. The pause is at least as long as the last batch took, so a
/// pass leaves half of the time to the commits of sagas.
const PAUSE: Duration = Duration::from_millis(2);
/// Interval of the trims.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// Result of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeResult {
    /// Instances, with their history.
    pub instances: u64,
    /// Tasks, with their task events.
    pub tasks: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// Totals since the start.
#[derive(Default)]
pub struct PurgeCounters {
    /// Purged instances.
    pub instances: Counter,
    pub(crate) tasks: Counter,
    pub(crate) dead_letters: Counter,
}

impl PurgeCounters {
    pub(crate) fn register(registry: &mut impl MetricSink) -> Self {
        let purges = Self::default();
        registry.register("instances_purged_total", purges.instances.clone());
        registry.register("tasks_purged_total", purges.tasks.clone());
        registry.register("dead_letters_purged_total", purges.dead_letters.clone());
        purges
    }
}

/// Purges expired rows and trims the change feed.
pub struct Retention {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What was purged since the start.
    pub purges: PurgeCounters,
}

impl Retention {
    /// Runs passes over all shards periodically, and trims the feeds, until the node stops. Trims
    /// delete the rest of a feed if the export is disabled.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        // Other roles have no stores.
        if !self.config.role.runs_sagas() {
            return;
        }

        let interval = self.config.retention.interval;
        let first = STARTUP_DELAY.min(interval);
        background.repeat("retention", self, first, |retention| async move {
            let started = Instant::now();

            match retention.purge().await {
                Ok(purged) if purged != PurgeResult::default() => {
                    tracing::info!(?purged, "retention purge completed");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "retention purge incomplete; continuing in the next \
                        pass");
                }
            }

            retention
                .config
                .retention
                .interval
                // The interval counts from the start of a pass, so that a long pass does not delay
                // the next one.
                .saturating_sub(started.elapsed())
        });

        background.repeat("feed trim", self, TRIM_INTERVAL, |retention| async move {
            if let Err(error) = retention.trim_feeds().await {
                tracing::debug!(%error, "feed trim failed; retrying later");
            }
            TRIM_INTERVAL
        });
    }

    /// Scans all shards once and purges expired rows. Tasks are purged after their instance.
    ///
    /// # Errors
    /// Fails if a shard is not available or a store cannot be read. Rows purged until then stay
    /// purged.
    pub async fn purge(&self) -> Result<PurgeResult, DeployError> {
        let mut all = PurgeResult::default();
        // The shards of this moment: others can arrive or leave while the pass runs.
        let shards: Vec<_> = self.runtime.numbered_readers().collect();
        for (shard, reader) in shards {
            all.instances += self.purge_instances(&reader).await?;

            // After the instances: a task stays as long as its instance.
            all.tasks += self.purge_tasks(&reader).await?;
            all.dead_letters += self.purge_dead_letters(shard, &reader).await?;
        }
        Ok(all)
    }

    async fn purge_instances(&self, reader: &Reader) -> Result<u64, DeployError> {
        let mut removed = 0;
        let mut sweep = TableSweep::start(self);
        while let Some(page) = sweep.next_page(reader, sweep_instances).await? {
            // The remaining rows of each instance: one per version.
            let mut waiting: VecDeque<(InstanceKey, u64, u64)> = page
                .found
                .into_iter()
                .map(|(key, version)| (key, version, version + 1))
                .collect();
            while !waiting.is_empty() {
                let group = take_group(&mut waiting);
                let requests = group
                    .iter()
                    .map(|(key, version, _)| self.runtime.purge_instance(key.clone(), *version));
                let responses = try_join_all(requests).await?;

                // A long history needs several changes; live instances wait for another pass.
                let accepted = group
                    .into_iter()
                    .zip(responses)
                    .filter(|(_, accepted)| *accepted);
                let (more, done): (Vec<_>, Vec<_>) = accepted
                    .map(|(one, _)| one)
                    .partition(|(_, _, rows)| *rows > PURGE_BATCH as u64);

                self.purges.instances.inc_by(done.len() as u64);
                removed += done.len() as u64;

                let shorter = more
                    .into_iter()
                    .map(|(key, version, rows)| (key, version, rows - PURGE_BATCH as u64));
                waiting.extend(shorter);
            }
        }

        Ok(removed)
    }

    async fn purge_tasks(&self, reader: &Reader) -> Result<u64, DeployError> {
        let mut removed = 0;
        let mut sweep = TableSweep::start(self);
        while let Some(page) = sweep.next_page(reader, sweep_tasks).await? {
            let mut by_instance: BTreeMap<InstanceKey, Vec<Uuid>> = BTreeMap::new();
            for (instance, id) in page.found {
                by_instance.entry(instance).or_default().push(id);
            }

            let purges = by_instance.into_iter().map(|(instance, tasks)| async move {
                let count = tasks.len() as u64;
                let is_purged = self.runtime.purge_tasks(instance, tasks).await?;
                Ok::<_, DeployError>(if is_purged { count } else { 0 })
            });
            let count = try_join_all(purges).await?.iter().sum();

            self.purges.tasks.inc_by(count);
            removed += count;
        }

        Ok(removed)
    }

    async fn purge_dead_letters(&self, shard: u16, reader: &Reader) -> Result<u64, DeployError> {
        let mut removed = 0;
        let mut sweep = TableSweep::start(self);
        while let Some(page) = sweep.next_page(reader, sweep_dead_letters).await? {
            let count = page.found.len() as u64;
            let purges = page.found.into_iter();
            try_join_all(
                purges.map(|(tenant, id)| self.runtime.purge_dead_letter(shard, tenant, id)),
            )
            .await?;
            self.purges.dead_letters.inc_by(count);
            removed += count;
        }

        Ok(removed)
    }

    /// Deletes feed entries of every local shard older than `export.keep`, or beyond
    /// `export.max_commits`.
    ///
    /// # Errors
    /// Fails if a shard is not available or a store cannot be read.
    pub async fn trim_feeds(&self) -> Result<(), DeployError> {
        let export = &self.config.export;
        let before = self.clock.now().saturating_sub(export.retention);
        let max_commits = export.max_commits.get();
        let shards: Vec<_> = self.runtime.numbered_readers().collect();
        for (shard, reader) in shards {
            // Each change deletes a bounded number of rows, so that other commits wait only
            // briefly.
            while self.is_trim_due(&reader, before, max_commits).await? {
                self.runtime.trim_feed(shard, before, max_commits).await?;
            }
        }

        Ok(())
    }

    /// Returns whether a feed has entries to delete; `false` if the node drains.
    async fn is_trim_due(
        &self,
        reader: &Reader,
        before: Timestamp,
        max_commits: u64,
    ) -> Result<bool, DeployError> {
        // A node that drains must not receive new commits; the next start continues the trim.
        if !self.runtime.health().accepting {
            return Ok(false);
        }

        // The read can wait for the disk, which would block a thread of the runtime.
        let reader = reader.clone();
        let read = move || reader.is_trim_due(before, max_commits);
        let is_due = tokio::task::spawn_blocking(read).await;
        Ok(is_due.map_err(|_| DeployError::ShuttingDown)??)
    }
}

/// Takes the next instances whose changes delete at most [`GROUP_ROWS`] rows together; at least
/// one.
fn take_group(waiting: &mut VecDeque<(InstanceKey, u64, u64)>) -> Vec<(InstanceKey, u64, u64)> {
    let mut sum = 0;
    let count = waiting.iter().take_while(|(_, _, rows)| {
        // A change deletes at most one batch of rows, however long the history is.
        sum += rows.min(&(PURGE_BATCH as u64));
        sum <= GROUP_ROWS
    });
    let count = count.count().max(1);
    waiting.drain(..count).collect()
}

/// Scan of a table, with pauses.
struct TableSweep<'a> {
    retention: &'a Retention,
    next: Option<SweepCursor>,
    /// Start of the last batch.
    started: Option<Instant>,
}

impl<'a> TableSweep<'a> {
    fn start(retention: &'a Retention) -> Self {
        Self {
            retention,
            next: Some(SweepCursor::default()),
            started: None,
        }
    }

    /// Returns the next batch after a pause; `None` at the end of the table and when the node
    /// drains.
    async fn next_page<T: Send + 'static>(
        &mut self,
        reader: &Reader,
        scan: impl FnOnce(
            &SweepContext,
            &Reader,
            &SweepCursor,
        ) -> Result<SweepPage<T>, orlog_store::Error>
        + Send
        + 'static,
    ) -> Result<Option<SweepPage<T>>, DeployError> {
        let Some(from) = self.next.take() else {
            return Ok(None);
        };

        let taken = self
            .started
            .map_or(Duration::ZERO, |started| started.elapsed());

        // A pause as long as the last batch took: a purge uses at most half of the time of the
        // store.
        tokio::time::sleep(taken.max(PAUSE)).await;

        let Retention {
            config,
            runtime,
            clock,
            ..
        } = self.retention;

        // A node that drains must not receive new commits; the next start continues the purge.
        if !runtime.health().accepting {
            return Ok(None);
        }

        let context = SweepContext {
            config: Arc::clone(config),
            now: clock.now(),
        };

        self.started = Some(Instant::now());
        let reader = reader.clone();
        let scanned = tokio::task::spawn_blocking(move || scan(&context, &reader, &from)).await;
        let mut page = scanned.map_err(|_| DeployError::ShuttingDown)??;
        self.next = page.next.take();

        Ok(Some(page))
    }
}

/// Windows and time of a scan.
struct SweepContext {
    config: Arc<Config>,
    now: Timestamp,
}

fn sweep_instances(
    SweepContext { config, now }: &SweepContext,
    reader: &Reader,
    from: &SweepCursor,
) -> Result<SweepPage<(InstanceKey, u64)>, orlog_store::Error> {
    // A redelivered event must find its instance: also after downtime of the store, and also if the
    // window was longer when the instance was created.
    let remembered = reader.dedupe_horizon(*now)?;
    reader.sweep_ended(from, MAX_FOUND, SCAN_BATCH, |tenant, saga| {
        // `sweep_ended` excludes its limit, but an instance is due as soon as its window has ended.
        let window = config.retention.for_instance(tenant, saga).limit()?;
        Some(
            now.saturating_sub(window)
                .min(remembered)
                .saturating_add(Duration::from_millis(1)),
        )
    })
}

fn sweep_tasks(
    _: &SweepContext,
    reader: &Reader,
    from: &SweepCursor,
) -> Result<SweepPage<(InstanceKey, Uuid)>, orlog_store::Error> {
    reader.sweep_tasks(from, MAX_FOUND)
}

fn sweep_dead_letters(
    SweepContext { config, now }: &SweepContext,
    reader: &Reader,
    from: &SweepCursor,
) -> Result<SweepPage<(TenantId, Uuid)>, orlog_store::Error> {
    reader.sweep_dead_letters(from, MAX_FOUND, SCAN_BATCH, |dead_letter| {
        let window = config
            .retention
            .for_dead_letter(&dead_letter.tenant)
            .limit();
        window.is_some_and(|window| is_past(dead_letter.at, window, *now))
            // If the instance cannot be read, it may wait for the result.
            && !reader.is_awaited(dead_letter).unwrap_or(true)
    })
}

/// Returns whether a window that started at `begun` has ended.
fn is_past(since: Timestamp, window: Duration, now: Timestamp) -> bool {
    since.saturating_add(window) <= now
}
