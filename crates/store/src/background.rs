//! The threads that work for a store behind its commits: one folds, one syncs where commits do not.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::error::Error;
use crate::flush;
use crate::options::Durability;
use crate::replication::metrics::Meter;
use crate::replication::open::Replication;
use crate::replication::snapshot;
use crate::shared::Shared;
use crate::store_dir::Disk;

/// Running threads; dropping it stops them and waits for their end.
#[derive(Debug)]
pub(crate) struct Background {
    /// One sender a thread; a thread ends when its sender is gone. The first one is the folder's.
    wakers: Vec<SyncSender<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Of the thread that saves snapshots. Nobody waits for its end: it may be on its way over the network, and what it sends is
    /// a beginning of the log whoever owns it then.
    snapshots: Option<SyncSender<()>>,
}

impl Background {
    /// Starts what the store needs.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        disk: &Arc<Disk>,
        durability: Durability,
        path: &Path,
    ) -> Result<Self, Error> {
        let mut background = Self { wakers: Vec::new(), threads: Vec::new(), snapshots: None };
        let wrong = |source| Error::Io { action: "start a thread for", path: path.to_owned(), source };
        let folder = Arc::clone(shared);
        background.spawn("orlog-fold", move |wake| flush::run(&folder, &wake)).map_err(wrong)?;
        if let Durability::Interval(interval) = durability {
            let (shared, disk) = (Arc::clone(shared), Arc::clone(disk));
            background
                .spawn("orlog-sync", move |wake| sync(&shared, &disk, interval, &wake))
                .map_err(wrong)?;
        }
        Ok(background)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(Receiver<()>) + Send + 'static) -> io::Result<()> {
        let (waker, wake) = sync_channel(1);
        self.threads.push(Builder::new().name(name.to_owned()).spawn(move || run(wake))?);
        self.wakers.push(waker);
        Ok(())
    }

    /// Starts to save snapshots.
    pub(crate) fn save_snapshots(
        &mut self,
        shared: &Arc<Shared>,
        meter: &Arc<Meter>,
        replication: &Replication,
        dir: &Path,
    ) -> Result<(), Error> {
        let (waker, wake) = sync_channel(1);
        let (shared, meter) = (Arc::clone(shared), Arc::clone(meter));
        let (replication, path) = (replication.clone(), dir.to_owned());
        let run = move || snapshot::run(&shared, &meter, &replication, &path, &wake);
        let wrong = |source| Error::Io { action: "start a thread for", path: dir.to_owned(), source };
        Builder::new().name("orlog-snapshot".to_owned()).spawn(run).map_err(wrong)?;
        self.snapshots = Some(waker);
        Ok(())
    }

    /// Says that a snapshot is due.
    pub(crate) fn wake_snapshots(&self) {
        if let Some(waker) = &self.snapshots {
            waker.try_send(()).ok();
        }
    }

    /// Says that there is something to fold.
    pub(crate) fn wake_folder(&self) {
        if let Some(waker) = self.wakers.first() {
            // A full channel means that it will look anyway; a closed one, that it is being stopped.
            waker.try_send(()).ok();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.wakers.clear();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the store panicked");
            }
        }
    }
}

/// Syncs the journal at every interval in which something was written.
fn sync(shared: &Shared, disk: &Disk, interval: Duration, wake: &Receiver<()>) {
    while wake.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = shared.noted(shared.sync(disk)) {
            tracing::error!(%error, "the journal could not be synced");
            return;
        }
    }
}
