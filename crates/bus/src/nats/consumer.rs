//! A subscription to a stream: takes from the hub, or reads by itself while it is not level with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::cursors::Claim;
use super::message_cache::Look;
use super::shared_reader::Member;
use super::stream_reader::{News, Reading, Wanted};
use crate::ack_handle::Answers;
use crate::checkpoint::Mark;
use crate::in_flight::{Flight, Stored};
use crate::subject_matcher::Interest;
use crate::{Acker, Consumer, Delivery, Error, Start};

/// Messages looked at in memory at once.
const LOOK_AHEAD: usize = 1024;
/// A reader that has nothing more begins anew after this, where the window begins further on: then it knows how far that
/// nothing reaches.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Reads the stream from its beginning on. It marks a message as delivered only when it returns it.
pub(super) struct NatsConsumer {
    interest: Interest,
    answers: Arc<Answers>,
    /// Read, and it concerns us, but not delivered yet.
    ahead: VecDeque<Stored>,
    read_to: Mark,
    member: Member,
    changes: watch::Receiver<u64>,
    /// What it reads by itself, while it does.
    own: Option<Reading>,
    /// Another reader of its own may find out that it is level with the hub.
    may_join: bool,
    wanted: Wanted,
    serial: u64,
    start: Start,
    /// Gives the name back when the consumer goes.
    _claim: Claim,
}

impl NatsConsumer {
    /// Begins where `start` says; `wanted` is what it reads by itself.
    pub(super) fn new(
        claim: Claim,
        interest: Interest,
        max_in_flight: usize,
        member: Member,
        wanted: Wanted,
        start: Start,
    ) -> Self {
        Self {
            interest,
            answers: Arc::new(Answers::new(Arc::clone(&claim.floor), max_in_flight, || {})),
            ahead: VecDeque::new(),
            read_to: Mark { sequence: start.after, at: None },
            changes: member.watch(),
            member,
            own: None,
            may_join: false,
            wanted,
            serial: 0,
            start,
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
            flight.see(self.read_to);
        }
        self.answers.publish_floor(&flight);
        if !deliveries.is_empty() {
            Taken::Deliveries(deliveries)
        } else if flight.has_room() {
            Taken::Nothing
        } else {
            Taken::Full
        }
    }

    /// Takes from the hub what it has; `false` where that is nothing new.
    fn read(&mut self) -> Result<bool, Error> {
        let looked = self.member.after(self.read_to.sequence, LOOK_AHEAD, &self.interest);
        match looked.map_err(Error::Unavailable)? {
            Look::Here(batch) => {
                self.own = None;
                let further = batch.read_to.sequence > self.read_to.sequence;
                if further {
                    self.come_to(batch.read_to);
                }
                self.ahead.extend(batch.messages);
                Ok(further)
            }
            found @ (Look::Gone | Look::NotYet) => {
                self.may_join = matches!(found, Look::Gone);
                if self.own.is_none() {
                    self.read_by_itself();
                }
                Ok(false)
            }
        }
    }

    fn read_by_itself(&mut self) {
        self.serial += 1;
        let name = format!("{}-{}", self.wanted.name, self.serial);
        let after = self.read_to.sequence;
        self.own = Some(Reading::start(Wanted { name, after, ..self.wanted.clone() }));
    }

    fn heard(&mut self, news: News) -> Result<(), Error> {
        match news {
            News::Messages(messages) => {
                if let Some(last) = messages.last() {
                    self.come_to(Mark { sequence: last.sequence, at: Some(last.published_at) });
                }
                let wanted = messages.into_iter().filter(|s| self.interest.matches(&s.message.subject));
                self.ahead.extend(wanted);
            }
            News::Level(mark) if mark.sequence > self.read_to.sequence => self.come_to(mark),
            News::Level(_) => {}
            News::Broken(why) => return Err(Error::Unavailable(why)),
        }
        Ok(())
    }

    fn come_to(&mut self, mark: Mark) {
        self.read_to = mark;
        self.member.advance(mark.sequence);
    }

    /// Waits for something new, or an answer that makes room.
    async fn wait(&mut self, full: bool) -> Result<(), Error> {
        let answers = Arc::clone(&self.answers);
        let Some(own) = self.own.as_mut().filter(|_| !full) else {
            tokio::select! {
                () = answers.woken() => {}
                changed = self.changes.changed() => drop(changed),
            }
            return Ok(());
        };
        tokio::select! {
            () = answers.woken() => {}
            news = own.next() => self.heard(news)?,
            () = tokio::time::sleep(LOOK_AGAIN) => {
                if self.may_join {
                    self.own = None;
                }
            }
        }
        Ok(())
    }
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
impl Consumer for NatsConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            // Before the look: what changes after it is noticed.
            self.changes.borrow_and_update();
            let full = match self.take(max.max(1)) {
                Taken::Deliveries(deliveries) => return Ok(deliveries),
                Taken::Full => true,
                Taken::Nothing => false,
            };
            if !full && self.read()? {
                tokio::task::consume_budget().await;
                continue;
            }
            self.wait(full).await?;
        }
    }

    fn start(&self) -> &Start {
        &self.start
    }

    fn acker(&self) -> Arc<dyn Acker> {
        Arc::<Answers>::clone(&self.answers)
    }
}
