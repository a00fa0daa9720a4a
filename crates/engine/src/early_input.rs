//! What comes before its instance: kept, applied right after its first transition, dropped when it never begins.
//!
//! Each kept input has a row of its own and says until when it is kept. One timer of the instance that does not exist, under
//! the token 0 that no state version has, is due when the oldest is to be dropped; the first transition disarms it.

use std::time::Duration;

use orlog_model::{Commit, DeadLetterReason, Early, Event, Input, InstanceKey, Timer, TimerFired, Timestamp};

use crate::context::Subject;
use crate::dead_letter::{Grounds, set_aside};
use crate::decision::{Decision, ignore, ignore_and_clear};
use crate::early_buffer::{Kept, row, timer};

/// How many inputs are kept for one instance that does not exist. More become dead letters.
pub const MAX_EARLY: usize = 100;
/// How long an order to stop is kept for a saga that keeps no early events.
const STOP_KEPT: Duration = Duration::from_hours(24);

/// An event that begins nothing, for an instance that does not exist.
pub(crate) fn keep_event(subject: &Subject<'_>, input: &Input, event: &Event) -> Decision {
    let manifest = subject.program.manifest();
    if manifest.early.is_zero() || manifest.triggers.iter().all(|trigger| trigger.kind != event.kind) {
        return ignore("no instance waits for this event");
    }
    keep(subject, input, manifest.early)
}

/// An order to stop that overtook the one to begin.
pub(crate) fn keep_stop(subject: &Subject<'_>, input: &Input) -> Decision {
    let early = subject.program.manifest().early;
    keep(subject, input, if early.is_zero() { STOP_KEPT } else { early })
}

fn keep(subject: &Subject<'_>, input: &Input, keep_for: Duration) -> Decision {
    let id = input.id();
    if subject.early.iter().any(|kept| kept.id == id) {
        return ignore("it is kept already, until its instance begins");
    }
    if subject.early.len() >= MAX_EARLY {
        let message = format!("its instance has not begun, and {MAX_EARLY} inputs are kept for it already");
        let grounds = Grounds { reason: DeadLetterReason::TooManyEarly, message, attempts: 1 };
        let commit = set_aside(subject.key, input, grounds, subject.now, subject.node);
        return Decision::Commit(Box::new(commit));
    }
    let until = subject.now.after(keep_for);
    let mut commit = Commit::empty(subject.key.clone(), subject.now);
    commit.hold = Some(Input::Early(Early { input: Box::new(input.clone()), until }));
    if subject.early.is_empty() {
        commit.arm.push(row(until));
    }
    Decision::Commit(Box::new(commit))
}

/// A timer of an instance that does not exist: drops what was kept long enough.
pub(crate) fn expire(
    key: &InstanceKey,
    early: &[Kept],
    (input, fired): (&Input, &TimerFired),
    now: Timestamp,
) -> Decision {
    let is_armed =
        |timer: &Timer| (timer.due, &timer.name, timer.token) == (fired.due, &fired.name, fired.token);
    if !timer(early).as_ref().is_some_and(is_armed) {
        return ignore_and_clear(key, input, now, "the timer is stale");
    }
    let long_enough = |kept: &&Kept| kept.until <= now.max(fired.due);
    let (old, rest) = early.split_at(early.iter().take_while(long_enough).count());
    let mut commit = Commit::empty(key.clone(), now);
    commit.disarm.push(row(fired.due));
    commit.arm.extend(timer(rest));
    commit.release = old.iter().map(|kept| kept.number).collect();
    Decision::Commit(Box::new(commit))
}
