//! Scan of the log from its first message, without a durable name.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_journal::Cursor;

use super::log::StreamLog;
use crate::subject_matcher::SubjectMatcher;
use crate::{Delivery, Error, ScanStart, StreamScan};

/// See [`StreamScan`].
#[derive(Debug)]
pub(super) struct EmbeddedScan {
    log: Arc<StreamLog>,
    interest: Arc<SubjectMatcher>,
    since: ScanStart,
    cursor: Option<Cursor>,
    read_to: u64,
    end: u64,
}

impl EmbeddedScan {
    pub(super) fn new(log: Arc<StreamLog>, interest: SubjectMatcher, since: ScanStart) -> Self {
        let end = log.end().sequence;
        let read_to = match since {
            ScanStart::Sequence(first) => first.saturating_sub(1),
            ScanStart::Time(_) => 0,
        };
        Self { log, interest: Arc::new(interest), since, cursor: None, read_to, end }
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
impl StreamScan for EmbeddedScan {
    async fn next(&mut self) -> Result<Vec<Delivery>, Error> {
        while self.read_to < self.end {
            let (log, interest, after) = (Arc::clone(&self.log), Arc::clone(&self.interest), self.read_to);
            let mut cursor = self.cursor.take();
            let reading = tokio::task::spawn_blocking(move || {
                let batch = log.read_from_disk(&mut cursor, after, &interest);
                (batch, cursor)
            });
            let (batch, cursor) = reading.await.map_err(|error| Error::Unavailable(error.to_string()))?;
            let batch = batch?;
            self.cursor = cursor;
            self.read_to = batch.read_to;
            let mut found: Vec<_> = batch.messages.into_iter().map(Delivery::new).collect();
            found.retain(|delivery| self.wants(delivery));
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
