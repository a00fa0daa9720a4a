//! Invariants of one transition, which need no record of earlier ones.

use std::collections::BTreeSet;

use orlog_model::{
    Commit, ControlAction, ControlRequest, Input, Instance, ParentEndPolicy, Status,
};
use orlog_program::{Action, Step, remains_after_failure};

use super::invariant::{Invariant, Violation};
use super::step_states::{is_compensation, is_in_progress, was_completed};
use super::view::DecisionView;

/// Returns whether the step ignores the result of a child saga that it has abandoned.
pub(super) fn ignores_late_result(step: &Step) -> bool {
    matches!(
        &step.action,
        Action::Saga(child) if child.on_parent_end == Some(ParentEndPolicy::Abandon)
    )
}

pub(super) fn check_success_recorded(
    view: &DecisionView<'_>,
    success: Option<&str>,
    violations: &mut Vec<Violation>,
) {
    let Some(tag) = success else { return };
    let before = view.before.get(tag);
    let after = view.after.get(tag);

    // A success whose values cannot be saved fails its step with a message.
    let was_awaited = matches!(
        before,
        "running" | "retrying" | "failed" | "abandoned" | "child_awaited"
    );
    let is_lost = matches!(after, "running" | "pending" | "abandoned" | "child_awaited");

    let ignored = before == "abandoned" && view.step(tag).is_some_and(ignores_late_result);

    if was_awaited && view.has_compensation(tag) && is_lost && !ignored {
        let message = format!("{tag} succeeded, but its state is {after}");
        violations.push(Violation {
            rule: Invariant::LateSuccessHandled,
            message,
        });
    }
}

pub(super) fn check_unknown_compensated(
    view: &DecisionView<'_>,
    tag: Option<&str>,
    violations: &mut Vec<Violation>,
) {
    let Some(tag) = tag.filter(|tag| view.has_compensation(tag)) else {
        return;
    };

    if view.after.get(tag) == "abandoned" && !view.step(tag).is_some_and(ignores_late_result) {
        let message = format!("{tag} may have been executed and is not compensated");
        violations.push(Violation {
            rule: Invariant::UnknownOutcomeHandled,
            message,
        });
    }
}

/// Checks that only compensations are requested after forward execution stops.
pub(super) fn check_no_new_work(
    view: &DecisionView<'_>,
    commit: &Commit,
    violations: &mut Vec<Violation>,
) {
    // The transition that starts compensation can contain work that was requested before the
    // failure.
    let was_compensating = view
        .previous_state()
        .is_some_and(|status| status != Status::Running)
        && view.status != Status::Running;
    if !was_compensating {
        return;
    }

    let tags = commit.work.iter().filter_map(|item| item.work.tag());
    for tag in tags.filter(|tag| !tag.as_str().starts_with("compensate:")) {
        // Past the pivot, a retry requests the action of a blocked step.
        let retried = view.previous_state() == Some(Status::Stuck) && is_retry(view.seen.input);
        if !retried {
            let message = format!("{tag} was requested although the saga is {}", view.status);
            violations.push(Violation {
                rule: Invariant::NoNewWorkWhileCompensating,
                message,
            });
        }
    }
}

fn is_retry(input: &Input) -> bool {
    matches!(
        input,
        Input::Control(ControlRequest {
            action: ControlAction::Retry,
            ..
        })
    )
}

pub(super) fn check_timers(
    view: &DecisionView<'_>,
    after: &Instance,
    violations: &mut Vec<Violation>,
) {
    for timer in &after.timers {
        let name = timer.name.as_str();

        // A timer has the tag of its work, with its purpose as a prefix.
        let name = name
            .strip_prefix("retry:")
            .or_else(|| name.strip_prefix("escalate:"))
            .or_else(|| name.strip_prefix("remind:"))
            .unwrap_or(name);
        let (tag, compensating) = name
            .strip_prefix("compensate:")
            .map_or((name, false), |tag| (tag, true));

        let state = view.after.get(tag);
        let is_expected = if compensating {
            is_compensation(state)
        } else {
            is_in_progress(state)
        };

        // A timer without a step, such as that of the saga, belongs to no work.
        if !state.is_empty() && !is_expected {
            let message = format!(
                "the timer {} is armed although {tag} is {state}",
                timer.name
            );
            violations.push(Violation {
                rule: Invariant::NoIdleTimers,
                message,
            });
        }
    }
}

/// Returns the steps without a compensation that the transition completes while the saga runs
/// forward, unless a comment of the definition allows their change to remain.
pub(super) fn newly_irreversible(view: &DecisionView<'_>) -> Vec<String> {
    let runs_forward = view
        .previous_state()
        .is_none_or(|status| status == Status::Running);
    let Some(compiled) = view
        .seen
        .context
        .program
        .as_compiled()
        .filter(|_| runs_forward)
    else {
        return Vec::new();
    };

    let completed = compiled
        .definition()
        .steps
        .iter()
        .map(|step| step.id.as_str())
        .filter(|id| {
            was_completed(view.after.get(id))
                && !was_completed(view.before.get(id))
                && remains_after_failure(compiled, id)
        });
    completed.map(ToOwned::to_owned).collect()
}

/// Checks that a saga that did not complete leaves no change of a step that completed before it
/// failed: the step has a compensation, or a comment of the definition allows its change to remain.
pub(super) fn check_all_or_nothing(
    view: &DecisionView<'_>,
    irreversible: &BTreeSet<String>,
    violations: &mut Vec<Violation>,
) {
    // Once: a saga that compensates a late success reaches a final status again.
    let ends = view.status.is_final() && !view.previous_state().is_some_and(Status::is_final);
    if !ends || view.status == Status::Completed {
        return;
    }
    for id in irreversible {
        let message = format!(
            "the instance is {}, and {id} completed but has no compensation",
            view.status
        );
        violations.push(Violation {
            rule: Invariant::AllOrNothing,
            message,
        });
    }
}
