//! Retention: what was kept long enough is forgotten, a little at a time.
//!
//! There is no index by time. Every shard is gone through in the order of its keys, again and again, and what is due is purged by small
//! changes among all others; ADR 0011 says what that costs. A pass that breaks off is simply made again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use orlog_model::{InstanceKey, TenantId, Timestamp};
use orlog_store::{Bookmark, PURGED_AT_ONCE, Reader, Stretch};
use uuid::Uuid;

use super::App;
use super::deploy::DeployError;
use super::purge_counts::Purged;

/// How long after the start of a node it is looked for the first time, at most.
const AFTER_START: Duration = Duration::from_mins(1);
/// Changes under way at once: a small part of a group of commits, so that nobody waits long behind them.
const AT_ONCE: usize = 64;
/// Rows that are looked at in one go.
const LOOK: usize = 2048;
/// Between two goes at least; otherwise as long as a go took, so that it is never more than half of the time.
const PAUSE: Duration = Duration::from_millis(2);

impl App {
    /// Goes through all shards now and then, for as long as the node lives.
    pub(super) fn purge_after_start(self: &Arc<Self>) {
        if self.config.roles.runs_sagas() {
            self.purge_later(AFTER_START.min(self.config.retention.every));
            self.trim_later();
        }
    }

    fn purge_later(self: &Arc<Self>, after: Duration) {
        let app = Arc::downgrade(self);
        self.background.later(after, async move {
            let Some(app) = app.upgrade() else { return };
            // A commit may wait for room, or for a log that is away; the node stops all the same.
            let pass = tokio::select! {
                biased;
                () = app.background.stopping() => return,
                pass = app.purge() => pass,
            };
            match pass {
                Ok(purged) if purged != Purged::default() => {
                    tracing::info!(?purged, "what was kept long enough is forgotten");
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "not all that was kept long enough is forgotten; the next pass goes on"),
            }
            app.purge_later(app.config.retention.every);
        });
    }

    /// Goes once through all shards and forgets what was kept long enough. Tasks go after their instance.
    ///
    /// # Errors
    /// When a shard is not available, or a store cannot be read. What was forgotten until then is.
    pub async fn purge(self: &Arc<Self>) -> Result<Purged, DeployError> {
        let mut all = Purged::default();
        let shards: Vec<_> = self.runtime.numbered_readers().collect();
        for (shard, reader) in shards {
            let purged = Purged {
                instances: self.purge_instances(&reader).await?,
                tasks: self.purge_tasks(&reader).await?,
                dead_letters: self.purge_dead_letters(shard, &reader).await?,
            };
            self.purges.count(&purged);
            all.instances += purged.instances;
            all.tasks += purged.tasks;
            all.dead_letters += purged.dead_letters;
        }
        Ok(all)
    }

    async fn purge_instances(self: &Arc<Self>, reader: &Reader) -> Result<u64, DeployError> {
        let mut gone = 0;
        let mut walk = Walk::begin(self);
        while let Some(stretch) = walk.go(reader, sweep_instances).await? {
            let (mut left, mut rounds) = (stretch.found, 0);
            while !left.is_empty() {
                rounds += 1;
                let asked =
                    left.iter().map(|(key, version)| self.runtime.purge_instance(key.clone(), *version));
                let answers = try_join_all(asked).await?;
                // A long history takes more than one change; what is live stays for another pass.
                let taken = left.into_iter().zip(answers).filter(|(_, taken)| *taken).map(|(one, _)| one);
                let (more, done): (Vec<_>, Vec<_>) =
                    taken.partition(|(_, version)| *version >= rounds * PURGED_AT_ONCE as u64);
                gone += done.len() as u64;
                left = more;
            }
        }
        Ok(gone)
    }

    async fn purge_tasks(self: &Arc<Self>, reader: &Reader) -> Result<u64, DeployError> {
        let mut gone = 0;
        let mut walk = Walk::begin(self);
        while let Some(stretch) = walk.go(reader, sweep_tasks).await? {
            let mut by_instance: BTreeMap<InstanceKey, Vec<Uuid>> = BTreeMap::new();
            for (instance, id) in stretch.found {
                by_instance.entry(instance).or_default().push(id);
            }
            for (instance, tasks) in by_instance {
                let count = tasks.len() as u64;
                gone += if self.runtime.purge_tasks(instance, tasks).await? { count } else { 0 };
            }
        }
        Ok(gone)
    }

    async fn purge_dead_letters(self: &Arc<Self>, shard: u16, reader: &Reader) -> Result<u64, DeployError> {
        let mut gone = 0;
        let mut walk = Walk::begin(self);
        while let Some(stretch) = walk.go(reader, sweep_dead_letters).await? {
            gone += stretch.found.len() as u64;
            let purges = stretch.found.into_iter();
            try_join_all(purges.map(|(tenant, id)| self.runtime.purge_dead_letter(shard, tenant, id)))
                .await?;
        }
        Ok(gone)
    }
}

/// A way through a table, with rests.
struct Walk<'a> {
    app: &'a Arc<App>,
    next: Option<Bookmark>,
    begun: Option<Instant>,
}

impl<'a> Walk<'a> {
    fn begin(app: &'a Arc<App>) -> Self {
        Self { app, next: Some(Bookmark::default()), begun: None }
    }

    /// The next stretch, after a rest; `None` at the end, and when the node stops.
    async fn go<T: Send + 'static>(
        &mut self,
        reader: &Reader,
        look: impl FnOnce(&App, &Reader, &Bookmark) -> Result<Stretch<T>, orlog_store::Error> + Send + 'static,
    ) -> Result<Option<Stretch<T>>, DeployError> {
        let Some(from) = self.next.take() else { return Ok(None) };
        let rest = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed().max(PAUSE));
        if !self.app.background.pause(rest).await || !self.app.runtime.health().accepting {
            return Ok(None);
        }
        self.begun = Some(Instant::now());
        let (app, reader) = (Arc::clone(self.app), reader.clone());
        let looked = tokio::task::spawn_blocking(move || look(&app, &reader, &from)).await;
        let mut stretch = looked.map_err(|_| DeployError::Ending)??;
        self.next = stretch.next.take();
        Ok(Some(stretch))
    }
}

fn sweep_instances(
    app: &App,
    reader: &Reader,
    from: &Bookmark,
) -> Result<Stretch<(InstanceKey, u64)>, orlog_store::Error> {
    let (now, retention) = (app.clock.now(), &app.config.retention);
    // An event that may come again must find the instance that it was for: also after a rest of the store, and also where that was
    // made with a longer window than is configured now.
    let remembered = reader.remembered_since(now)?;
    reader.sweep_instances(from, (AT_ONCE, LOOK), |key, instance| {
        let window = retention.of_instance(&key.tenant, &key.saga).limit();
        let is_past = |window| is_past(instance.updated_at, window, now);
        instance.is_over() && instance.updated_at <= remembered && window.is_some_and(is_past)
    })
}

fn sweep_tasks(
    _: &App,
    reader: &Reader,
    from: &Bookmark,
) -> Result<Stretch<(InstanceKey, Uuid)>, orlog_store::Error> {
    reader.sweep_tasks(from, AT_ONCE)
}

fn sweep_dead_letters(
    app: &App,
    reader: &Reader,
    from: &Bookmark,
) -> Result<Stretch<(TenantId, Uuid)>, orlog_store::Error> {
    let (now, retention) = (app.clock.now(), &app.config.retention);
    reader.sweep_dead_letters(from, (AT_ONCE, LOOK), |letter| {
        retention.of_dead_letter(&letter.tenant).limit().is_some_and(|window| is_past(letter.at, window, now))
    })
}

/// Whether a window that began then has ended.
fn is_past(begun: Timestamp, window: Duration, now: Timestamp) -> bool {
    begun.after(window) <= now
}

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
