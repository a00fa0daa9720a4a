//! What a consumer has been given and not yet acknowledged, and how far everything is done: the floor.
//!
//! A message is one of:
//!
//! | state   | delivered            | `ack`  | `nak`   |
//! |---------|----------------------|--------|---------|
//! | pending | waits for an answer  | → done | → refused |
//! | refused | to be delivered again, then → pending | → done | – |
//! | done    | leaves when all before it are done    | –      | – |
//!
//! Acknowledging costs the same however many are in flight: sequences are found by their distance from the first,
//! mostly at once, and the floor passes each message once.

use std::collections::VecDeque;
use std::sync::Arc;

use orlog_model::Timestamp;

use crate::checkpoint::Mark;
use crate::{Delivery, Message};

/// A message of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) sequence: u64,
    pub(crate) published_at: Timestamp,
    pub(crate) message: Arc<Message>,
}

impl Delivery {
    /// A first delivery.
    pub(crate) fn of(stored: Stored) -> Self {
        let Stored { sequence, published_at, message } = stored;
        Self { sequence, attempt: 1, published_at, message }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Refused,
    Done,
}

#[derive(Debug)]
struct Slot {
    sequence: u64,
    published_at: Timestamp,
    attempt: u32,
    state: State,
    /// Kept for delivering it again until it is done.
    stored: Option<Stored>,
}

/// The messages of one consumer that are not all done.
#[derive(Debug)]
pub(crate) struct Flight {
    slots: VecDeque<Slot>,
    refused: VecDeque<u64>,
    /// Pending and refused ones.
    open: usize,
    max: usize,
    /// Everything up to here was delivered or does not concern the consumer.
    seen: Mark,
    /// Everything up to here is done; at most the floor.
    done: Mark,
    starved: bool,
}

/// What an answer changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The floor is higher now.
    pub(crate) floor: bool,
    /// A consumer that waits can go on.
    pub(crate) wake: bool,
}

impl Flight {
    /// Nothing in flight after `start`; at most `max` at a time.
    pub(crate) fn new(start: u64, max: usize) -> Self {
        let start = Mark { sequence: start, at: None };
        Self {
            slots: VecDeque::new(),
            refused: VecDeque::new(),
            open: 0,
            max: max.max(1),
            seen: start,
            done: start,
            starved: false,
        }
    }

    /// The end of the gapless prefix of what is done.
    pub(crate) fn floor(&self) -> u64 {
        self.slots.front().map_or(self.seen.sequence, |first| first.sequence - 1)
    }

    /// The last message before the floor of which more than its number is known.
    pub(crate) fn mark(&self) -> Mark {
        if self.slots.is_empty() { self.seen } else { self.done }
    }

    /// Whether a new message may be delivered. If not, the next answer will wake the consumer.
    pub(crate) fn has_room(&mut self) -> bool {
        self.starved = self.open >= self.max;
        !self.starved
    }

    /// Everything up to here is delivered or does not concern the consumer.
    pub(crate) fn see(&mut self, mark: Mark) {
        if mark.sequence > self.seen.sequence {
            self.seen = mark;
        }
    }

    /// Delivers a message that lies behind all before.
    pub(crate) fn deliver(&mut self, stored: Stored) -> Delivery {
        let delivery = delivery(&stored, 1);
        self.open += 1;
        self.done = self.mark();
        let (sequence, published_at, state) = (stored.sequence, stored.published_at, State::Pending);
        self.see(Mark { sequence, at: Some(published_at) });
        self.slots.push_back(Slot { sequence, published_at, attempt: 1, state, stored: Some(stored) });
        delivery
    }

    /// Delivers a refused message again.
    pub(crate) fn redeliver(&mut self) -> Option<Delivery> {
        while let Some(sequence) = self.refused.pop_front() {
            let Some(slot) = self.find(sequence).filter(|slot| slot.state == State::Refused) else {
                continue;
            };
            slot.state = State::Pending;
            slot.attempt = slot.attempt.saturating_add(1);
            return slot.stored.as_ref().map(|stored| delivery(stored, slot.attempt));
        }
        None
    }

    /// The message is done.
    pub(crate) fn ack(&mut self, sequence: u64) -> Changed {
        let Some(slot) = self.find(sequence).filter(|slot| slot.state != State::Done) else {
            return Changed::default();
        };
        slot.state = State::Done;
        slot.stored = None;
        self.open -= 1;
        let mut floor = false;
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.state == State::Done) {
            self.done = Mark { sequence: slot.sequence, at: Some(slot.published_at) };
            floor = true;
        }
        Changed { floor, wake: std::mem::take(&mut self.starved) }
    }

    /// The message shall be delivered again.
    pub(crate) fn nak(&mut self, sequence: u64) -> Changed {
        let Some(slot) = self.find(sequence).filter(|slot| slot.state == State::Pending) else {
            return Changed::default();
        };
        slot.state = State::Refused;
        self.refused.push_back(sequence);
        Changed { floor: false, wake: true }
    }

    fn find(&mut self, sequence: u64) -> Option<&mut Slot> {
        let distance = sequence.checked_sub(self.slots.front()?.sequence)?;
        let guess = usize::try_from(distance).ok().filter(|at| self.holds(*at, sequence));
        let place = match guess {
            Some(place) => place,
            None => self.slots.binary_search_by_key(&sequence, |slot| slot.sequence).ok()?,
        };
        self.slots.get_mut(place)
    }

    fn holds(&self, place: usize, sequence: u64) -> bool {
        self.slots.get(place).is_some_and(|slot| slot.sequence == sequence)
    }
}

fn delivery(stored: &Stored, attempt: u32) -> Delivery {
    let Stored { sequence, published_at, ref message } = *stored;
    Delivery { sequence, attempt, published_at, message: Arc::clone(message) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn stored(sequence: u64) -> Stored {
        let message = Message {
            subject: "s".to_owned(),
            id: None,
            headers: Vec::new(),
            payload: Bytes::from_static(b"x"),
        };
        Stored { sequence, published_at: Timestamp::from_millis(1), message: Arc::new(message) }
    }

    #[test]
    fn the_floor_is_the_end_of_the_gapless_prefix() {
        let mut flight = Flight::new(4, 10);
        for sequence in [6, 7, 9] {
            flight.deliver(stored(sequence));
        }
        flight.see(Mark { sequence: 12, at: None });
        let at = Some(Timestamp::from_millis(1));
        assert_eq!((flight.floor(), flight.mark()), (5, Mark { sequence: 4, at: None }));
        assert!(!flight.ack(7).floor);
        assert_eq!(flight.floor(), 5);
        assert!(flight.ack(6).floor);
        assert_eq!((flight.floor(), flight.mark()), (8, Mark { sequence: 7, at }));
        flight.ack(9);
        assert_eq!((flight.floor(), flight.mark()), (12, Mark { sequence: 12, at: None }));
        flight.deliver(stored(20));
        assert_eq!((flight.floor(), flight.mark()), (19, Mark { sequence: 12, at: None }));
        flight.ack(20);
        assert_eq!((flight.floor(), flight.mark()), (20, Mark { sequence: 20, at }));
    }

    #[test]
    fn answers_that_make_no_sense_change_nothing() {
        let mut flight = Flight::new(0, 10);
        flight.deliver(stored(2));
        for sequence in [0, 1, 3, u64::MAX] {
            assert_eq!(flight.ack(sequence), Changed::default());
            assert_eq!(flight.nak(sequence), Changed::default());
        }
        flight.nak(2);
        assert_eq!(flight.nak(2), Changed::default());
        flight.ack(2);
        assert_eq!(flight.ack(2), Changed::default());
        assert!(flight.redeliver().is_none());
        assert_eq!(flight.floor(), 2);
    }

    #[test]
    fn only_a_starved_consumer_is_woken_by_an_ack() {
        let mut flight = Flight::new(0, 2);
        flight.deliver(stored(1));
        assert!(flight.has_room());
        assert!(!flight.ack(1).wake);
        flight.deliver(stored(2));
        flight.deliver(stored(3));
        assert!(!flight.has_room());
        assert!(flight.ack(3).wake);
        assert!(flight.has_room());
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(steps in proptest::collection::vec((0u8..5, 1u64..40), 0..200)) {
            let mut flight = Flight::new(0, 8);
            let mut model: BTreeMap<u64, (bool, u32)> = BTreeMap::new();
            let mut queue: Vec<u64> = Vec::new();
            let mut last = 0;
            for (step, number) in steps {
                match step {
                    0 if flight.has_room() => {
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
                        let again = flight.redeliver().map(|d| (d.sequence, d.attempt));
                        let expected = (!queue.is_empty()).then(|| queue.remove(0)).map(|n| {
                            let slot = model.get_mut(&n).unwrap();
                            *slot = (true, slot.1 + 1);
                            (n, slot.1)
                        });
                        prop_assert_eq!(again, expected);
                    }
                }
                let floor = model.keys().next().map_or(last, |first| first - 1);
                prop_assert_eq!(flight.floor(), floor);
                prop_assert!(flight.mark().sequence <= floor);
                prop_assert!(flight.open == model.len() && flight.open <= 8);
            }
        }
    }
}
