//! Reads of the stream: the source of a consumer, and the scan without a durable name.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_journal::Cursor;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::log::{LogEnd, StreamLog};
use super::options::closed;
use crate::consumer::{ReadBatch, Source};
use crate::subject_matcher::SubjectMatcher;
use crate::{Delivery, Error, ScanStart, StreamScan};

/// Reads recent messages from memory, and older ones from disk.
#[derive(Debug)]
pub(super) struct LogSource {
    end: watch::Receiver<LogEnd>,
    disk: DiskReader,
}

type DiskRead = (Result<ReadBatch, Error>, Option<Cursor>);

/// Reads a stream from disk on a thread that may block.
#[derive(Debug)]
struct DiskReader {
    log: Arc<StreamLog>,
    interest: Arc<SubjectMatcher>,
    cursor: Option<Cursor>,
    /// Stored here while it runs: a caller that cancels and calls again continues the same read.
    running: Option<JoinHandle<DiskRead>>,
}

impl DiskReader {
    fn new(log: Arc<StreamLog>, interest: SubjectMatcher) -> Self {
        Self {
            log,
            interest: Arc::new(interest),
            cursor: None,
            running: None,
        }
    }

    async fn read(&mut self, after: u64) -> Result<ReadBatch, Error> {
        let running = self.running.get_or_insert_with(|| {
            let log = Arc::clone(&self.log);
            let interest = Arc::clone(&self.interest);
            let mut cursor = self.cursor.take();
            tokio::task::spawn_blocking(move || {
                let batch = log.read_from_disk(&mut cursor, after, &interest);
                (batch, cursor)
            })
        });

        // The handle is removed only after the wait. A caller that cancels and calls again finds
        // the same read.
        let read = running.await;
        self.running = None;
        let (batch, cursor) = read.map_err(|error| Error::Unavailable(error.to_string()))?;
        // A failed read drops the messages that its cursor has passed, so the next one starts at
        // its own position.
        self.cursor = cursor.filter(|_| batch.is_ok());
        batch
    }
}

impl LogSource {
    pub(super) fn new(log: Arc<StreamLog>, interest: SubjectMatcher) -> Self {
        Self {
            end: log.watch(),
            disk: DiskReader::new(log, interest),
        }
    }
}

impl Source for LogSource {
    fn start_round(&mut self) -> Result<(), Error> {
        // The current end counts as seen, so that `changed` reports only later ends.
        if self.end.borrow_and_update().closed {
            Err(closed())
        } else {
            Ok(())
        }
    }

    async fn read(&mut self, after: u64) -> Result<Option<ReadBatch>, Error> {
        let batch = match self.disk.log.read_cached(after, &self.disk.interest) {
            Some(batch) => {
                // The next read from disk is elsewhere.
                self.disk.cursor = None;
                self.disk.running = None;
                batch
            }
            None => self.disk.read(after).await?,
        };
        // A batch that does not advance would make the consumer loop instead of wait.
        Ok(Some(batch).filter(|batch| batch.read_to.sequence > after))
    }

    async fn changed(&mut self, _is_full: bool) -> Result<(), Error> {
        // Each publish wakes also a full consumer, which then waits again. In return, the close of
        // the bus ends every wait.
        self.end.changed().await.map_err(|_| closed())
    }
}

/// Scan of the log from its first message; see [`StreamScan`].
#[derive(Debug)]
pub(super) struct LogScan {
    disk: DiskReader,
    since: ScanStart,
    read_to: u64,
    end: u64,
}

impl LogScan {
    pub(super) fn new(log: Arc<StreamLog>, interest: SubjectMatcher, since: ScanStart) -> Self {
        // The end is fixed here, so that the scan of a stream that grows ends too.
        let end = log.end().sequence;
        let read_to = match since {
            ScanStart::Sequence(first) => first.saturating_sub(1),
            ScanStart::Time(_) => 0,
        };
        Self {
            disk: DiskReader::new(log, interest),
            since,
            read_to,
            end,
        }
    }

    fn wants(&self, delivery: &Delivery) -> bool {
        let late_enough = match self.since {
            ScanStart::Sequence(_) => true,
            ScanStart::Time(time) => delivery.published_at >= time,
        };
        late_enough && delivery.sequence <= self.end
    }
}

#[async_trait]
impl StreamScan for LogScan {
    async fn next(&mut self) -> Result<Vec<Delivery>, Error> {
        while self.read_to < self.end {
            let batch = self.disk.read(self.read_to).await?;
            self.read_to = batch.read_to.sequence;

            let mut found: Vec<_> = batch
                .messages
                .iter()
                .map(|stored| stored.delivery(1))
                .collect();
            found.retain(|delivery| self.wants(delivery));

            // An empty list means the end, so batches without a match are passed.
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    fn end_sequence(&self) -> u64 {
        self.end
    }
}
