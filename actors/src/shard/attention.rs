//! Log records of instances that start to require an operator: one for each change, when its commit
//! is durable.

use orlog_model::{Commit, Instance, Status, StatusSnapshot, WaitKind};

use crate::telemetry::log_instance;

/// What a commit changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AttentionChange {
    /// The instance became stuck.
    is_stuck: bool,
    /// A result of its pending work became a dead letter, and no other one was.
    has_unapplied_result: bool,
}

impl AttentionChange {
    fn between(before: Option<StatusSnapshot>, now: StatusSnapshot) -> Self {
        let was_stuck = before.is_some_and(|before| before.status == Status::Stuck);
        let was_unapplied = before.is_some_and(|before| before.has_unapplied_result);
        Self {
            is_stuck: now.status == Status::Stuck && !was_stuck,
            has_unapplied_result: now.has_unapplied_result && !was_unapplied,
        }
    }
}

/// Logs that the instance of a commit became stuck, or that a result of its work could not be
/// applied.
pub(super) fn log_change(commit: &Commit) {
    let Some(instance) = &commit.instance else {
        return;
    };
    // Without a dead letter, no result becomes unapplied. Most commits end here.
    if instance.status != Status::Stuck && commit.dead_letter.is_none() {
        return;
    }

    let before = commit.before.as_deref().map(StatusSnapshot::from_instance);
    let change = AttentionChange::between(before, StatusSnapshot::from_instance(instance));
    if change == AttentionChange::default() {
        return;
    }

    let trace = instance.trace.as_ref();
    let error = instance.last_error.as_ref();
    let reason = error.map_or("unknown", |error| error.code.as_str());

    if change.is_stuck {
        let step = stuck_step(instance);
        let attempts = error.and_then(|error| error.attempts);
        let cause = error
            .and_then(|error| error.cause.as_ref())
            .map(|cause| cause.code.as_str());
        log_instance!(
            WARN,
            commit.key,
            trace,
            step,
            reason,
            attempts,
            cause,
            "instance stuck: retry, skip or force-complete it"
        );
    }

    if change.has_unapplied_result {
        let open = instance
            .pending_work
            .iter()
            .find(|work| work.dead_letter.is_some());
        let step = open.map(|work| work.tag.as_str());
        let dead_letter = open
            .and_then(|work| work.dead_letter)
            .map(tracing::field::display);
        log_instance!(
            WARN,
            commit.key,
            trace,
            step,
            reason,
            dead_letter,
            "result of the instance dead-lettered: correct the cause and redrive it"
        );
    }
}

/// Returns the step or compensation that waits for an operator.
fn stuck_step(instance: &Instance) -> Option<&str> {
    instance
        .waits
        .iter()
        .find(|wait| wait.kind == WaitKind::Operator)
        .map(|wait| wait.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once() {
        let snapshot = |status, has_unapplied_result| StatusSnapshot {
            status,
            paused: false,
            has_unapplied_result,
        };
        let running = snapshot(Status::Running, false);
        let (stuck, unapplied) = (
            snapshot(Status::Stuck, false),
            snapshot(Status::Running, true),
        );
        let change = |is_stuck, has_unapplied_result| AttentionChange {
            is_stuck,
            has_unapplied_result,
        };
        let none = AttentionChange::default();
        assert_eq!(AttentionChange::between(None, running), none);
        assert_eq!(
            AttentionChange::between(Some(running), stuck),
            change(true, false)
        );
        assert_eq!(AttentionChange::between(Some(stuck), stuck), none);
        assert_eq!(
            AttentionChange::between(Some(running), unapplied),
            change(false, true)
        );
        assert_eq!(AttentionChange::between(Some(unapplied), unapplied), none);
        assert_eq!(AttentionChange::between(Some(unapplied), running), none);
        assert_eq!(
            AttentionChange::between(None, snapshot(Status::Stuck, true)),
            change(true, true)
        );
    }
}
