//! The keeper: a thread that writes cursors a little after they moved and finds out what can be dropped.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};

use super::cursors::Cursors;
use super::log::Log;
use super::writer::Job;

/// Cursors are written at most this often.
const PAUSE: Duration = Duration::from_millis(100);

/// The running keeper.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Dropping it stops the thread.
    alive: Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts the thread.
    pub(super) fn start(
        log: Arc<Log>,
        cursors: Arc<Cursors>,
        jobs: Sender<Job>,
        retention_bytes: u64,
    ) -> Self {
        let (alive, stop) = crossbeam_channel::bounded(0);
        let rounds = Rounds { log, cursors, jobs, retention_bytes, dropped: 0 };
        let thread = std::thread::Builder::new()
            .name("bus-keeper".to_owned())
            .spawn(move || rounds.run(&stop))
            .expect("the system can start a thread");
        Self { alive, thread }
    }

    /// Writes the cursors a last time and ends.
    pub(super) fn stop(self) {
        drop(self.alive);
        drop(self.thread.join());
    }
}

struct Rounds {
    log: Arc<Log>,
    cursors: Arc<Cursors>,
    jobs: Sender<Job>,
    retention_bytes: u64,
    dropped: u64,
}

impl Rounds {
    fn run(mut self, stop: &Receiver<Infallible>) {
        let news = self.cursors.news();
        loop {
            select! {
                recv(news) -> _ => {}
                recv(stop) -> _ => break,
            }
            if stop.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            self.round();
        }
        self.cursors.save();
    }

    fn round(&mut self) {
        let Some(lowest) = self.cursors.save() else { return };
        if self.log.bytes() <= self.retention_bytes || self.log.is_held() {
            return;
        }
        let needed = self.log.remembered_from().min(lowest + 1);
        // A log that cannot be read is noticed by those who need it.
        let Ok(record) = self.log.record_of(needed) else { return };
        if record > self.dropped {
            self.dropped = record;
            // A writer that is gone drops nothing any more.
            drop(self.jobs.send(Job::DropBefore(record)));
        }
    }
}
