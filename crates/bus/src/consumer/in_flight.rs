//! Messages that a consumer has read and not completed, and its ack floor.
//!
//! A message is one of:
//!
//! | state   | next                                | `ack`  | `nak`   |
//! |---------|-------------------------------------|--------|---------|
//! | waiting | is delivered, then → pending        | –      | – |
//! | pending | waits for an acknowledgement        | → done | → rejected |
//! | rejected | to be redelivered, then → pending   | → done | – |
//! | done    | leaves when all before it are done  | –      | – |
//!
//! If the messages of a tenant are limited, waiting messages are delivered in turn between the
//! tenants, and in order within a tenant. So the messages of a tenant do not wait for the backlog
//! of another one, up to the read-ahead limit: after it, no message is read.
//!
//! The cost of an acknowledgement is independent of the number of in-flight messages. A sequence is
//! found by its distance from the first, mostly in one step, and the ack floor passes each message
//! once.

use std::collections::VecDeque;
use std::sync::Arc;

use orlog_model::Timestamp;

use super::tenant_queues::TenantQueues;
use crate::checkpoint::AckPosition;
use crate::{Delivery, MaxInFlight, Message};

/// Maximum size of the in-flight messages of a consumer, in bytes. One message is always admitted.
const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;

/// Maximum size of the messages that are read and not delivered, in bytes.
const MAX_READ_AHEAD_BYTES: usize = 32 << 20;

/// Message of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) sequence: u64,
    pub(crate) published_at: Timestamp,
    pub(crate) message: Arc<Message>,
    /// Size of the message: its headers are read once.
    pub(crate) bytes: usize,
    /// See [`Delivery::defect`].
    pub(crate) defect: Option<Arc<str>>,
}

impl StoredMessage {
    pub(crate) fn new(sequence: u64, published_at: Timestamp, message: Arc<Message>) -> Self {
        Self {
            sequence,
            published_at,
            bytes: message.size(),
            message,
            defect: None,
        }
    }

    pub(crate) fn with_defect(self, defect: String) -> Self {
        Self {
            defect: Some(defect.into()),
            ..self
        }
    }

    /// Returns a delivery of the message.
    pub(crate) fn delivery(&self, attempt: u32) -> Delivery {
        let Self {
            sequence,
            published_at,
            ref message,
            ref defect,
            ..
        } = *self;
        Delivery {
            sequence,
            attempt,
            published_at,
            message: Arc::clone(message),
            defect: defect.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Waiting,
    Pending,
    Rejected,
    Done,
}

#[derive(Debug)]
struct InFlightSlot {
    sequence: u64,
    published_at: Timestamp,
    attempt: u32,
    state: SlotState,
    bytes: usize,
    /// Queue of its tenant.
    queue: usize,
    /// Whether a commit in progress contains its consequences.
    is_staged: bool,
    /// Kept for redelivery until the message is done.
    stored: Option<StoredMessage>,
}

/// Messages of one consumer that are not all done.
#[derive(Debug)]
pub(crate) struct InFlight {
    slots: VecDeque<InFlightSlot>,
    /// Sequences of the waiting messages.
    waiting: TenantQueues,
    /// Size of these messages, in bytes.
    waiting_bytes: usize,
    rejected: VecDeque<u64>,
    /// Number of pending and rejected messages.
    open: usize,
    /// Size of these messages, in bytes.
    open_bytes: usize,
    max: usize,
    /// Everything up to here was read or does not match the subscription.
    seen: AckPosition,
    /// Everything up to here is done; at most the ack floor.
    done: AckPosition,
    starved: bool,
}

/// Changes made by an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckUpdate {
    /// Whether the ack floor moved.
    pub(crate) floor: bool,
    /// Whether a waiting consumer can continue.
    pub(crate) wake: bool,
}

impl AckUpdate {
    fn or(self, other: Self) -> Self {
        Self {
            floor: self.floor | other.floor,
            wake: self.wake | other.wake,
        }
    }
}

impl InFlight {
    /// Creates a table with nothing in flight after `start` and these limits of in-flight messages.
    pub(crate) fn new(start: u64, max: MaxInFlight) -> Self {
        let start = AckPosition {
            sequence: start,
            at: None,
        };
        Self {
            slots: VecDeque::new(),
            waiting: TenantQueues::new(max.per_tenant),
            waiting_bytes: 0,
            rejected: VecDeque::new(),
            open: 0,
            open_bytes: 0,
            max: max.total.max(1),
            seen: start,
            done: start,
            starved: false,
        }
    }

    /// Returns the ack floor: everything up to it is done.
    pub(crate) fn ack_floor(&self) -> u64 {
        // A slot leaves when it and all before it are done, so the first slot is the first open
        // message.
        self.slots
            .front()
            .map_or(self.seen.sequence, |first| first.sequence - 1)
    }

    /// Returns the last message at or before the ack floor for which more than its sequence is
    /// known.
    pub(crate) fn ack_position(&self) -> AckPosition {
        // Nothing is in flight: everything that was read is done, also sequences that match
        // nothing.
        if self.slots.is_empty() {
            self.seen
        } else {
            self.done
        }
    }

    /// Returns the ack position as if these messages were done.
    pub(crate) fn ack_position_with(&mut self, sequences: &[u64]) -> AckPosition {
        for sequence in sequences {
            if let Some(slot) = self.find(*sequence) {
                // The mark is never removed. If the commit fails, the shard restarts and subscribes
                // again, with an empty table.
                slot.is_staged = true;
            }
        }

        let mut position = self.done;
        for slot in &self.slots {
            // A later message may be part of the commit, but a checkpoint after an open one would
            // skip it.
            if slot.state != SlotState::Done && !slot.is_staged {
                return position;
            }
            position = AckPosition {
                sequence: slot.sequence,
                at: Some(slot.published_at),
            };
        }
        self.seen
    }

    /// Returns whether further messages may be read.
    pub(crate) fn has_read_capacity(&self) -> bool {
        self.waiting_bytes < MAX_READ_AHEAD_BYTES
    }

    /// Records that everything up to here is read or does not match the subscription.
    pub(crate) fn advance(&mut self, position: AckPosition) {
        if position.sequence > self.seen.sequence {
            self.seen = position;
        }
    }

    /// Adds a message that was read after all earlier ones.
    pub(crate) fn read(&mut self, stored: StoredMessage) {
        let bytes = stored.bytes;
        let sequence = stored.sequence;
        let published_at = stored.published_at;
        self.waiting_bytes += bytes;
        // From now on, `seen` is ahead of the ack position.
        self.done = self.ack_position();

        let queue = self.waiting.push(&stored.message.subject, sequence);

        self.advance(AckPosition {
            sequence,
            at: Some(published_at),
        });

        self.slots.push_back(InFlightSlot {
            sequence,
            published_at,
            attempt: 0,
            state: SlotState::Waiting,
            bytes,
            queue,
            is_staged: false,
            stored: Some(stored),
        });
    }

    /// Delivers the next message: a rejected one, or a waiting one if the limits permit. If not,
    /// the next acknowledgement wakes the consumer.
    pub(crate) fn deliver(&mut self) -> Option<Delivery> {
        // Rejected messages first: they are already counted as open, so the limits do not apply to
        // them.
        if let Some(redelivery) = self.redeliver() {
            return Some(redelivery);
        }

        // Only a consumer that a limit has stopped is woken by the next acknowledgement.
        self.starved = self.open >= self.max || self.open_bytes >= MAX_IN_FLIGHT_BYTES;
        if self.starved {
            return None;
        }

        let Some(sequence) = self.waiting.pop() else {
            // Messages wait, but each of their tenants is at its limit. A message never has zero
            // bytes, because its subject is not empty.
            self.starved = self.waiting_bytes > 0;
            return None;
        };

        let slot = self.find(sequence).expect("a waiting message has a slot");
        slot.state = SlotState::Pending;
        slot.attempt = 1;
        let bytes = slot.bytes;
        let delivery = slot.stored.as_ref().map(|stored| stored.delivery(1));

        self.open += 1;
        self.open_bytes += bytes;
        self.waiting_bytes -= bytes;
        delivery
    }

    /// Redelivers a rejected message.
    fn redeliver(&mut self) -> Option<Delivery> {
        while let Some(sequence) = self.rejected.pop_front() {
            // An acknowledgement can precede the redelivery.
            let Some(slot) = self
                .find(sequence)
                .filter(|slot| slot.state == SlotState::Rejected)
            else {
                continue;
            };

            slot.state = SlotState::Pending;
            slot.attempt = slot.attempt.saturating_add(1);
            return slot
                .stored
                .as_ref()
                .map(|stored| stored.delivery(slot.attempt));
        }
        None
    }

    /// Marks the message as done.
    pub(crate) fn ack(&mut self, sequence: u64) -> AckUpdate {
        let Some(slot) = self.find(sequence) else {
            return AckUpdate::default();
        };
        // A waiting message was not delivered yet, and a done one is no longer counted. A repeated
        // acknowledgement must not change the counters.
        if !matches!(slot.state, SlotState::Pending | SlotState::Rejected) {
            return AckUpdate::default();
        }

        slot.state = SlotState::Done;
        // The memory of the message, although its slot may wait for the messages before it.
        slot.stored = None;
        let bytes = slot.bytes;
        let queue = slot.queue;
        self.open -= 1;
        self.open_bytes -= bytes;
        self.waiting.complete(queue);

        let mut ack_floor = false;
        while let Some(slot) = self
            .slots
            .pop_front_if(|slot| slot.state == SlotState::Done)
        {
            self.done = AckPosition {
                sequence: slot.sequence,
                at: Some(slot.published_at),
            };
            ack_floor = true;
        }

        AckUpdate {
            floor: ack_floor,
            // One wake is sufficient: the consumer delivers until it reaches a limit again.
            wake: std::mem::take(&mut self.starved),
        }
    }

    /// Marks the messages as done.
    pub(crate) fn ack_all(&mut self, sequences: &[u64]) -> AckUpdate {
        sequences
            .iter()
            .fold(AckUpdate::default(), |update, sequence| {
                update.or(self.ack(*sequence))
            })
    }

    /// Marks the message for redelivery.
    pub(crate) fn nak(&mut self, sequence: u64) -> AckUpdate {
        let Some(slot) = self
            .find(sequence)
            // A repeated `nak` must not queue the message twice.
            .filter(|slot| slot.state == SlotState::Pending)
        else {
            return AckUpdate::default();
        };

        slot.state = SlotState::Rejected;
        self.rejected.push_back(sequence);
        AckUpdate {
            floor: false,
            // A rejected message can be delivered at once, because no limit applies to it.
            wake: true,
        }
    }

    fn find(&mut self, sequence: u64) -> Option<&mut InFlightSlot> {
        let distance = sequence.checked_sub(self.slots.front()?.sequence)?;
        // Mostly the exact index: only subjects that the subscription does not match leave gaps.
        let guess = usize::try_from(distance)
            .ok()
            .filter(|at| self.has_sequence_at(*at, sequence));

        let index = match guess {
            Some(index) => index,
            None => self
                .slots
                .binary_search_by_key(&sequence, |slot| slot.sequence)
                .ok()?,
        };

        self.slots.get_mut(index)
    }

    fn has_sequence_at(&self, index: usize, sequence: u64) -> bool {
        self.slots
            .get(index)
            .is_some_and(|slot| slot.sequence == sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn stored(sequence: u64) -> StoredMessage {
        let message = Message {
            subject: "s".to_owned(),
            id: None,
            headers: Vec::new(),
            payload: Bytes::from_static(b"x"),
        };
        StoredMessage::new(sequence, Timestamp::from_millis(1), Arc::new(message))
    }

    fn deliver(flight: &mut InFlight, stored: StoredMessage) {
        let sequence = stored.sequence;
        flight.read(stored);
        assert_eq!(
            flight.deliver().map(|delivery| delivery.sequence),
            Some(sequence)
        );
    }

    #[test]
    fn ack_floor_is_the_end_of_the_contiguous_prefix() {
        let mut flight = InFlight::new(4, MaxInFlight::total(10));
        for sequence in [6, 7, 9] {
            deliver(&mut flight, stored(sequence));
        }
        flight.advance(AckPosition {
            sequence: 12,
            at: None,
        });
        let at = Some(Timestamp::from_millis(1));
        assert_eq!(
            (flight.ack_floor(), flight.ack_position()),
            (
                5,
                AckPosition {
                    sequence: 4,
                    at: None
                }
            )
        );
        assert!(!flight.ack(7).floor);
        assert_eq!(flight.ack_floor(), 5);
        assert!(flight.ack(6).floor);
        assert_eq!(
            (flight.ack_floor(), flight.ack_position()),
            (8, AckPosition { sequence: 7, at })
        );
        flight.ack(9);
        assert_eq!(
            (flight.ack_floor(), flight.ack_position()),
            (
                12,
                AckPosition {
                    sequence: 12,
                    at: None
                }
            )
        );
        deliver(&mut flight, stored(20));
        assert_eq!(
            (flight.ack_floor(), flight.ack_position()),
            (
                19,
                AckPosition {
                    sequence: 12,
                    at: None
                }
            )
        );
        flight.ack(20);
        assert_eq!(
            (flight.ack_floor(), flight.ack_position()),
            (20, AckPosition { sequence: 20, at })
        );
    }

    #[test]
    fn invalid_acks_are_ignored() {
        let mut flight = InFlight::new(0, MaxInFlight::total(10));
        deliver(&mut flight, stored(2));
        for sequence in [0, 1, 3, u64::MAX] {
            assert_eq!(flight.ack(sequence), AckUpdate::default());
            assert_eq!(flight.nak(sequence), AckUpdate::default());
        }
        flight.nak(2);
        assert_eq!(flight.nak(2), AckUpdate::default());
        flight.ack(2);
        assert_eq!(flight.ack(2), AckUpdate::default());
        assert!(flight.deliver().is_none());
        assert_eq!(flight.ack_floor(), 2);
    }

    #[test]
    fn ack_wakes_only_a_blocked_consumer() {
        let mut flight = InFlight::new(
            0,
            MaxInFlight {
                total: 9,
                per_tenant: Some(2),
            },
        );
        (1..=3).for_each(|sequence| flight.read(stored(sequence)));
        assert_eq!(flight.deliver().map(|d| d.sequence), Some(1));
        assert!(!flight.ack(1).wake);
        let delivered: Vec<u64> = std::iter::from_fn(|| flight.deliver())
            .map(|d| d.sequence)
            .collect();
        assert_eq!(delivered, [2, 3]);
        assert!(!flight.ack(2).wake, "no message waits");
        flight.read(stored(4));
        flight.read(stored(5));
        assert!(
            flight.deliver().is_some() && flight.deliver().is_none(),
            "two of the tenant are in flight"
        );
        assert!(flight.ack(3).wake);
        assert_eq!(flight.deliver().map(|d| d.sequence), Some(5));
    }

    #[test]
    fn messages_are_limited_by_size() {
        let mut flight = InFlight::new(0, MaxInFlight::total(1000));
        let large = |sequence| {
            let message = Message {
                payload: Bytes::from(vec![0; 40 << 20]),
                ..(*stored(1).message).clone()
            };
            StoredMessage::new(sequence, Timestamp::from_millis(1), Arc::new(message))
        };
        assert!(flight.has_read_capacity());
        (1..=3).for_each(|sequence| flight.read(large(sequence)));
        assert!(!flight.has_read_capacity());
        assert!(
            flight.deliver().is_some() && flight.deliver().is_some(),
            "40 of 64 MiB are in flight"
        );
        assert!(flight.deliver().is_none());
        flight.nak(1);
        assert_eq!(
            flight.deliver().map(|d| (d.sequence, d.attempt)),
            Some((1, 2))
        );
        assert!(
            flight.deliver().is_none(),
            "a rejected message is in flight"
        );
        assert!(flight.ack(1).wake && flight.deliver().is_some());
        flight.ack_all(&[2, 3]);
        assert!(flight.has_read_capacity());
        assert_eq!((flight.open_bytes, flight.waiting_bytes), (0, 0));
    }

    #[test]
    fn messages_of_a_tenant_do_not_wait_for_the_backlog_of_another() {
        let mut flight = InFlight::new(
            0,
            MaxInFlight {
                total: 9,
                per_tenant: Some(4),
            },
        );
        let of = |tenant: &str, sequence| {
            let message = Message {
                subject: format!("tenant.{tenant}.a.b"),
                ..(*stored(1).message).clone()
            };
            StoredMessage::new(sequence, Timestamp::from_millis(1), Arc::new(message))
        };
        (1..=1000).for_each(|sequence| flight.read(of("loud", sequence)));
        let delivered: Vec<u64> = std::iter::from_fn(|| flight.deliver())
            .map(|d| d.sequence)
            .collect();
        assert_eq!(delivered, [1, 2, 3, 4]);
        flight.read(of("quiet", 1001));
        assert_eq!(flight.deliver().map(|d| d.sequence), Some(1001));
        flight.ack_all(&[1001, 2]);
        assert_eq!(flight.deliver().map(|d| d.sequence), Some(5));
        assert_eq!(
            flight.ack_floor(),
            0,
            "the floor is below all waiting messages"
        );
        flight.ack(1);
        assert_eq!(flight.ack_floor(), 2);
    }

    #[test]
    fn staged_messages_count_for_the_position_but_stay_open() {
        let mut flight = InFlight::new(0, MaxInFlight::total(8));
        for sequence in [1, 2, 5, 6] {
            deliver(&mut flight, stored(sequence));
        }
        flight.advance(AckPosition {
            sequence: 9,
            at: None,
        });
        flight.ack(2);
        let position =
            |flight: &mut InFlight, staged: &[u64]| flight.ack_position_with(staged).sequence;
        assert_eq!(position(&mut flight, &[5]), 0);
        assert_eq!(position(&mut flight, &[1]), 5);
        assert_eq!(
            (flight.ack_floor(), flight.open),
            (0, 3),
            "nothing is acknowledged"
        );
        assert_eq!(position(&mut flight, &[6]), 9);
        flight.nak(6);
        assert_eq!(
            position(&mut flight, &[]),
            9,
            "a redelivery has no new consequences"
        );
        flight.ack_all(&[1, 5, 6]);
        assert_eq!((flight.ack_floor(), flight.open), (9, 0));
    }

    proptest! {
        #[test]
        fn matches_a_naive_model(steps in proptest::collection::vec((0u8..6, 1u64..40), 0..200)) {
            let mut flight = InFlight::new(0, MaxInFlight::total(8));
            // Open messages: whether they are pending, and their attempts.
            let mut model: BTreeMap<u64, (bool, u32)> = BTreeMap::new();
            let mut rejected: VecDeque<u64> = VecDeque::new();
            let mut waiting: VecDeque<u64> = VecDeque::new();
            let mut last = 0;
            for (step, number) in steps {
                match step {
                    0 | 1 => {
                        last += 1 + number % 3;
                        flight.read(stored(last));
                        waiting.push_back(last);
                    }
                    2 => {
                        flight.ack(number);
                        rejected.retain(|n| *n != number);
                        model.remove(&number);
                    }
                    3 => {
                        flight.nak(number);
                        if let Some((pending, _)) = model.get_mut(&number).filter(|(pending, _)| *pending) {
                            *pending = false;
                            rejected.push_back(number);
                        }
                    }
                    _ => {
                        let delivered = flight.deliver().map(|d| (d.sequence, d.attempt));
                        let has_capacity = model.len() < 8;
                        let next = rejected.pop_front().or_else(|| waiting.pop_front_if(|_| has_capacity));
                        let expected = next.map(|n| {
                            let attempts = model.get(&n).map_or(1, |(_, attempts)| attempts + 1);
                            model.insert(n, (true, attempts));
                            (n, attempts)
                        });
                        prop_assert_eq!(delivered, expected);
                    }
                }
                let first = model.keys().next().into_iter().chain(waiting.front()).min();
                let ack_floor = first.map_or(last, |first| first - 1);
                prop_assert_eq!(flight.ack_floor(), ack_floor);
                prop_assert!(flight.ack_position().sequence <= ack_floor);
                prop_assert!(flight.open == model.len() && flight.open <= 8);
            }
        }
    }
}
