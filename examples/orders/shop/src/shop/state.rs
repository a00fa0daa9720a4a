//! Shared state of the shop's handlers: record, fault settings, random generator and event queue.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::emitter::{Emitter, Queue};
use crate::record::ShopRecord;

/// One event in this many is sent twice.
const REPEAT_ONE_IN: u32 = 20;

/// Current fault settings. Default: no faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultSettings {
    /// Share of failing payment calls, from 0 to 1: half of them fail before the action, half after it.
    pub fail_rate: f64,
    /// Additional processing time in milliseconds.
    pub slow_ms: u64,
    /// Whether the payment service is down: every call returns 503.
    pub down: bool,
}

/// Shared state of the handlers.
pub(super) struct ShopState {
    record: Mutex<ShopRecord>,
    fault_settings: Mutex<FaultSettings>,
    chance: Mutex<Rng>,
    emitter: Emitter,
    pace: Duration,
}

impl ShopState {
    /// Creates the state and the queue of its events.
    pub(super) fn new(seed: u64, pace: Duration) -> (Self, Queue) {
        let (emitter, queue) = Emitter::new();
        let chance = Mutex::new(Rng::with_seed(seed));
        (
            Self {
                record: Mutex::default(),
                fault_settings: Mutex::default(),
                chance,
                emitter,
                pace,
            },
            queue,
        )
    }

    pub(super) fn record(&self) -> MutexGuard<'_, ShopRecord> {
        self.record.lock()
    }

    pub(super) fn fault_settings(&self) -> FaultSettings {
        *self.fault_settings.lock()
    }

    pub(super) fn set_fault_settings(&self, fault_settings: FaultSettings) {
        *self.fault_settings.lock() = fault_settings;
    }

    pub(super) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.chance.lock())
    }

    /// Sleeps for the processing time: between 0.5 and 1.5 times the configured one.
    pub(super) async fn work(&self) {
        let share = self.draw(|chance| 0.5 + chance.f64());
        let slow = Duration::from_millis(self.fault_settings().slow_ms);
        tokio::time::sleep(self.pace.mul_f64(share) + slow).await;
    }

    /// Queues an event, sometimes twice.
    pub(super) fn emit(&self, event: Value) {
        self.record().events += 1;
        if self.draw(|chance| chance.u32(0..REPEAT_ONE_IN)) == 0 {
            self.record().repeated += 1;
            self.emitter.queue(event.clone());
        }
        self.emitter.queue(event);
    }

    /// Returns the number of events that the runner has not accepted yet.
    pub(super) fn unsent(&self) -> usize {
        self.emitter.unsent()
    }
}

/// Returns an error response with its reason.
pub(super) fn error_response(status: StatusCode, reason: &str) -> (StatusCode, Json<Value>) {
    (status, Json(json!({ "reason": reason })))
}
