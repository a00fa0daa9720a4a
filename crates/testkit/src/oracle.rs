//! Oracle: a naive model of [`crate::sagas::order`], written from the design document with plain maps.
//!
//! It shares no code with engine, machine or store. A test applies the same operations to both and
//! compares the results.

mod operation;

use std::collections::{BTreeMap, BTreeSet};

use crate::sagas::STEPS;
pub use operation::{OracleOp, OracleOutcome, OracleResult};

/// Instance.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a naive model has one field per fact"
)]
pub struct OracleInstance {
    /// One of `running`, `compensating`, `completed`, `failed`, `cancelled` or `stuck`.
    pub status: &'static str,
    /// Whether inputs are buffered.
    pub paused: bool,
    /// Number of transitions.
    pub version: u64,
    /// Buffered inputs.
    pub buffered: Vec<OracleOp>,
    /// Number of the armed timer of the first step, while its result is awaited.
    pub timer: Option<u64>,
    /// Whether the timer table contains the timer.
    pub timer_row: bool,
    steps: BTreeMap<&'static str, &'static str>,
    done: Vec<&'static str>,
    open: BTreeMap<String, usize>,
    cancelled: bool,
    emitted: bool,
    applied: BTreeSet<String>,
    /// Expiry times of `StockReleased` events that came before the compensation.
    released: Vec<i64>,
}

/// All instances and the outbox.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Instances by correlation id.
    pub sagas: BTreeMap<String, OracleInstance>,
    /// Pending work: (correlation id, tag or fact, number of requests).
    pub outbox: BTreeSet<(String, String, usize)>,
    /// Early events with their expiry times.
    pub early: BTreeMap<String, Vec<(OracleOp, i64)>>,
    /// Current time, in milliseconds.
    pub now: i64,
    requested: BTreeMap<(String, String), usize>,
    /// Work that may have been executed: its next request repeats the last one.
    unknown: BTreeSet<(String, String)>,
    /// How often a timer was armed, by correlation id.
    armings: BTreeMap<String, u64>,
    /// Dedupe keys of deleted instances, which outlive the instances.
    purged_dedupe_keys: BTreeMap<String, BTreeSet<String>>,
}

impl Oracle {
    /// Deletes an instance if it has ended.
    pub fn purge(&mut self, of: &str) -> bool {
        let has_ended = |saga: &OracleInstance| {
            matches!(saga.status, "completed" | "failed" | "cancelled")
                && !saga.paused
                && saga.open.is_empty()
                && saga.buffered.is_empty()
        };
        let Some(saga) = self.sagas.remove(of) else {
            return false;
        };
        if !has_ended(&saga) {
            self.sagas.insert(of.to_owned(), saga);
            return false;
        }
        self.purged_dedupe_keys
            .entry(of.to_owned())
            .or_default()
            .extend(saga.applied);
        true
    }

    /// Applies an input to an instance.
    pub fn take(&mut self, of: &str, op: &OracleOp) -> OracleResult {
        let Some(mut saga) = self.sagas.remove(of) else {
            return self.start(of, op);
        };
        let resumes = saga.paused;
        let result = if repeated(&saga, op) {
            OracleResult::Duplicate
        } else {
            self.apply_once(of, &mut saga, op)
        };
        if resumes && !saga.paused {
            if saga.timer.is_some() {
                self.arm(of, &mut saga);
            }
            for buffered in std::mem::take(&mut saga.buffered) {
                self.apply_to_program(of, &mut saga, &buffered);
            }
        }
        self.sagas.insert(of.to_owned(), saga);
        result
    }

    /// Removes the row of a published fact, or of an accepted command that needs no response.
    pub fn complete(&mut self, row: &(String, String, usize)) {
        self.outbox.remove(row);
    }

    fn start(&mut self, of: &str, op: &OracleOp) -> OracleResult {
        self.clear(of, op);
        match op {
            OracleOp::Event("OrderPlaced", id) => {
                let applied = self.purged_dedupe_keys.get(of).cloned().unwrap_or_default();
                self.unknown.retain(|(instance, _)| instance != of);
                let mut saga = OracleInstance {
                    status: "running",
                    version: 1,
                    applied,
                    ..OracleInstance::default()
                };
                saga.applied.insert(id.clone());
                self.advance(of, &mut saga);
                for (early, _) in self.early.remove(of).unwrap_or_default() {
                    self.apply_to_program(of, &mut saga, &early);
                    if let OracleOp::Event(_, id) = early {
                        saga.applied.insert(id);
                    }
                }
                self.sagas.insert(of.to_owned(), saga);
                OracleResult::Applied
            }
            OracleOp::Control(..) => OracleResult::Rejected,
            OracleOp::Event(..) => self.buffer(of, op),
            OracleOp::Timer(0) => self.expire(of),
            OracleOp::Outcome(..) | OracleOp::Timer(_) => OracleResult::Ignored,
        }
    }

    /// Buffers an early event once, for a day.
    fn buffer(&mut self, of: &str, op: &OracleOp) -> OracleResult {
        let early = self.early.entry(of.to_owned()).or_default();
        if early.iter().any(|(other, _)| other == op) {
            return OracleResult::Ignored;
        }
        early.push((op.clone(), self.now + 24 * 3_600_000));
        OracleResult::Buffered
    }

    /// Deletes early events that were buffered for a day.
    fn expire(&mut self, of: &str) -> OracleResult {
        let now = self.now;
        let Some(early) = self.early.get_mut(of) else {
            return OracleResult::Ignored;
        };
        let before = early.len();
        early.retain(|(_, until)| *until > now);
        let dropped = before > early.len();
        self.early.retain(|_, early| !early.is_empty());
        if dropped {
            OracleResult::Applied
        } else {
            OracleResult::Ignored
        }
    }

    fn apply_once(&mut self, of: &str, saga: &mut OracleInstance, op: &OracleOp) -> OracleResult {
        let result = match op {
            OracleOp::Control(name, _) => self.control(of, saga, name),
            OracleOp::Outcome(tag, nth, _) if saga.open.get(tag) != Some(nth) => {
                OracleResult::Ignored
            }
            OracleOp::Timer(token) if saga.timer != Some(*token) => OracleResult::Ignored,
            // The resume arms it again.
            OracleOp::Timer(_) if saga.paused => {
                saga.timer_row = false;
                OracleResult::Ignored
            }
            OracleOp::Event(..) | OracleOp::Outcome(..) if saga.paused => OracleResult::Buffered,
            OracleOp::Event(..) | OracleOp::Outcome(..) | OracleOp::Timer(_) => {
                self.apply_to_program(of, saga, op)
            }
        };
        self.clear(of, op);
        if result == OracleResult::Buffered {
            saga.buffered.push(op.clone());
        }
        if let (
            OracleOp::Event(_, id) | OracleOp::Control(_, id),
            OracleResult::Applied | OracleResult::Buffered,
        ) = (op, result)
        {
            saga.applied.insert(id.clone());
        }
        result
    }

    /// Removes the outbox row of an outcome, regardless of the result of the input.
    fn clear(&mut self, of: &str, op: &OracleOp) {
        if let OracleOp::Outcome(tag, nth, _) = op {
            self.outbox.remove(&(of.to_owned(), tag.clone(), *nth));
        }
    }

    fn control(&mut self, of: &str, saga: &mut OracleInstance, name: &str) -> OracleResult {
        let ended = matches!(saga.status, "completed" | "failed" | "cancelled");
        match name {
            "resume" if saga.paused => saga.paused = false,
            "pause" if !saga.paused && !ended => saga.paused = true,
            "cancel" if !saga.paused && saga.status == "running" => {
                saga.cancelled = true;
                self.start_compensation(of, saga);
            }
            "retry" if !saga.paused && saga.status == "stuck" => {
                let failed = STEPS
                    .into_iter()
                    .find(|step| saga.steps.get(step) == Some(&"compensation failed"));
                saga.status = "compensating";
                self.request_compensation(of, saga, failed.unwrap_or("none"));
            }
            _ => return OracleResult::Rejected,
        }
        Self::applied(saga)
    }

    /// Applies an input to the program.
    fn apply_to_program(
        &mut self,
        of: &str,
        saga: &mut OracleInstance,
        op: &OracleOp,
    ) -> OracleResult {
        let changed = match op {
            OracleOp::Event("StockReserved", _) => self.step(of, saga, "reserve", "ok"),
            OracleOp::Event("StockRejected", _) => self.step(of, saga, "reserve", "failed"),
            OracleOp::Event("StockReleased", _) => {
                self.compensated(of, saga, "reserve", true) || self.keep_released(saga)
            }
            OracleOp::Event(..) | OracleOp::Control(..) => false,
            OracleOp::Outcome(tag, nth, _) if saga.open.get(tag) != Some(nth) => false,
            OracleOp::Outcome(tag, _, result) => self.outcome(of, saga, tag, *result),
            OracleOp::Timer(token) if saga.timer != Some(*token) => false,
            OracleOp::Timer(_) => self.step(of, saga, "reserve", "timed out"),
        };
        if changed {
            Self::applied(saga)
        } else {
            OracleResult::Ignored
        }
    }

    /// Keeps the confirmation of a compensation that has not started.
    fn keep_released(&self, saga: &mut OracleInstance) -> bool {
        let may_start = matches!(saga.status, "running" | "compensating" | "stuck")
            && matches!(
                saga.steps["reserve"],
                "open" | "done" | "failed" | "abandoned"
            );
        saga.released
            .extend(may_start.then_some(self.now + 24 * 3_600_000));
        may_start
    }

    fn applied(saga: &mut OracleInstance) -> OracleResult {
        saga.version += 1;
        if matches!(saga.status, "completed" | "failed" | "cancelled") {
            saga.released.clear();
            saga.open.retain(|tag, _| !tag.ends_with("reserve"));
        }
        OracleResult::Applied
    }

    fn outcome(
        &mut self,
        of: &str,
        saga: &mut OracleInstance,
        tag: &str,
        result: OracleOutcome,
    ) -> bool {
        let succeeded = matches!(result, OracleOutcome::Accepted | OracleOutcome::Succeeded);
        let requested = saga.open.remove(tag);
        if succeeded && tag.ends_with("reserve") {
            return requested.is_some();
        }
        if result == OracleOutcome::TimedOut {
            self.unknown.insert((of.to_owned(), tag.to_owned()));
        }
        // A result that changes no step is recorded: its work is no longer pending.
        match tag.strip_prefix("compensate:") {
            Some(step) => self.compensated(of, saga, step, succeeded),
            None if succeeded => self.step(of, saga, tag, "ok"),
            None if result == OracleOutcome::Failed => self.step(of, saga, tag, "failed"),
            None => self.step(of, saga, tag, "timed out"),
        };
        requested.is_some()
    }

    fn step(&mut self, of: &str, saga: &mut OracleInstance, step: &str, result: &str) -> bool {
        let Some(step) = STEPS.into_iter().find(|known| *known == step) else {
            return false;
        };
        match (saga.steps.get(step).copied().unwrap_or("waiting"), result) {
            ("open", "ok") => {
                saga.steps.insert(step, "done");
                saga.done.push(step);
                self.advance(of, saga);
            }
            ("open", "timed out") => {
                saga.steps.insert(step, "done");
                saga.done.push(step);
                self.start_compensation(of, saga);
            }
            ("open", _) => {
                saga.steps.insert(step, "failed");
                self.start_compensation(of, saga);
            }
            ("failed" | "abandoned", "ok") | ("abandoned", "timed out") => {
                saga.steps.insert(step, "done");
                saga.done.push(step);
                if matches!(saga.status, "failed" | "cancelled") {
                    self.compensate_next(of, saga);
                }
            }
            _ => return false,
        }
        true
    }

    fn compensated(
        &mut self,
        of: &str,
        saga: &mut OracleInstance,
        step: &str,
        succeeded: bool,
    ) -> bool {
        let Some(step) = STEPS.into_iter().find(|known| *known == step) else {
            return false;
        };
        match (
            saga.steps.get(step).copied().unwrap_or("waiting"),
            succeeded,
        ) {
            ("compensating" | "compensation failed", true) => {
                saga.steps.insert(step, "compensated");
                self.compensate_next(of, saga);
            }
            ("compensating", false) => {
                saga.steps.insert(step, "compensation failed");
                saga.status = "stuck";
            }
            _ => return false,
        }
        true
    }

    fn advance(&mut self, of: &str, saga: &mut OracleInstance) {
        Self::disarm(saga);
        let Some(next) = STEPS
            .into_iter()
            .find(|step| !saga.steps.contains_key(step))
        else {
            saga.status = "completed";
            saga.emitted = true;
            return self.request(of, saga, "OrderCompleted", false);
        };
        saga.steps.insert(next, "open");
        if next == "reserve" {
            self.arm(of, saga);
        }
        self.request(of, saga, next, true);
    }

    fn start_compensation(&mut self, of: &str, saga: &mut OracleInstance) {
        Self::disarm(saga);
        saga.steps
            .values_mut()
            .filter(|state| **state == "open")
            .for_each(|state| *state = "abandoned");
        self.compensate_next(of, saga);
    }

    fn compensate_next(&mut self, of: &str, saga: &mut OracleInstance) {
        saga.status = "compensating";
        if let Some(step) = saga.done.pop() {
            return self.request_compensation(of, saga, step);
        }
        saga.status = if saga.cancelled {
            "cancelled"
        } else {
            "failed"
        };
        if !saga.cancelled && !saga.emitted {
            saga.emitted = true;
            self.request(of, saga, "OrderFailed", false);
        }
    }

    fn request_compensation(&mut self, of: &str, saga: &mut OracleInstance, step: &'static str) {
        saga.steps.insert(step, "compensating");
        self.request(of, saga, &format!("compensate:{step}"), true);
        if step == "reserve"
            && std::mem::take(&mut saga.released)
                .iter()
                .any(|until| *until > self.now)
        {
            self.compensated(of, saga, step, true);
        }
    }

    fn request(&mut self, of: &str, saga: &mut OracleInstance, name: &str, awaited: bool) {
        let requested = self
            .requested
            .entry((of.to_owned(), name.to_owned()))
            .or_default();
        if !self.unknown.remove(&(of.to_owned(), name.to_owned())) {
            *requested += 1;
        }
        self.outbox
            .insert((of.to_owned(), name.to_owned(), *requested));
        if awaited {
            saga.open.insert(name.to_owned(), *requested);
        }
    }

    fn arm(&mut self, of: &str, saga: &mut OracleInstance) {
        let armings = self.armings.entry(of.to_owned()).or_default();
        *armings += 1;
        saga.timer = Some(*armings);
        saga.timer_row = true;
    }

    fn disarm(saga: &mut OracleInstance) {
        saga.timer = None;
        saga.timer_row = false;
    }
}

fn repeated(saga: &OracleInstance, op: &OracleOp) -> bool {
    match op {
        OracleOp::Event(_, id) | OracleOp::Control(_, id) => saga.applied.contains(id),
        OracleOp::Outcome(..) | OracleOp::Timer(_) => false,
    }
}
