//! Maintenance thread: writes cursors with a short delay and determines which messages can be
//! dropped.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};

use super::cursors::Cursors;
use super::log::StreamLog;
use super::writer::WriterRequest;

/// Minimum interval between writes of the cursors.
const PAUSE: Duration = Duration::from_millis(100);

/// Running maintenance thread.
#[derive(Debug)]
pub(super) struct Maintenance {
    /// Dropping it stops the thread.
    alive: Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Maintenance {
    /// Starts the thread.
    pub(super) fn start(
        log: Arc<StreamLog>,
        cursors: Arc<Cursors>,
        jobs: Sender<WriterRequest>,
        retention_bytes: u64,
    ) -> Self {
        let (alive, stop) = crossbeam_channel::bounded(0);
        let rounds = MaintenanceLoop {
            log,
            cursors,
            jobs,
            retention_bytes,
            dropped: 0,
        };
        let thread = std::thread::Builder::new()
            .name("bus-keeper".to_owned())
            .spawn(move || rounds.run(&stop))
            .expect("the system can start a thread");
        Self { alive, thread }
    }

    /// Writes the cursors a last time and stops.
    pub(super) fn stop(self) {
        drop(self.alive);
        drop(self.thread.join());
    }
}

struct MaintenanceLoop {
    log: Arc<StreamLog>,
    cursors: Arc<Cursors>,
    jobs: Sender<WriterRequest>,
    retention_bytes: u64,
    dropped: u64,
}

impl MaintenanceLoop {
    fn run(mut self, stop: &Receiver<Infallible>) {
        let notifications = self.cursors.moved();
        loop {
            select! {
                recv(notifications) -> _ => {}
                recv(stop) -> _ => break,
            }

            // Notifications that arrive meanwhile share one write.
            if stop.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            self.round();
        }

        // Without the delay: the next process then redelivers nothing that is acknowledged.
        self.cursors.save();
    }

    fn round(&mut self) {
        // Without any name, nothing is dropped: the first consumer receives all messages.
        let Some(lowest) = self.cursors.save() else {
            return;
        };

        // A backup copies the stores first, and its stream must have all messages that they lack.
        if self.log.bytes() <= self.retention_bytes || self.log.has_retention_hold() {
            return;
        }

        // A restart reads the message ids of the window from the log, so their messages must
        // remain.
        let needed = self.log.dedupe_horizon().min(lowest + 1);
        // Readers of the log report the error.
        let Ok(record) = self.log.record_of(needed) else {
            return;
        };

        if record > self.dropped {
            self.dropped = record;
            // A stopped writer drops no records.
            drop(self.jobs.send(WriterRequest::DropBefore(record)));
        }
    }
}
