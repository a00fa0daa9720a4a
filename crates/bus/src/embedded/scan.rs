//! Reads the log from its first message on, without a name.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_journal::Cursor;

use super::log::Log;
use crate::subject_matcher::Interest;
use crate::{Delivery, Error, Past, Since};

/// See [`Past`].
#[derive(Debug)]
pub(super) struct EmbeddedPast {
    log: Arc<Log>,
    interest: Arc<Interest>,
    since: Since,
    cursor: Option<Cursor>,
    read_to: u64,
    end: u64,
}

impl EmbeddedPast {
    pub(super) fn new(log: Arc<Log>, interest: Interest, since: Since) -> Self {
        let end = log.end().sequence;
        let read_to = match since {
            Since::Sequence(first) => first.saturating_sub(1),
            Since::Time(_) => 0,
        };
        Self { log, interest: Arc::new(interest), since, cursor: None, read_to, end }
    }

    fn wants(&self, delivery: &Delivery) -> bool {
        let late_enough = match self.since {
            Since::Sequence(_) => true,
            Since::Time(time) => delivery.published_at >= time,
        };
        late_enough && delivery.sequence <= self.end
    }
}

#[async_trait]
impl Past for EmbeddedPast {
    async fn next(&mut self) -> Result<Vec<Delivery>, Error> {
        while self.read_to < self.end {
            let (log, interest, after) = (Arc::clone(&self.log), Arc::clone(&self.interest), self.read_to);
            let mut cursor = self.cursor.take();
            let reading = tokio::task::spawn_blocking(move || {
                let batch = log.read_old(&mut cursor, after, &interest);
                (batch, cursor)
            });
            let (batch, cursor) = reading.await.map_err(|error| Error::Unavailable(error.to_string()))?;
            let batch = batch?;
            self.cursor = cursor;
            self.read_to = batch.read_to;
            let mut found: Vec<_> = batch.messages.into_iter().map(Delivery::of).collect();
            found.retain(|delivery| self.wants(delivery));
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    fn end(&self) -> u64 {
        self.end
    }
}
