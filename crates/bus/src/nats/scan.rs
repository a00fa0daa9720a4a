//! Scan of a stream up to its end at the time of the call.

use std::time::Duration;

use async_trait::async_trait;
use orlog_model::Timestamp;

use super::stream_reader::{ReaderConfig, ReaderEvent, StreamReader};
use crate::{Delivery, Error, StreamScan};

/// Maximum time that the servers may take to return a message.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// See [`StreamScan`].
#[derive(Debug)]
pub(super) struct NatsScan {
    reader: StreamReader,
    /// A lagging server may have started the reader before this time.
    since: Option<Timestamp>,
    end: u64,
    done: bool,
}

impl NatsScan {
    /// Starts the scan of all messages up to `end` that were not published before `since`.
    pub(super) fn start(config: ReaderConfig, since: Option<Timestamp>, end: u64) -> Self {
        let done = config.after.sequence >= end;
        Self {
            reader: StreamReader::start(config),
            since,
            end,
            done,
        }
    }
}

#[async_trait]
impl StreamScan for NatsScan {
    async fn next(&mut self) -> Result<Vec<Delivery>, Error> {
        while !self.done {
            let event = tokio::time::timeout(READ_TIMEOUT, self.reader.next()).await;
            match event.map_err(|_| Error::Unavailable("the servers do not respond".to_owned()))? {
                ReaderEvent::Messages { messages, pending } => {
                    self.done = pending == 0
                        || messages
                            .last()
                            .is_some_and(|last| last.sequence >= self.end);
                    let found = messages.iter().filter(|stored| {
                        stored.sequence <= self.end
                            && self.since.is_none_or(|since| stored.published_at >= since)
                    });

                    let found: Vec<_> = found.map(|stored| stored.delivery(1)).collect();
                    if !found.is_empty() {
                        return Ok(found);
                    }
                }
                ReaderEvent::CaughtUp(position) => self.done = position.sequence >= self.end,
                ReaderEvent::Broken(reason) => return Err(Error::Unavailable(reason)),
            }
        }
        Ok(Vec::new())
    }

    fn end_sequence(&self) -> u64 {
        self.end
    }
}
