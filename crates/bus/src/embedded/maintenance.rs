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
}

impl MaintenanceLoop {
    fn run(self, stop: &Receiver<Infallible>) {
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

    fn round(&self) {
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

        // The writer may skip a request or fail, so each round requests what was not dropped yet.
        if record > self.log.dropped_before() {
            // A stopped writer drops no records.
            drop(self.jobs.send(WriterRequest::DropBefore(record)));
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_journal::{Journal, Options};
    use uuid::Uuid;

    use super::super::log::LogEnd;
    use super::*;

    #[test]
    fn drop_is_requested_until_it_was_done() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path().join("log"), Options::new([7; 16])).unwrap();
        let end = LogEnd {
            sequence: 0,
            record: 0,
            closed: false,
        };
        let log = Arc::new(StreamLog::new(journal.reader(), 0, end));
        log.update_sizes(1, 1);
        let cursors = Arc::new(Cursors::open(dir.path().join("cursors"), Uuid::nil()).unwrap());
        let _name = cursors.acquire("a", None).unwrap();
        let (jobs, requests) = crossbeam_channel::unbounded();
        let rounds = MaintenanceLoop {
            log: Arc::clone(&log),
            cursors,
            jobs,
            retention_bytes: 0,
        };
        let is_requested = || {
            rounds.round();
            matches!(requests.try_recv(), Ok(WriterRequest::DropBefore(1)))
        };

        assert!(is_requested());
        assert!(is_requested(), "the writer has skipped the first request");
        log.set_dropped_before(1);
        assert!(!is_requested());
    }
}
