//! What the shop's handlers share: its book, its mood, its luck, and the way out for events.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::emitter::{Emitter, Queue};
use crate::record::Book;

/// One event in this many is sent twice.
const REPEAT_ONE_IN: u32 = 20;

/// What is wrong with it at the moment. Nothing, by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mood {
    /// The share of payment calls that fail, from 0 to 1: half of them before the act, half after it.
    pub fail_rate: f64,
    /// Everything takes this much longer.
    pub slow_ms: u64,
    /// The payment service is down: every call is answered 503.
    pub down: bool,
}

/// See the top of this file.
pub(super) struct Desk {
    book: Mutex<Book>,
    mood: Mutex<Mood>,
    chance: Mutex<Rng>,
    emitter: Emitter,
    pace: Duration,
}

impl Desk {
    /// A desk, and the queue of events that it fills.
    pub(super) fn new(seed: u64, pace: Duration) -> (Self, Queue) {
        let (emitter, queue) = Emitter::new();
        let chance = Mutex::new(Rng::with_seed(seed));
        (Self { book: Mutex::default(), mood: Mutex::default(), chance, emitter, pace }, queue)
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mood(&self) -> Mood {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    pub(super) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the time that work takes: between half the pace and one and a half of it.
    pub(super) async fn work(&self) {
        let share = self.draw(|chance| 0.5 + chance.f64());
        let slow = Duration::from_millis(self.mood().slow_ms);
        tokio::time::sleep(self.pace.mul_f64(share) + slow).await;
    }

    /// Puts an event on its way, now and then twice.
    pub(super) fn emit(&self, event: Value) {
        self.book().events += 1;
        if self.draw(|chance| chance.u32(0..REPEAT_ONE_IN)) == 0 {
            self.book().repeated += 1;
            self.emitter.queue(event.clone());
        }
        self.emitter.queue(event);
    }

    /// Events that the runner has not accepted yet.
    pub(super) fn unsent(&self) -> usize {
        self.emitter.unsent()
    }
}

/// A refusal with its reason.
pub(super) fn refuse(status: StatusCode, reason: &str) -> (StatusCode, Json<Value>) {
    (status, Json(json!({ "reason": reason })))
}
