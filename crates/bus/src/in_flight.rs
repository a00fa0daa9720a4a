//! In-flight messages of a consumer and its ack floor.
//!
//! A message is one of:
//!
//! | state   | delivered                           | `ack`  | `nak`   |
//! |---------|-------------------------------------|--------|---------|
//! | pending | waits for an acknowledgement        | → done | → rejected |
//! | rejected | to be redelivered, then → pending   | → done | – |
//! | done    | leaves when all before it are done  | –      | – |
//!
//! The cost of an acknowledgement is independent of the number of in-flight messages. A sequence is
//! found by its distance from the first, mostly in one step, and the ack floor passes each message
//! once.

use std::collections::VecDeque;
use std::sync::Arc;

use orlog_model::Timestamp;

use crate::checkpoint::AckPosition;
use crate::{Delivery, Message};

/// Maximum size of the in-flight messages of a consumer, in bytes. One message is always admitted.
const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;

/// Message of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) sequence: u64,
    pub(crate) published_at: Timestamp,
    pub(crate) message: Arc<Message>,
}

impl Delivery {
    /// Creates a first delivery.
    pub(crate) fn new(stored: StoredMessage) -> Self {
        let StoredMessage { sequence, published_at, message } = stored;
        Self { sequence, attempt: 1, published_at, message }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
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
    /// Whether a commit in progress contains its consequences.
    is_staged: bool,
    /// Kept for redelivery until the message is done.
    stored: Option<StoredMessage>,
}

/// Messages of one consumer that are not all done.
#[derive(Debug)]
pub(crate) struct InFlight {
    slots: VecDeque<InFlightSlot>,
    rejected: VecDeque<u64>,
    /// Number of pending and rejected messages.
    open: usize,
    /// Size of these messages, in bytes.
    open_bytes: usize,
    max: usize,
    /// Everything up to here was delivered or does not match the subscription.
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
        Self { floor: self.floor | other.floor, wake: self.wake | other.wake }
    }
}

impl InFlight {
    /// Creates a table with nothing in flight after `start` and a limit of `max` in-flight messages.
    pub(crate) fn new(start: u64, max: usize) -> Self {
        let start = AckPosition { sequence: start, at: None };
        Self {
            slots: VecDeque::new(),
            rejected: VecDeque::new(),
            open: 0,
            open_bytes: 0,
            max: max.max(1),
            seen: start,
            done: start,
            starved: false,
        }
    }

    /// Returns the ack floor: everything up to it is done.
    pub(crate) fn ack_floor(&self) -> u64 {
        self.slots.front().map_or(self.seen.sequence, |first| first.sequence - 1)
    }

    /// Returns the last message at or before the ack floor for which more than its sequence is known.
    pub(crate) fn ack_position(&self) -> AckPosition {
        if self.slots.is_empty() { self.seen } else { self.done }
    }

    /// Returns the ack position as if these messages were done.
    pub(crate) fn ack_position_with(&mut self, sequences: &[u64]) -> AckPosition {
        for sequence in sequences {
            if let Some(slot) = self.find(*sequence) {
                slot.is_staged = true;
            }
        }
        let mut position = self.done;
        for slot in &self.slots {
            if slot.state != SlotState::Done && !slot.is_staged {
                return position;
            }
            position = AckPosition { sequence: slot.sequence, at: Some(slot.published_at) };
        }
        self.seen
    }

    /// Returns whether a new message may be delivered. If not, the next acknowledgement wakes the consumer.
    pub(crate) fn has_capacity(&mut self) -> bool {
        self.starved = self.open >= self.max || self.open_bytes >= MAX_IN_FLIGHT_BYTES;
        !self.starved
    }

    /// Records that everything up to here is delivered or does not match the subscription.
    pub(crate) fn advance(&mut self, position: AckPosition) {
        if position.sequence > self.seen.sequence {
            self.seen = position;
        }
    }

    /// Delivers a message after all earlier ones.
    pub(crate) fn deliver(&mut self, stored: StoredMessage) -> Delivery {
        let delivery = delivery(&stored, 1);
        let bytes = stored.message.size();
        self.open += 1;
        self.open_bytes += bytes;
        self.done = self.ack_position();
        let (sequence, published_at, state) = (stored.sequence, stored.published_at, SlotState::Pending);
        self.advance(AckPosition { sequence, at: Some(published_at) });
        self.slots.push_back(InFlightSlot {
            sequence,
            published_at,
            attempt: 1,
            state,
            bytes,
            is_staged: false,
            stored: Some(stored),
        });
        delivery
    }

    /// Redelivers a rejected message.
    pub(crate) fn redeliver(&mut self) -> Option<Delivery> {
        while let Some(sequence) = self.rejected.pop_front() {
            let Some(slot) = self.find(sequence).filter(|slot| slot.state == SlotState::Rejected) else {
                continue;
            };
            slot.state = SlotState::Pending;
            slot.attempt = slot.attempt.saturating_add(1);
            return slot.stored.as_ref().map(|stored| delivery(stored, slot.attempt));
        }
        None
    }

    /// Marks the message as done.
    pub(crate) fn ack(&mut self, sequence: u64) -> AckUpdate {
        let Some(slot) = self.find(sequence).filter(|slot| slot.state != SlotState::Done) else {
            return AckUpdate::default();
        };
        slot.state = SlotState::Done;
        slot.stored = None;
        let bytes = slot.bytes;
        self.open -= 1;
        self.open_bytes -= bytes;
        let mut ack_floor = false;
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.state == SlotState::Done) {
            self.done = AckPosition { sequence: slot.sequence, at: Some(slot.published_at) };
            ack_floor = true;
        }
        AckUpdate { floor: ack_floor, wake: std::mem::take(&mut self.starved) }
    }

    /// Marks the messages as done.
    pub(crate) fn ack_all(&mut self, sequences: &[u64]) -> AckUpdate {
        sequences.iter().fold(AckUpdate::default(), |update, sequence| update.or(self.ack(*sequence)))
    }

    /// Marks the message for redelivery.
    pub(crate) fn nak(&mut self, sequence: u64) -> AckUpdate {
        let Some(slot) = self.find(sequence).filter(|slot| slot.state == SlotState::Pending) else {
            return AckUpdate::default();
        };
        slot.state = SlotState::Rejected;
        self.rejected.push_back(sequence);
        AckUpdate { floor: false, wake: true }
    }

    fn find(&mut self, sequence: u64) -> Option<&mut InFlightSlot> {
        let distance = sequence.checked_sub(self.slots.front()?.sequence)?;
        let guess = usize::try_from(distance).ok().filter(|at| self.has_sequence_at(*at, sequence));
        let index = match guess {
            Some(index) => index,
            None => self.slots.binary_search_by_key(&sequence, |slot| slot.sequence).ok()?,
        };
        self.slots.get_mut(index)
    }

    fn has_sequence_at(&self, index: usize, sequence: u64) -> bool {
        self.slots.get(index).is_some_and(|slot| slot.sequence == sequence)
    }
}

fn delivery(stored: &StoredMessage, attempt: u32) -> Delivery {
    let StoredMessage { sequence, published_at, ref message } = *stored;
    Delivery { sequence, attempt, published_at, message: Arc::clone(message) }
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
        StoredMessage { sequence, published_at: Timestamp::from_millis(1), message: Arc::new(message) }
    }

    #[test]
    fn ack_floor_is_the_end_of_the_contiguous_prefix() {
        let mut flight = InFlight::new(4, 10);
        for sequence in [6, 7, 9] {
            flight.deliver(stored(sequence));
        }
        flight.advance(AckPosition { sequence: 12, at: None });
        let at = Some(Timestamp::from_millis(1));
        assert_eq!((flight.ack_floor(), flight.ack_position()), (5, AckPosition { sequence: 4, at: None }));
        assert!(!flight.ack(7).floor);
        assert_eq!(flight.ack_floor(), 5);
        assert!(flight.ack(6).floor);
        assert_eq!((flight.ack_floor(), flight.ack_position()), (8, AckPosition { sequence: 7, at }));
        flight.ack(9);
        assert_eq!((flight.ack_floor(), flight.ack_position()), (12, AckPosition { sequence: 12, at: None }));
        flight.deliver(stored(20));
        assert_eq!((flight.ack_floor(), flight.ack_position()), (19, AckPosition { sequence: 12, at: None }));
        flight.ack(20);
        assert_eq!((flight.ack_floor(), flight.ack_position()), (20, AckPosition { sequence: 20, at }));
    }

    #[test]
    fn invalid_acks_are_ignored() {
        let mut flight = InFlight::new(0, 10);
        flight.deliver(stored(2));
        for sequence in [0, 1, 3, u64::MAX] {
            assert_eq!(flight.ack(sequence), AckUpdate::default());
            assert_eq!(flight.nak(sequence), AckUpdate::default());
        }
        flight.nak(2);
        assert_eq!(flight.nak(2), AckUpdate::default());
        flight.ack(2);
        assert_eq!(flight.ack(2), AckUpdate::default());
        assert!(flight.redeliver().is_none());
        assert_eq!(flight.ack_floor(), 2);
    }

    #[test]
    fn ack_wakes_only_a_blocked_consumer() {
        let mut flight = InFlight::new(0, 2);
        flight.deliver(stored(1));
        assert!(flight.has_capacity());
        assert!(!flight.ack(1).wake);
        flight.deliver(stored(2));
        flight.deliver(stored(3));
        assert!(!flight.has_capacity());
        assert!(flight.ack(3).wake);
        assert!(flight.has_capacity());
    }

    #[test]
    fn in_flight_messages_are_limited_by_size() {
        let mut flight = InFlight::new(0, 1000);
        let large = |sequence| {
            let message = Message { payload: Bytes::from(vec![0; 40 << 20]), ..(*stored(1).message).clone() };
            StoredMessage { message: Arc::new(message), ..stored(sequence) }
        };
        flight.deliver(large(1));
        assert!(flight.has_capacity(), "40 of 64 MiB are in flight");
        flight.deliver(large(2));
        assert!(!flight.has_capacity());
        flight.nak(1);
        assert!(!flight.has_capacity(), "a rejected message is in flight");
        assert!(flight.ack(1).wake && flight.has_capacity());
        flight.ack_all(&[2]);
        assert_eq!(flight.open_bytes, 0);
    }

    #[test]
    fn staged_messages_count_for_the_position_but_stay_open() {
        let mut flight = InFlight::new(0, 8);
        for sequence in [1, 2, 5, 6] {
            flight.deliver(stored(sequence));
        }
        flight.advance(AckPosition { sequence: 9, at: None });
        flight.ack(2);
        let position = |flight: &mut InFlight, staged: &[u64]| flight.ack_position_with(staged).sequence;
        assert_eq!(position(&mut flight, &[5]), 0);
        assert_eq!(position(&mut flight, &[1]), 5);
        assert_eq!((flight.ack_floor(), flight.open), (0, 3), "nothing is acknowledged");
        assert_eq!(position(&mut flight, &[6]), 9);
        flight.nak(6);
        assert_eq!(position(&mut flight, &[]), 9, "a redelivery has no new consequences");
        flight.ack_all(&[1, 5, 6]);
        assert_eq!((flight.ack_floor(), flight.open), (9, 0));
    }

    proptest! {
        #[test]
        fn matches_a_naive_model(steps in proptest::collection::vec((0u8..5, 1u64..40), 0..200)) {
            let mut flight = InFlight::new(0, 8);
            let mut model: BTreeMap<u64, (bool, u32)> = BTreeMap::new();
            let mut queue: Vec<u64> = Vec::new();
            let mut last = 0;
            for (step, number) in steps {
                match step {
                    0 if flight.has_capacity() => {
                        last += 1 + number % 3;
                        flight.deliver(stored(last));
                        model.insert(last, (true, 1));
                    }
                    1 | 2 => {
                        flight.ack(number);
                        queue.retain(|n| *n != number);
                        model.remove(&number);
                    }
                    3 => {
                        flight.nak(number);
                        if let Some((pending, _)) = model.get_mut(&number).filter(|(pending, _)| *pending) {
                            *pending = false;
                            queue.push(number);
                        }
                    }
                    _ => {
                        let redelivered = flight.redeliver().map(|d| (d.sequence, d.attempt));
                        let expected = (!queue.is_empty()).then(|| queue.remove(0)).map(|n| {
                            let slot = model.get_mut(&n).unwrap();
                            *slot = (true, slot.1 + 1);
                            (n, slot.1)
                        });
                        prop_assert_eq!(redelivered, expected);
                    }
                }
                let ack_floor = model.keys().next().map_or(last, |first| first - 1);
                prop_assert_eq!(flight.ack_floor(), ack_floor);
                prop_assert!(flight.ack_position().sequence <= ack_floor);
                prop_assert!(flight.open == model.len() && flight.open <= 8);
            }
        }
    }
}
