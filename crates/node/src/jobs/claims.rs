//! Durable claims of jobs: stores the claims of workers in the shards of their jobs, shortly after
//! they change.
//!
//! A claim is stored with the first pass after it, at most [`INTERVAL`] later, and a pass commits
//! once for each shard. A job that ends before the pass is not stored, so short jobs cost nothing.
//! After a restart or a takeover, the job board continues the claims that are stored (ADR 0089).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::Runtime;
use orlog_effect::Catalog;
use orlog_model::{Clock, JobClaimUpdate};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::background::BackgroundTasks;

/// Interval of the passes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Stores the claims of workers.
pub(crate) struct ClaimWriter {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Changes that a shard could not store, by job. Held during a pass: the changes of a job
    /// follow each other.
    pub(crate) unsaved: Mutex<BTreeMap<Uuid, JobClaimUpdate>>,
}

impl ClaimWriter {
    /// Stores claims until the node stops.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        background.repeat("job claims", self, INTERVAL, |writer| async move {
            // In a task of its own: the end of this one would drop changes that are not stored yet.
            let saving = Arc::clone(&writer);
            if tokio::spawn(async move { saving.save().await })
                .await
                .is_err()
            {
                tracing::error!("the pass that stores the claims of jobs panicked");
            }

            INTERVAL
        });
    }

    /// Stores the claims that have changed.
    pub(crate) async fn save(&self) {
        let mut unsaved = self.unsaved.lock().await;
        for (board, ..) in self.catalog.job_boards() {
            let updates = board.take_claim_updates(self.clock.as_ref());
            unsaved.extend(updates.into_iter().map(|update| (update.job, update)));
        }

        if unsaved.is_empty() {
            return;
        }

        // One update per job: a later claim replaces an earlier one that is not stored yet.
        let updates = std::mem::take(&mut *unsaved).into_values().collect();
        let failed = self.runtime.update_job_claims(updates).await;

        // The claims of a shard that has left this process belong to its next owner.
        let remaining = failed
            .into_iter()
            .filter(|update| self.runtime.reader(&update.instance).is_some());
        unsaved.extend(remaining.map(|update| (update.job, update)));
    }
}
