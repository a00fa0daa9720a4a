//! What the feed says of old commits is forgotten, so that it stays small whoever reads it, or nobody.

use std::sync::Arc;
use std::time::Duration;

use super::App;
use super::deploy::DeployError;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(10);

impl App {
    /// Looks now and then, for as long as the node lives. Where nothing is exported any more, what is left is forgotten.
    pub(super) fn trim_later(self: &Arc<Self>) {
        let app = Arc::downgrade(self);
        self.background.later(EVERY, async move {
            let Some(app) = app.upgrade() else { return };
            // A commit may wait for room, or for a log that is away; the node stops all the same.
            let trimmed = tokio::select! {
                biased;
                () = app.background.stopping() => return,
                trimmed = app.trim_feeds() => trimmed,
            };
            if let Err(error) = trimmed {
                tracing::debug!(%error, "what the feed says of old commits stays for now");
            }
            app.trim_later();
        });
    }

    /// Forgets what the feed of every shard here says of commits older than `export.keep`, or beyond `export.keep_commits`.
    ///
    /// # Errors
    /// When a shard is not available, or a store cannot be read.
    pub async fn trim_feeds(&self) -> Result<(), DeployError> {
        let export = &self.config.export;
        let (before, keep) = (self.clock.now().before(export.keep), export.keep_commits.get());
        let shards: Vec<_> = self.runtime.numbered_readers().collect();
        for (shard, reader) in shards {
            while reader.is_trim_due(before, keep)? {
                self.runtime.trim_feed(shard, before, keep).await?;
            }
        }
        Ok(())
    }
}
