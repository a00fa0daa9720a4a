//! A bus that does everything a bus may do: it loses answers and acknowledgements, delivers twice, late, and in another
//! order across keys. The order of one subject it keeps, and what it accepted it delivers in the end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fastrand::Rng;
use orlog_bus::{
    Acker, Bus, Consumer, Delivery, Error, Mark, Message, Past, Receipt, Since, Start, Subscription,
};
use uuid::Uuid;

/// How often things go wrong, in a hundred.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A publish is durable, but its answer is lost.
    pub lost_answers: u8,
    /// An acknowledgement is lost; the message is delivered again.
    pub lost_acks: u8,
    /// A message is delivered twice.
    pub twice: u8,
    /// A subject's messages are held back for a while.
    pub late: u8,
}

impl Default for Faults {
    fn default() -> Self {
        Self { lost_answers: 10, lost_acks: 10, twice: 20, late: 20 }
    }
}

/// A bus before which these faults stand; what goes wrong when depends on the seed alone.
pub struct FaultyBus {
    inner: Arc<dyn Bus>,
    dice: Arc<Dice>,
}

struct Dice {
    faults: Faults,
    rng: Mutex<Rng>,
}

impl Dice {
    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn falls(&self, percent: u8) -> bool {
        self.rng().u8(..100) < percent
    }
}

impl FaultyBus {
    /// Puts faults before a bus.
    #[must_use]
    pub fn new(inner: Arc<dyn Bus>, faults: Faults, seed: u64) -> Arc<Self> {
        Arc::new(Self { inner, dice: Arc::new(Dice { faults, rng: Mutex::new(Rng::with_seed(seed)) }) })
    }
}

#[async_trait]
impl Bus for FaultyBus {
    fn stream_id(&self) -> Uuid {
        self.inner.stream_id()
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Receipt>, Error> {
        let receipts = self.inner.publish(messages).await?;
        if self.dice.falls(self.dice.faults.lost_answers) {
            return Err(Error::Unavailable("the answer was lost".to_owned()));
        }
        Ok(receipts)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let inner = self.inner.subscribe(subscription).await?;
        let acker = FaultyAcker { inner: inner.acker(), dice: Arc::clone(&self.dice) };
        let dice = Arc::clone(&self.dice);
        Ok(Box::new(FaultyConsumer { inner, acker: Arc::new(acker), dice, late: VecDeque::new() }))
    }

    async fn read_past(&self, filters: Vec<String>, since: Since) -> Result<Box<dyn Past>, Error> {
        self.inner.read_past(filters, since).await
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        self.inner.last_sequence().await
    }
}

struct FaultyConsumer {
    inner: Box<dyn Consumer>,
    acker: Arc<FaultyAcker>,
    dice: Arc<Dice>,
    /// Held back, in order.
    late: VecDeque<Delivery>,
}

#[async_trait]
impl Consumer for FaultyConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            tokio::select! {
                biased;
                fresh = self.inner.next(max) => self.late.extend(fresh?),
                // Nothing new comes: what is late comes now.
                () = tokio::task::yield_now(), if !self.late.is_empty() => {}
            }
            let deliveries = self.shuffled(max);
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    fn start(&self) -> &Start {
        self.inner.start()
    }

    fn acker(&self) -> Arc<dyn Acker> {
        Arc::<FaultyAcker>::clone(&self.acker)
    }
}

impl FaultyConsumer {
    /// Takes some of what has come: whole subjects stay back, the others are mixed, some come twice.
    fn shuffled(&mut self, max: usize) -> Vec<Delivery> {
        let mut subjects: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
        for delivery in self.late.drain(..) {
            subjects.entry(delivery.message.subject.clone()).or_default().push(delivery);
        }
        let faults = self.dice.faults;
        let mut queues = Vec::new();
        for queue in subjects.into_values() {
            if self.dice.falls(faults.late) {
                self.late.extend(queue);
            } else {
                queues.push(VecDeque::from(queue));
            }
        }
        let mut mixed = Vec::new();
        while !queues.is_empty() && mixed.len() + 1 < max.max(2) {
            let chosen = self.dice.rng().usize(..queues.len());
            match queues[chosen].pop_front() {
                Some(delivery) => {
                    if self.dice.falls(faults.twice) {
                        mixed.push(delivery.clone());
                    }
                    mixed.push(delivery);
                }
                None => drop(queues.swap_remove(chosen)),
            }
        }
        self.late.extend(queues.into_iter().flatten());
        mixed
    }
}

struct FaultyAcker {
    inner: Arc<dyn Acker>,
    dice: Arc<Dice>,
}

impl Acker for FaultyAcker {
    fn ack(&self, sequence: u64) {
        if self.dice.falls(self.dice.faults.lost_acks) {
            self.inner.nak(sequence);
        } else {
            self.inner.ack(sequence);
        }
    }

    fn nak(&self, sequence: u64) {
        self.inner.nak(sequence);
    }

    fn floor(&self) -> u64 {
        self.inner.floor()
    }

    fn mark(&self) -> Mark {
        self.inner.mark()
    }
}
