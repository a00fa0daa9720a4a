//! Collecting: definitions that take no new instances and that no instance is pinned to are dropped.
//!
//! Why none is dropped that an instance still needs, or is about to need, is told at [`orlog_actors::Programs`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{Change, Deployment, ProgramRef};

use super::App;
use super::deploy::DeployError;
use crate::definitions::Sight;

/// How long after the start of a node its definitions are collected.
const AFTER_START: Duration = Duration::from_mins(1);
/// How often it is looked whether everybody decides by the definitions in force.
const LOOK: Duration = Duration::from_millis(10);
/// How long that is waited for; then the next collection does it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a collection came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The definitions that were dropped.
    pub dropped: Vec<ProgramRef>,
    /// Retired definitions that stay, because instances are pinned to them.
    pub kept: usize,
}

impl App {
    /// Drops the definitions that nobody uses.
    ///
    /// # Errors
    /// When a shard is not available, or a store cannot be read. What was dropped until then was not in use.
    pub async fn collect(self: &Arc<Self>) -> Result<Collected, DeployError> {
        let app = Arc::clone(self);
        let whole = tokio::spawn(async move { app.collect_whole().await });
        whole.await.unwrap_or(Err(DeployError::Ending))
    }

    /// Collects once the node has been up for a while.
    pub(super) fn collect_after_start(self: &Arc<Self>) {
        self.collect_later(AFTER_START);
    }

    /// Collects in the background.
    pub(super) fn collect_soon(self: &Arc<Self>) {
        self.collect_later(Duration::ZERO);
    }

    fn collect_later(self: &Arc<Self>, after: Duration) {
        let app = Arc::downgrade(self);
        self.background.later(after, async move {
            let Some(app) = app.upgrade() else { return };
            if let Err(error) = app.collect_whole().await {
                tracing::warn!(%error, "definitions that nobody uses could not be collected; the next time they are");
            }
        });
    }

    async fn collect_whole(self: &Arc<Self>) -> Result<Collected, DeployError> {
        // No deployment and no migration in between.
        let _alone = self.deploying.lock().await;
        let retired = self.retired()?;
        if retired.is_empty() || !self.settle().await {
            return Ok(Collected::default());
        }
        self.runtime.barrier().await?;
        let app = Arc::clone(self);
        let counted = tokio::task::spawn_blocking(move || app.pins(u64::MAX)).await;
        let pins = counted.map_err(|_| DeployError::Ending)??;
        let loaded = self.programs.all();
        for warning in
            self.definitions.old_needs(&Sight { catalog: &self.catalog, loaded: &loaded, pins: &pins })
        {
            tracing::warn!("{warning}");
        }
        let (used, unused): (Vec<_>, Vec<_>) =
            retired.into_iter().partition(|program| pins.by_hash.contains_key(&program.hash));
        self.programs.remove(&unused.iter().map(|program| program.hash).collect());
        for program in &unused {
            self.runtime.change_everywhere(&Change::DropDefinition { hash: program.hash }).await?;
            self.collected.inc();
        }
        let names: Vec<_> =
            unused.iter().map(|one| format!("{} version {}", one.saga, one.version)).collect();
        tracing::info!(dropped = ?names, kept = used.len(), "definitions that nobody uses are collected");
        Ok(Collected { dropped: unused, kept: used.len() })
    }

    /// The definitions that any shard keeps and that take no new instances.
    fn retired(&self) -> Result<Vec<ProgramRef>, orlog_store::Error> {
        let in_force = self.definitions.in_force();
        let mut seen: BTreeSet<[u8; 16]> =
            in_force.iter().map(|definition| definition.program.reference().hash).collect();
        // A deployment whose outcome was not heard is in force at the next start.
        for reader in self.runtime.readers() {
            let stored = reader.deployment()?;
            seen.extend(stored.iter().flat_map(Deployment::in_force).map(|deployed| deployed.program.hash));
        }
        let mut retired = Vec::new();
        for reader in self.runtime.readers() {
            let kept = reader.definitions()?.into_iter().map(|(program, _)| program);
            retired.extend(kept.filter(|program| seen.insert(program.hash)));
        }
        Ok(retired)
    }

    /// Waits until nobody decides by definitions that are not in force any more; `false` when somebody still does.
    async fn settle(&self) -> bool {
        let settled = async {
            while !self.programs.settled() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, settled).await.is_ok()
    }
}
