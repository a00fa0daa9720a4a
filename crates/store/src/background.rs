//! The threads that work for a store behind its commits: one folds, one syncs where commits do not.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::disk::Disk;
use crate::error::Error;
use crate::fold;
use crate::options::Durability;
use crate::shared::Shared;

/// Running threads; dropping it stops them and waits for their end.
#[derive(Debug)]
pub(crate) struct Background {
    /// One sender a thread; a thread ends when its sender is gone. The first one is the folder's.
    wakers: Vec<SyncSender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts what the store needs.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        disk: &Arc<Disk>,
        durability: Durability,
        path: &Path,
    ) -> Result<Self, Error> {
        let mut background = Self { wakers: Vec::new(), threads: Vec::new() };
        let wrong = |source| Error::Io { action: "start a thread for", path: path.to_owned(), source };
        let folder = Arc::clone(shared);
        background.spawn("orlog-fold", move |wake| fold::run(&folder, &wake)).map_err(wrong)?;
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
