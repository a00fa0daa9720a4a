//! Starting a shard that has come to this pod: its store is taken over, and lives by the definitions in force here.

use async_trait::async_trait;
use orlog_actors::{Runtime, ShardParts};
use orlog_model::Change;
use orlog_store::{Reader, Writer};

use super::cluster::Host;
use super::{App, initial_definitions, layout, part_config, replication};
use crate::config::Config;
use crate::definitions::{Checked, Definitions};

/// Who deploys where a shard comes to a pod with other definitions.
const TAKER: &str = "takeover of the shard";

#[async_trait]
impl Host for App {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn config(&self) -> &Config {
        &self.config
    }

    async fn run_shard(&self, shard: u16, epoch: u64) -> anyhow::Result<()> {
        let (mut writer, reader) = self.shard_store(shard, epoch).await?;
        // No deployment in between.
        let alone = self.deploying.lock().await;
        self.follow(&reader).await;
        self.adopt(&mut writer, &reader)?;
        let slots = part_config::ranges(self.config.shards).nth(usize::from(shard));
        let slots = slots.expect("a shard's number is below their count");
        self.runtime.take(ShardParts { index: shard, slots, writer, reader }).await?;
        drop(alone);
        Ok(())
    }
}

impl App {
    /// Puts the definitions of a store in force here, where they were deployed later than ours over the same folder: another
    /// pod was told while this one was away.
    async fn follow(&self, reader: &Reader) {
        let Ok(Some(standing)) = reader.deployment() else { return };
        let ours = self.definitions.deployment();
        let (number, folder) = ours.as_ref().map_or((0, None), |ours| (ours.number, ours.folder));
        if standing.number <= number || (ours.is_some() && standing.folder != folder) {
            return;
        }
        match initial_definitions::recorded(
            &self.definitions,
            &self.catalog,
            Some(reader),
            Some(standing.clone()),
        ) {
            Ok(chosen) => {
                tracing::info!(
                    number = standing.number,
                    by = standing.by,
                    "a later deployment was found: in force"
                );
                self.definitions.put_in_force(chosen.definitions, chosen.deployment);
                let deploy = Change::Deploy(Box::new(standing));
                if let Err(error) = self.runtime.change_everywhere(&deploy).await {
                    tracing::warn!(%error, "a shard hears of the later deployment when it is taken next");
                }
            }
            Err(error) => {
                let number = standing.number;
                tracing::error!(number, %error, "a later deployment cannot be followed here; ours stay in force");
            }
        }
    }

    /// Puts the definitions in force here in force in a store, and loads those that its instances are pinned to.
    fn adopt(&self, writer: &mut Writer, reader: &Reader) -> anyhow::Result<()> {
        let now = self.clock.now();
        let definitions = self.definitions.in_force().to_vec();
        let standing = reader.deployment()?;
        let folder = self.definitions.deployment().and_then(|deployment| deployment.folder);
        let checked = Checked { definitions, folder };
        let is_kept = |hash: &[u8; 16]| reader.definition(hash).is_ok_and(|found| found.is_some());
        let record = Definitions::record(standing.as_ref(), &checked, (now, TAKER), is_kept);
        let changed = !super::deploy::is_the_same(standing.as_ref(), &record);
        let chosen = initial_definitions::Chosen {
            definitions: checked.definitions,
            deployment: changed.then_some(record),
        };
        initial_definitions::keep(writer, reader, &chosen, now)?;
        let kept = self.kept(Some(reader))?;
        self.programs.replace(Definitions::programs(&chosen.definitions, &kept));
        Ok(())
    }

    async fn shard_store(&self, shard: u16, epoch: u64) -> anyhow::Result<(Writer, Reader)> {
        let dir = layout::shard(&self.config.data, shard);
        let options = part_config::store(&self.config);
        match self.transport.connection() {
            Some(connection) if self.config.replicated() => {
                let pace = part_config::pace(&self.config);
                Ok(replication::open(connection, shard, epoch, dir, options, pace).await?)
            }
            _ => {
                let open = move || orlog_store::open(&dir, options);
                Ok(tokio::task::spawn_blocking(open).await??)
            }
        }
    }
}
