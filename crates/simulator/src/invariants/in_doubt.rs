//! Invariant of work in doubt: an operator decides, and the decision applies.

use orlog_model::{
    Commit, ControlAction, ControlRequest, IN_DOUBT, Input, Name, TaskAction, WorkOutcome,
};
use orlog_program::in_doubt::{EXECUTED, NOT_EXECUTED};

use super::invariant::{Invariant, Violation};
use super::step_states::is_in_doubt;
use super::view::DecisionView;
use crate::responses::opens_in_doubt_task;

/// Checks that possibly executed work is not executed again. Before the decision the work is not
/// requested; after it only if it was not executed. Work that was executed is kept or compensated.
pub(super) fn check_in_doubt(
    view: &DecisionView<'_>,
    commit: &Commit,
    violations: &mut Vec<Violation>,
) {
    let decision = decision(view);
    let mut report = |message| {
        violations.push(Violation {
            rule: Invariant::InDoubtTaskOpened,
            message,
        });
    };

    for tag in commit
        .work
        .iter()
        .filter_map(|item| item.work.tag())
        .map(Name::as_str)
    {
        // Before or after: the request may be the reaction to the decision, or precede the
        // question.
        let in_doubt = is_in_doubt(view.before.get(tag)) || is_in_doubt(view.after.get(tag));
        if in_doubt && decision.as_ref() != Some(&(tag.to_owned(), NOT_EXECUTED.to_owned())) {
            report(format!(
                "{tag} was requested again without a decision that it was not executed"
            ));
        }
    }

    if let Some(tag) = tag_left_in_doubt(view)
        .filter(|tag| matches!(view.before.get(tag), "running" | "abandoned"))
        && !view.after.get(&tag).starts_with("in_doubt")
    {
        report(format!("{tag} is in doubt without an open task"));
    }

    let Some((tag, _)) =
        decision.filter(|(tag, outcome)| outcome == EXECUTED && is_in_doubt(view.before.get(tag)))
    else {
        return;
    };

    // A result whose values cannot be saved, or that means failure, reports this.
    let after = view.after.get(&tag);
    if view.has_compensation(&tag)
        && matches!(
            after,
            "in_doubt" | "in_doubt_abandoned" | "running" | "pending"
        )
    {
        report(format!(
            "{tag} was executed according to an operator, but its state is {after}"
        ));
    }
}

/// Returns the decision of an operator and its tag.
fn decision(view: &DecisionView<'_>) -> Option<(String, String)> {
    let Input::Control(ControlRequest {
        action: ControlAction::Task { id, order, .. },
        ..
    }) = view.seen.input
    else {
        return None;
    };

    let TaskAction::Complete {
        outcome: Some(outcome),
        ..
    } = order
    else {
        return None;
    };

    let task = view
        .seen
        .context
        .instance?
        .tasks
        .iter()
        .find(|task| task.id == *id)?;
    Some((task.spec.tag.to_string(), outcome.to_string()))
}

/// Returns the tag of the work that the provider leaves in doubt, if an operator must decide.
fn tag_left_in_doubt(view: &DecisionView<'_>) -> Option<String> {
    let Input::WorkResult(outcome) = view.seen.input else {
        return None;
    };
    let WorkOutcome::TimedOut { failure } = &outcome.outcome else {
        return None;
    };

    let open = view
        .seen
        .context
        .instance?
        .pending_work
        .iter()
        .find(|open| open.id == outcome.work_id)?;

    let needs_decision =
        failure.code == IN_DOUBT && opens_in_doubt_task(view.definition?, open.tag.as_str());
    needs_decision.then(|| open.tag.to_string())
}
