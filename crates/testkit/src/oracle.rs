//! The oracle: a naive model of [`crate::sagas::order`], written from the words of the design in plain maps.
//!
//! It shares no code with engine, machine or store. Whoever tests those gives both the same operations and compares.

use std::collections::{BTreeMap, BTreeSet};

use crate::sagas::STEPS;

/// What became of work, as the oracle sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Result {
    /// The Gateway took it.
    Accepted,
    /// It was done.
    Succeeded,
    /// It was refused.
    Failed,
    /// Nobody knows.
    TimedOut,
}

/// What an instance can be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// An event of that type, with that id.
    Event(&'static str, String),
    /// An outcome of the work of a tag that was asked for as the n-th under it.
    Outcome(String, usize, Result),
    /// The timer armed at that version.
    Timer(u64),
    /// An instruction (`cancel`, `pause`, `resume`, `retry`) with that id.
    Control(&'static str, String),
}

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// A transition.
    Applied,
    /// Nothing.
    Ignored,
    /// It is kept until the instance begins or is resumed.
    Held,
    /// The status forbids it.
    Refused,
    /// It was taken before.
    Repeated,
}

/// One instance.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a naive model says each thing by itself")]
pub struct Saga {
    /// `running`, `compensating`, `completed`, `failed`, `cancelled` or `stuck`.
    pub status: &'static str,
    /// Inputs are kept.
    pub paused: bool,
    /// Transitions so far.
    pub version: u64,
    /// Kept inputs.
    pub held: Vec<Op>,
    /// The version that armed the timer of the first step, while that is awaited.
    pub timer: Option<u64>,
    /// The timer lies in the table, too.
    pub timer_row: bool,
    steps: BTreeMap<&'static str, &'static str>,
    done: Vec<&'static str>,
    open: BTreeMap<String, usize>,
    cancelled: bool,
    told: bool,
    applied: BTreeSet<String>,
}

/// All instances and the outbox.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// By correlation id.
    pub sagas: BTreeMap<String, Saga>,
    /// What is to be done: (correlation id, tag or fact, how often it was asked for).
    pub outbox: BTreeSet<(String, String, usize)>,
    /// What came before its instance: events, and until when each is kept.
    pub early: BTreeMap<String, Vec<(Op, i64)>>,
    /// The present, in milliseconds.
    pub now: i64,
    asked: BTreeMap<(String, String), usize>,
    /// What instances that were forgotten had applied: it is remembered longer than they are.
    remembered: BTreeMap<String, BTreeSet<String>>,
}

impl Oracle {
    /// Forgets an instance, if it is over.
    pub fn purge(&mut self, of: &str) -> bool {
        let is_over = |saga: &Saga| {
            matches!(saga.status, "completed" | "failed" | "cancelled")
                && !saga.paused
                && saga.open.is_empty()
                && saga.held.is_empty()
        };
        let Some(saga) = self.sagas.remove(of) else { return false };
        if !is_over(&saga) {
            self.sagas.insert(of.to_owned(), saga);
            return false;
        }
        self.remembered.entry(of.to_owned()).or_default().extend(saga.applied);
        true
    }

    /// Tells an instance something.
    pub fn take(&mut self, of: &str, op: &Op) -> Answer {
        let Some(mut saga) = self.sagas.remove(of) else { return self.begin(of, op) };
        let resumes = saga.paused;
        let answer = if repeated(&saga, op) { Answer::Repeated } else { self.take_once(of, &mut saga, op) };
        if resumes && !saga.paused {
            for held in std::mem::take(&mut saga.held) {
                self.react(of, &mut saga, &held);
            }
        }
        self.sagas.insert(of.to_owned(), saga);
        answer
    }

    /// A fact was published, or an accepted command needs no answer.
    pub fn settle(&mut self, row: &(String, String, usize)) {
        self.outbox.remove(row);
    }

    fn begin(&mut self, of: &str, op: &Op) -> Answer {
        self.clear(of, op);
        match op {
            Op::Event("OrderPlaced", id) => {
                let applied = self.remembered.get(of).cloned().unwrap_or_default();
                let mut saga = Saga { status: "running", version: 1, applied, ..Saga::default() };
                saga.applied.insert(id.clone());
                self.advance(of, &mut saga);
                for (kept, _) in self.early.remove(of).unwrap_or_default() {
                    self.react(of, &mut saga, &kept);
                    if let Op::Event(_, id) = kept {
                        saga.applied.insert(id);
                    }
                }
                self.sagas.insert(of.to_owned(), saga);
                Answer::Applied
            }
            Op::Control(..) => Answer::Refused,
            Op::Event(..) => self.keep(of, op),
            Op::Timer(0) => self.forget(of),
            Op::Outcome(..) | Op::Timer(_) => Answer::Ignored,
        }
    }

    /// An event is kept once, for a day.
    fn keep(&mut self, of: &str, op: &Op) -> Answer {
        let kept = self.early.entry(of.to_owned()).or_default();
        if kept.iter().any(|(other, _)| other == op) {
            return Answer::Ignored;
        }
        kept.push((op.clone(), self.now + 24 * 3_600_000));
        Answer::Held
    }

    /// What was kept for a day goes.
    fn forget(&mut self, of: &str) -> Answer {
        let now = self.now;
        let Some(kept) = self.early.get_mut(of) else { return Answer::Ignored };
        let before = kept.len();
        kept.retain(|(_, until)| *until > now);
        let dropped = before > kept.len();
        self.early.retain(|_, kept| !kept.is_empty());
        if dropped { Answer::Applied } else { Answer::Ignored }
    }

    fn take_once(&mut self, of: &str, saga: &mut Saga, op: &Op) -> Answer {
        let answer = match op {
            Op::Control(what, _) => self.control(of, saga, what),
            Op::Outcome(tag, nth, _) if saga.open.get(tag) != Some(nth) => Answer::Ignored,
            Op::Timer(token) if saga.timer != Some(*token) => Answer::Ignored,
            Op::Event(..) | Op::Outcome(..) | Op::Timer(_) if saga.paused => Answer::Held,
            Op::Event(..) | Op::Outcome(..) | Op::Timer(_) => self.react(of, saga, op),
        };
        self.clear(of, op);
        if matches!(op, Op::Timer(_)) && answer == Answer::Held {
            saga.timer_row = false;
        }
        if answer == Answer::Held {
            saga.held.push(op.clone());
        }
        if let (Op::Event(_, id) | Op::Control(_, id), Answer::Applied | Answer::Held) = (op, answer) {
            saga.applied.insert(id.clone());
        }
        answer
    }

    /// An outcome takes its row with it, whatever comes of it.
    fn clear(&mut self, of: &str, op: &Op) {
        if let Op::Outcome(tag, nth, _) = op {
            self.outbox.remove(&(of.to_owned(), tag.clone(), *nth));
        }
    }

    fn control(&mut self, of: &str, saga: &mut Saga, what: &str) -> Answer {
        let ended = matches!(saga.status, "completed" | "failed" | "cancelled");
        match what {
            "resume" if saga.paused => saga.paused = false,
            "pause" if !saga.paused && !ended => saga.paused = true,
            "cancel" if !saga.paused && saga.status == "running" => {
                saga.cancelled = true;
                self.turn_back(of, saga);
            }
            "retry" if !saga.paused && saga.status == "stuck" => {
                let failed = STEPS.into_iter().find(|step| saga.steps.get(step) == Some(&"undo failed"));
                saga.status = "compensating";
                self.ask_undo(of, saga, failed.unwrap_or("none"));
            }
            _ => return Answer::Refused,
        }
        Self::applied(saga)
    }

    /// An input that reaches the program.
    fn react(&mut self, of: &str, saga: &mut Saga, op: &Op) -> Answer {
        let changed = match op {
            Op::Event("StockReserved", _) => self.step(of, saga, "reserve", "ok"),
            Op::Event("StockRejected", _) => self.step(of, saga, "reserve", "failed"),
            Op::Event("StockReleased", _) => self.undone(of, saga, "reserve", true),
            Op::Event(..) | Op::Control(..) => false,
            Op::Outcome(tag, nth, _) if saga.open.get(tag) != Some(nth) => false,
            Op::Outcome(tag, _, result) => self.outcome(of, saga, tag, *result),
            Op::Timer(token) if saga.timer != Some(*token) => false,
            Op::Timer(_) => self.step(of, saga, "reserve", "timed out"),
        };
        if changed { Self::applied(saga) } else { Answer::Ignored }
    }

    fn applied(saga: &mut Saga) -> Answer {
        saga.version += 1;
        if matches!(saga.status, "completed" | "failed" | "cancelled") {
            saga.open.retain(|tag, _| ["charge", "notify"].iter().any(|effect| tag.ends_with(effect)));
        }
        Answer::Applied
    }

    fn outcome(&mut self, of: &str, saga: &mut Saga, tag: &str, result: Result) -> bool {
        let good = matches!(result, Result::Accepted | Result::Succeeded);
        if good && tag.ends_with("reserve") {
            return false;
        }
        let before = saga.open.clone();
        let asked = saga.open.remove(tag);
        let changed = match tag.strip_prefix("undo:") {
            Some(step) => self.undone(of, saga, step, good),
            None if good => self.step(of, saga, tag, "ok"),
            None if result == Result::Failed => self.step(of, saga, tag, "failed"),
            None => self.step(of, saga, tag, "timed out"),
        };
        if !changed {
            saga.open = before;
        }
        changed && asked.is_some()
    }

    fn step(&mut self, of: &str, saga: &mut Saga, step: &str, answer: &str) -> bool {
        let Some(step) = STEPS.into_iter().find(|known| *known == step) else { return false };
        match (saga.steps.get(step).copied().unwrap_or("waiting"), answer) {
            ("open", "ok") => {
                saga.steps.insert(step, "done");
                saga.done.push(step);
                self.advance(of, saga);
            }
            ("open", answer) => {
                saga.steps.insert(step, if answer == "failed" { "failed" } else { "given up" });
                self.turn_back(of, saga);
            }
            ("failed" | "given up", "ok") => {
                saga.steps.insert(step, "done");
                saga.done.push(step);
                if matches!(saga.status, "failed" | "cancelled") {
                    self.undo_next(of, saga);
                }
            }
            _ => return false,
        }
        true
    }

    fn undone(&mut self, of: &str, saga: &mut Saga, step: &str, good: bool) -> bool {
        let Some(step) = STEPS.into_iter().find(|known| *known == step) else { return false };
        match (saga.steps.get(step).copied().unwrap_or("waiting"), good) {
            ("undoing" | "undo failed", true) => {
                saga.steps.insert(step, "undone");
                self.undo_next(of, saga);
            }
            ("undoing", false) => {
                saga.steps.insert(step, "undo failed");
                saga.status = "stuck";
            }
            _ => return false,
        }
        true
    }

    fn advance(&mut self, of: &str, saga: &mut Saga) {
        Self::disarm(saga);
        let Some(next) = STEPS.into_iter().find(|step| !saga.steps.contains_key(step)) else {
            saga.status = "completed";
            saga.told = true;
            return self.ask(of, saga, "OrderCompleted", false);
        };
        saga.steps.insert(next, "open");
        if next == "reserve" {
            saga.timer = Some(saga.version);
            saga.timer_row = true;
        }
        self.ask(of, saga, next, true);
    }

    fn turn_back(&mut self, of: &str, saga: &mut Saga) {
        Self::disarm(saga);
        saga.steps.values_mut().filter(|state| **state == "open").for_each(|state| *state = "given up");
        self.undo_next(of, saga);
    }

    fn undo_next(&mut self, of: &str, saga: &mut Saga) {
        saga.status = "compensating";
        if let Some(step) = saga.done.pop() {
            return self.ask_undo(of, saga, step);
        }
        saga.status = if saga.cancelled { "cancelled" } else { "failed" };
        if !saga.cancelled && !saga.told {
            saga.told = true;
            self.ask(of, saga, "OrderFailed", false);
        }
    }

    fn ask_undo(&mut self, of: &str, saga: &mut Saga, step: &'static str) {
        saga.steps.insert(step, "undoing");
        self.ask(of, saga, &format!("undo:{step}"), true);
    }

    fn ask(&mut self, of: &str, saga: &mut Saga, what: &str, answered: bool) {
        let asked = self.asked.entry((of.to_owned(), what.to_owned())).or_default();
        *asked += 1;
        self.outbox.insert((of.to_owned(), what.to_owned(), *asked));
        if answered {
            saga.open.insert(what.to_owned(), *asked);
        }
    }

    fn disarm(saga: &mut Saga) {
        saga.timer = None;
        saga.timer_row = false;
    }
}

fn repeated(saga: &Saga, op: &Op) -> bool {
    match op {
        Op::Event(_, id) | Op::Control(_, id) => saga.applied.contains(id),
        Op::Outcome(..) | Op::Timer(_) => false,
    }
}
