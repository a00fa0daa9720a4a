//! Log records of instances that start to require an operator: one for each change, when its commit is durable.

use orlog_model::{Commit, Instance, Status, StatusSnapshot, WaitKind};

use crate::telemetry::log_instance;

/// Logs that the instance of a commit became stuck, or that a result of its work could not be applied.
pub(super) fn log_change(commit: &Commit) {
    let Some(instance) = &commit.instance else { return };
    let now = StatusSnapshot::from_instance(instance);
    if !now.needs_attention() {
        return;
    }
    let before = commit.before.as_deref().map(StatusSnapshot::from_instance);
    let trace = instance.trace.as_ref();
    let reason = instance.last_error.as_ref().map_or("unknown", |failure| failure.code.as_str());
    if now.status == Status::Stuck && before.is_none_or(|before| before.status != Status::Stuck) {
        let step = stuck_step(instance);
        log_instance!(
            WARN,
            commit.key,
            trace,
            step,
            reason,
            "instance stuck: retry, skip or force-complete it"
        );
    }
    if now.has_unapplied_result && before.is_none_or(|before| !before.has_unapplied_result) {
        let open = instance.pending_work.iter().find(|work| work.dead_letter.is_some());
        let step = open.map(|work| work.tag.as_str());
        let dead_letter = open.and_then(|work| work.dead_letter).map(tracing::field::display);
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
    instance.waits.iter().find(|wait| wait.kind == WaitKind::Operator).map(|wait| wait.name.as_str())
}
