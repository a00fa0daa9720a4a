//! A consumer of the embedded bus, and the handle it is answered with.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use orlog_journal::Cursor;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cursors::Claim;
use super::log::{Batch, End, Log};
use super::options::closed;
use crate::ack_handle::Answers;
use crate::checkpoint::Mark;
use crate::in_flight::{Flight, Stored};
use crate::subject_matcher::Interest;
use crate::{Acker, Consumer, Delivery, Error, Start};

/// Messages looked at in memory at once.
const LOOK_AHEAD: usize = 1024;

/// Reads the stream from its cursor on. It marks a message as delivered only when it returns it.
#[derive(Debug)]
pub(super) struct EmbeddedConsumer {
    log: Arc<Log>,
    end: watch::Receiver<End>,
    interest: Arc<Interest>,
    start: Start,
    answers: Arc<Answers>,
    /// Read, and it concerns us, but not delivered yet.
    ahead: VecDeque<Stored>,
    read_to: u64,
    old: Old,
    /// Gives the name back when the consumer goes.
    _claim: Claim,
}

impl EmbeddedConsumer {
    /// Begins after the claim's floor.
    pub(super) fn new(
        log: Arc<Log>,
        claim: Claim,
        interest: Interest,
        max_in_flight: usize,
        start: Start,
    ) -> Self {
        let start = Start { after: claim.floor.load(Ordering::Relaxed), ..start };
        let moved = claim.moved.clone();
        let answers = Answers::new(Arc::clone(&claim.floor), max_in_flight, move || moved.tell());
        Self {
            end: log.watch(),
            log,
            interest: Arc::new(interest),
            answers: Arc::new(answers),
            ahead: VecDeque::new(),
            read_to: start.after,
            start,
            old: Old::Nowhere,
            _claim: claim,
        }
    }

    /// Delivers what is there: first again what was refused, then new messages while there is room.
    fn take(&mut self, max: usize) -> Taken {
        let mut flight = self.answers.flight();
        let mut deliveries = Vec::new();
        while deliveries.len() < max {
            let Some(delivery) = next_delivery(&mut flight, &mut self.ahead) else { break };
            deliveries.push(delivery);
        }
        if self.ahead.is_empty() {
            flight.see(Mark { sequence: self.read_to, at: None });
        }
        self.answers.publish_floor(&flight);
        if deliveries.is_empty() {
            if flight.has_room() { Taken::Nothing } else { Taken::Full }
        } else {
            Taken::Deliveries(deliveries)
        }
    }

    /// Reads on; false where the end of the stream was reached already.
    async fn read(&mut self) -> Result<bool, Error> {
        let batch = match self.log.read_recent(self.read_to, LOOK_AHEAD, &self.interest) {
            Some(batch) => {
                self.old = Old::Nowhere;
                batch
            }
            None => self.read_old().await?,
        };
        let progress = batch.read_to > self.read_to;
        self.read_to = batch.read_to;
        self.ahead = batch.messages.into();
        Ok(progress)
    }

    async fn read_old(&mut self) -> Result<Batch, Error> {
        loop {
            match &mut self.old {
                // Kept here while it runs: a caller that gives up and asks again finds it, and gets on.
                Old::Reading(read) => {
                    let read = read.await;
                    self.old = Old::Nowhere;
                    let (batch, cursor) = read.map_err(|e| Error::Unavailable(e.to_string()))?;
                    self.old = cursor.map_or(Old::Nowhere, Old::At);
                    return batch;
                }
                Old::At(_) | Old::Nowhere => self.begin_to_read_old(),
            }
        }
    }

    fn begin_to_read_old(&mut self) {
        let (log, interest, after) = (Arc::clone(&self.log), Arc::clone(&self.interest), self.read_to);
        let mut cursor = match std::mem::replace(&mut self.old, Old::Nowhere) {
            Old::At(cursor) => Some(cursor),
            Old::Nowhere | Old::Reading(_) => None,
        };
        self.old = Old::Reading(tokio::task::spawn_blocking(move || {
            let batch = log.read_old(&mut cursor, after, &interest);
            (batch, cursor)
        }));
    }
}

/// Where on the disk the consumer reads, if it does.
#[derive(Debug)]
enum Old {
    Nowhere,
    At(Cursor),
    Reading(JoinHandle<(Result<Batch, Error>, Option<Cursor>)>),
}

fn next_delivery(flight: &mut Flight, ahead: &mut VecDeque<Stored>) -> Option<Delivery> {
    if let Some(again) = flight.redeliver() {
        return Some(again);
    }
    if !flight.has_room() {
        return None;
    }
    ahead.pop_front().map(|stored| flight.deliver(stored))
}

enum Taken {
    Deliveries(Vec<Delivery>),
    /// Nothing has been read that could be delivered.
    Nothing,
    /// As many are in flight as may be.
    Full,
}

#[async_trait]
impl Consumer for EmbeddedConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            if self.end.borrow_and_update().closed {
                return Err(closed());
            }
            let full = match self.take(max.max(1)) {
                Taken::Deliveries(deliveries) => return Ok(deliveries),
                Taken::Full => true,
                Taken::Nothing => false,
            };
            if !full && self.read().await? {
                tokio::task::consume_budget().await;
                continue;
            }
            tokio::select! {
                () = self.answers.woken() => {}
                changed = self.end.changed() => changed.map_err(|_| closed())?,
            }
        }
    }

    fn start(&self) -> &Start {
        &self.start
    }

    fn acker(&self) -> Arc<dyn Acker> {
        Arc::<Answers>::clone(&self.answers)
    }
}
