//! Shards come to this process and leave it while it runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, oneshot};

use crate::instance::registry::{Context, Directory};
use crate::root;
use crate::runtime::handle::{Making, Runtime, RuntimeError};
use crate::shard::actor;
use crate::shard::committer::Slot;
use crate::shard::running::{Running, ShardParts};

/// How often it is looked whether a shard is at rest.
const LOOK: Duration = Duration::from_millis(2);

/// A shard that does not run any more. Its store is still to be closed, which may take a while.
pub struct Released(Arc<Running>);

impl Released {
    /// Closes the store: its folder is free then.
    ///
    /// # Errors
    /// When it did not close in good order; what is committed is safe.
    pub async fn close(self) -> Result<(), orlog_store::Error> {
        self.0.close().await
    }
}

impl Runtime {
    /// Starts a shard in this process.
    ///
    /// # Errors
    /// When it runs already or does not start; then its store is closed again.
    pub async fn take(&self, parts: ShardParts) -> Result<(), RuntimeError> {
        if self.shards.get(parts.index).is_some() {
            return Err(RuntimeError::Taken(parts.index));
        }
        let Making { letters, sources, config, programs, clock, observer, tracer } = &self.making;
        let directory = Directory::new(Arc::new(Context {
            node: config.node.clone(),
            limits: config.limits.clone(),
            slots: config.slots.clone(),
            programs: Arc::clone(programs),
            clock: Arc::clone(clock),
            reader: parts.reader,
            metrics: Arc::clone(&self.metrics),
            letters: Notify::new(),
            tracer: tracer.clone(),
        }));
        let writer = Arc::new(Mutex::new(Slot { writer: parts.writer, failed: false }));
        let arguments = actor::Arguments {
            name: format!("shard-{}", parts.index),
            slots: parts.slots.clone(),
            directory: Arc::clone(&directory),
            writer: Arc::clone(&writer),
            bus: Arc::clone(&self.bus),
            sources: sources.clone(),
            hands: Arc::clone(&self.hands),
            letters: Arc::clone(letters),
            observer: observer.clone(),
        };
        let running = Arc::new(Running { index: parts.index, slots: parts.slots, directory, writer });
        let (reply, started) = oneshot::channel();
        let start = root::Message::Start(Box::new(arguments), Arc::clone(&running), reply);
        let gone = || RuntimeError::Start("the runtime has ended".to_owned());
        self.root.cast(start).map_err(|_| gone())?;
        let started = started.await.unwrap_or_else(|_| Err(gone().to_string()));
        if started.is_err() {
            running.close().await.ok();
        }
        started.map_err(RuntimeError::Start)
    }

    /// Lets a shard go: takes no more events for it, gives what is under way `grace` to end, and stops it. Nothing is committed
    /// any more when this returns. What was cut off is made again, under the same ids, by whoever takes it. `None` when it does
    /// not run here.
    pub async fn release(&self, index: u16, grace: Duration) -> Option<Released> {
        let shard = self.shards.get(index)?;
        let (done, quiet) = oneshot::channel();
        // Errors here and below mean that it has gone already.
        drop(self.root.cast(root::Message::QuiesceOne(index, done)));
        let rests = async {
            quiet.await.ok();
            while !shard.rests() {
                tokio::time::sleep(LOOK).await;
            }
        };
        drop(tokio::time::timeout(grace, rests).await);
        let (done, stopped) = oneshot::channel();
        drop(self.root.cast(root::Message::Stop(index, done)));
        stopped.await.ok();
        Some(Released(shard))
    }

    /// The number of a shard that was lost to another process: it does not run here any more, and its store is closed. Waits
    /// for the next one.
    pub async fn lost(&self) -> Option<u16> {
        self.lost.lock().await.recv().await
    }

    /// Which shards run here.
    #[must_use]
    pub fn owned(&self) -> Vec<u16> {
        self.shards.all().iter().map(|shard| shard.index).collect()
    }
}
