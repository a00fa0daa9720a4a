//! Background threads of a store: one flushes, one syncs if commits do not.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::error::Error;
use crate::flush;
use crate::options::Durability;
use crate::replication::metrics::LogMetrics;
use crate::replication::open::ReplicationOptions;
use crate::replication::snapshot;
use crate::shared::Shared;
use crate::store_dir::StoreDir;

/// Running threads. Drop stops them and joins them.
#[derive(Debug)]
pub(crate) struct Background {
    /// One sender for each thread; a thread ends when its sender is dropped. The first one belongs
    /// to the flusher.
    wakers: Vec<SyncSender<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Sender of the snapshot thread. Drop does not join this thread, because it may be in a
    /// network call. A snapshot that it saves is valid under any later owner.
    snapshots: Option<SyncSender<()>>,
}

impl Background {
    /// Starts the threads that the store requires.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        disk: &Arc<StoreDir>,
        durability: Durability,
        path: &Path,
    ) -> Result<Self, Error> {
        let mut background = Self {
            wakers: Vec::new(),
            threads: Vec::new(),
            snapshots: None,
        };

        let io_error = Error::io("start a thread for", path);
        let flusher = Arc::clone(shared);
        // The flusher is the first thread, because `wake_flusher` uses the first waker.
        background
            .spawn("orlog-flush", move |wake| {
                flush::maintenance_loop(&flusher, &wake);
            })
            .map_err(&io_error)?;

        // With `Sync`, each commit syncs its own record.
        if let Durability::Interval(interval) = durability {
            let shared = Arc::clone(shared);
            let disk = Arc::clone(disk);
            background
                .spawn("orlog-sync", move |wake| {
                    sync(&shared, &disk, interval, &wake);
                })
                .map_err(io_error)?;
        }

        Ok(background)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> io::Result<()> {
        // A thread handles all work when it wakes, so one pending wake-up is enough.
        let (waker, wake) = sync_channel(1);
        self.threads.push(
            Builder::new()
                .name(name.to_owned())
                .spawn(move || run(wake))?,
        );
        self.wakers.push(waker);
        Ok(())
    }

    /// Starts the snapshot thread.
    pub(crate) fn save_snapshots(
        &mut self,
        shared: &Arc<Shared>,
        meter: &Arc<LogMetrics>,
        replication: &ReplicationOptions,
        dir: &Path,
    ) -> Result<(), Error> {
        let (waker, wake) = sync_channel(1);
        let shared = Arc::clone(shared);
        let meter = Arc::clone(meter);
        let replication = replication.clone();
        let path = dir.to_owned();

        Builder::new()
            .name("orlog-snapshot".to_owned())
            .spawn(move || snapshot::run(&shared, &meter, &replication, &path, &wake))
            .map_err(Error::io("start a thread for", dir))?;

        self.snapshots = Some(waker);
        Ok(())
    }

    /// Notifies the snapshot thread that a snapshot is due.
    pub(crate) fn wake_snapshots(&self) {
        if let Some(waker) = &self.snapshots {
            // As for the flusher: a full channel has a wake-up already.
            waker.try_send(()).ok();
        }
    }

    /// Notifies the flusher that a memtable is ready.
    pub(crate) fn wake_flusher(&self) {
        if let Some(waker) = self.wakers.first() {
            // If the channel is full, a wake-up is already pending; if it is closed, the thread is
            // stopping.
            waker.try_send(()).ok();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A thread ends when its waker is dropped, so this precedes the joins.
        self.wakers.clear();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("store background thread panicked");
            }
        }
    }
}

/// Syncs the journal in every interval with writes.
fn sync(shared: &Shared, disk: &StoreDir, interval: Duration, wake: &Receiver<()>) {
    while wake.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        // After a failed sync the journal rejects every call. Only a recovery can continue, and it
        // starts another thread.
        if let Err(error) = shared.record_failure(shared.sync(disk)) {
            tracing::error!(%error, "journal sync failed");
            return;
        }
    }
}
