//! Bus with injected faults. It loses responses and acknowledgements, and delivers messages twice, late
//! or in another order across keys. It keeps the order of each subject and eventually delivers every
//! accepted message.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use fastrand::Rng;
use orlog_bus::{
    AckPosition, Acker, Bus, Consumer, Delivery, Error, Message, PublishAck, ScanStart, StreamScan,
    Subscription, SubscriptionStart,
};
use parking_lot::Mutex;
use uuid::Uuid;

/// Fault rates in percent.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A publish is durable, but its response is lost.
    pub lost_responses: u8,
    /// An acknowledgement is lost; the message is redelivered.
    pub lost_acks: u8,
    /// A message is delivered twice.
    pub duplicates: u8,
    /// The messages of a subject are delayed.
    pub delays: u8,
    /// Signing a message panics.
    pub signing_panics: u8,
    /// A message is delivered with a defect.
    pub defects: u8,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            lost_responses: 10,
            lost_acks: 10,
            duplicates: 20,
            delays: 20,
            signing_panics: 0,
            defects: 0,
        }
    }
}

/// Bus with these faults; the fault sequence depends only on the seed.
pub struct FaultyBus {
    inner: Arc<dyn Bus>,
    fault_rng: Arc<FaultRng>,
}

struct FaultRng {
    faults: Faults,
    rng: Mutex<Rng>,
}

impl FaultRng {
    fn occurs(&self, percent: u8) -> bool {
        self.rng.lock().u8(..100) < percent
    }
}

impl FaultyBus {
    /// Wraps a bus with faults.
    #[must_use]
    pub fn new(inner: Arc<dyn Bus>, faults: Faults, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fault_rng: Arc::new(FaultRng {
                faults,
                rng: Mutex::new(Rng::with_seed(seed)),
            }),
        })
    }
}

#[async_trait]
impl Bus for FaultyBus {
    fn stream_id(&self) -> Uuid {
        self.inner.stream_id()
    }

    async fn publish(&self, messages: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, Error> {
        let receipts = self.inner.publish(messages).await?;
        if self.fault_rng.occurs(self.fault_rng.faults.lost_responses) {
            return Err(Error::Unavailable("the response was lost".to_owned()));
        }
        Ok(receipts)
    }

    fn sign(&self, message: Message) -> Message {
        let panics = self.fault_rng.faults.signing_panics;
        assert!(
            panics == 0 || !self.fault_rng.occurs(panics),
            "injected panic"
        );
        self.inner.sign(message)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let inner = self.inner.subscribe(subscription).await?;
        let acker = FaultyAcker {
            inner: inner.acker(),
            fault_rng: Arc::clone(&self.fault_rng),
        };
        let fault_rng = Arc::clone(&self.fault_rng);
        Ok(Box::new(FaultyConsumer {
            inner,
            acker: Arc::new(acker),
            fault_rng,
            late: VecDeque::new(),
        }))
    }

    async fn scan(
        &self,
        filters: Vec<String>,
        since: ScanStart,
    ) -> Result<Box<dyn StreamScan>, Error> {
        self.inner.scan(filters, since).await
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        self.inner.last_sequence().await
    }
}

struct FaultyConsumer {
    inner: Box<dyn Consumer>,
    acker: Arc<FaultyAcker>,
    fault_rng: Arc<FaultRng>,
    /// Delayed messages in order.
    late: VecDeque<Delivery>,
}

#[async_trait]
impl Consumer for FaultyConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            tokio::select! {
                biased;
                fresh = self.inner.next(max) => self.late.extend(fresh?),
                // No new message arrives: deliver the delayed messages.
                () = tokio::task::yield_now(), if !self.late.is_empty() => {}
            }
            let deliveries = self.shuffled(max);
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    fn subscription_start(&self) -> &SubscriptionStart {
        self.inner.subscription_start()
    }

    fn acker(&self) -> Arc<dyn Acker> {
        Arc::<FaultyAcker>::clone(&self.acker)
    }
}

impl FaultyConsumer {
    /// Returns some of the arrived messages: delays whole subjects, shuffles the others, duplicates some.
    fn shuffled(&mut self, max: usize) -> Vec<Delivery> {
        let mut subjects: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
        for delivery in self.late.drain(..) {
            subjects
                .entry(delivery.message.subject.clone())
                .or_default()
                .push(delivery);
        }
        let faults = self.fault_rng.faults;
        let mut queues = Vec::new();
        for queue in subjects.into_values() {
            if self.fault_rng.occurs(faults.delays) {
                self.late.extend(queue);
            } else {
                queues.push(VecDeque::from(queue));
            }
        }
        let mut mixed = Vec::new();
        while !queues.is_empty() && mixed.len() + 1 < max.max(2) {
            let chosen = self.fault_rng.rng.lock().usize(..queues.len());
            match queues[chosen].pop_front() {
                Some(mut delivery) => {
                    if faults.defects > 0 && self.fault_rng.occurs(faults.defects) {
                        delivery.defect = Some("injected defect".into());
                    }
                    if self.fault_rng.occurs(faults.duplicates) {
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
    fault_rng: Arc<FaultRng>,
}

impl Acker for FaultyAcker {
    fn ack(&self, sequence: u64) {
        if self.fault_rng.occurs(self.fault_rng.faults.lost_acks) {
            self.inner.nak(sequence);
        } else {
            self.inner.ack(sequence);
        }
    }

    fn ack_all(&self, sequences: &[u64]) {
        for sequence in sequences {
            self.ack(*sequence);
        }
    }

    fn nak(&self, sequence: u64) {
        self.inner.nak(sequence);
    }

    fn ack_floor(&self) -> u64 {
        self.inner.ack_floor()
    }

    fn ack_position(&self) -> AckPosition {
        self.inner.ack_position()
    }
    fn ack_position_with(&self, sequences: &[u64]) -> AckPosition {
        self.inner.ack_position_with(sequences)
    }

    fn set_cursor(&self, sequence: u64) {
        self.inner.set_cursor(sequence);
    }
}
