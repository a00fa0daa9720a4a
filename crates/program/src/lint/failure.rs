//! Lints of failing steps and of timeouts.

use super::context::LintContext;
use super::suppress;
use crate::compile::CompiledDefinition;
use crate::definition::{FailureHandler, Step};
use crate::diagnostic::RawDiagnostic;
use crate::steps::kind::Completion;
use crate::steps::{Action, OnMaxRounds, TimeLimit};

/// Code of the rule for steps without a compensation.
pub(super) const MISSING_COMPENSATION: &str = "OL03";

/// OL02: an awaiting step that cannot fail.
pub(super) fn no_failure_path(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let endless = context.steps().filter(|(i, step)| {
        let has_saga_timer = context.definition.timeout.is_some() && !context.past_pivot(*i);

        // Something ends an instance that stays active; the compiler checks it.
        let is_ended = has_saga_timer || context.definition.keep_active;
        waits(step) && step.fail.is_empty() && step.timeout.is_none() && !is_ended
    });

    endless
        .map(|(i, step)| {
            let message = format!(
                "step `{}` has no timeout and no failure: without a result the saga never ends",
                step.id
            );
            RawDiagnostic::new(format!("steps[{i}]"), message)
                .with_suggestion("set a `timeout`, or name the failure event with `fail`")
        })
        .collect()
}

/// Returns true if the step awaits a result that may never arrive.
fn waits(step: &Step) -> bool {
    match step.action.traits().completion {
        // Without `ok`, a command ends when it is accepted or rejected.
        Completion::Acceptance => !step.ok.is_empty(),
        Completion::Event | Completion::User => true,
        Completion::Outcome | Completion::Timer | Completion::None => false,
    }
}

/// OL03: a step without a compensation, followed by a step that can fail.
pub(super) fn missing_compensation(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let changes = (0..steps.len()).filter(|i| is_irreversible(&steps[*i]));

    let mut findings = Vec::new();
    for i in changes {
        let failing = (0..steps.len()).find(|other| {
            can_fail(&steps[*other])
                && (may_fail_after(context, i, *other) || repeats(context, i, *other))
        });
        let Some(failing) = failing else {
            continue;
        };

        let message = format!(
            "step `{}` has no `undo`: its change remains if {}",
            steps[i].id,
            failure_of(context, failing)
        );
        findings.push(
            RawDiagnostic::new(format!("steps[{i}]"), message)
                .with_suggestion("add an `undo`, or make a step between them the `pivot`"),
        );
    }
    findings
}

/// Describes the failure of a step.
fn failure_of(context: &LintContext<'_>, step: usize) -> String {
    let steps = &context.definition.steps;
    let id = &steps[step].id;
    let failure = if only_times_out(&steps[step]) {
        format!("`{id}` times out")
    } else {
        format!("`{id}` fails")
    };

    // A step of a handler has no place in the usual run.
    let selecting = &context.order.selected_by[step];
    let handled = selecting
        .iter()
        .find(|selecting| !matches!(steps[**selecting].action, Action::Switch(_)));
    match handled {
        Some(handled) => format!(
            "{failure}, which follows a failure of `{}`",
            steps[*handled].id
        ),
        None => failure,
    }
}

/// Returns true if only the `timeout` of the step can fail the saga.
fn only_times_out(step: &Step) -> bool {
    let handles_failures = step
        .on_failure
        .as_ref()
        .is_some_and(FailureHandler::prevents_failure);
    let waits = matches!(
        step.action.traits().completion,
        Completion::Event | Completion::User
    );
    step.timeout.is_some() && (handles_failures || (waits && step.fail.is_empty()))
}

/// Returns true if the step changes something and has no compensation.
fn is_irreversible(step: &Step) -> bool {
    step.action.traits().changes && step.compensate.is_none()
}

/// Returns whether the change of a step remains if its saga fails after it, and no comment in the
/// source allows this (OL03).
#[must_use]
pub fn remains_after_failure(compiled: &CompiledDefinition, step: &str) -> bool {
    let steps = &compiled.definition().steps;
    let found = steps.iter().position(|other| other.id.as_str() == step);
    found.is_some_and(|index| {
        is_irreversible(&steps[index])
            && !suppress::allows(
                compiled.source(),
                MISSING_COMPENSATION,
                &format!("steps[{index}]"),
            )
    })
}

/// Returns true if `other` can fail after `step` has completed and while `step` can still be
/// compensated.
fn may_fail_after(context: &LintContext<'_>, step: usize, other: usize) -> bool {
    let order = &context.order;
    let later = order.precedes(step, other) || order.overlap(step, other);

    // The change is final once the step, if it is a pivot, or a pivot between the two has
    // completed.
    let is_final = context.steps().any(|(pivot, candidate)| {
        candidate.pivot
            && (pivot == step || order.precedes(step, pivot))
            && context.is_past(other, pivot)
    });
    later && !is_final
}

/// Returns true if `other` can fail in a later round of the loop that contains `step`.
fn repeats(context: &LintContext<'_>, step: usize, other: usize) -> bool {
    let loops = &context.order.loops;
    loops[step].is_some() && loops[step] == loops[other]
}

/// Returns true if the step can fail the saga.
pub(super) fn can_fail(step: &Step) -> bool {
    fails_unless(step, FailureHandler::prevents_failure)
}

/// Returns true if the step has a failure to which no handler applies, so that a join can tolerate
/// it.
pub(super) fn can_be_tolerated(step: &Step) -> bool {
    fails_unless(step, |_| true)
}

/// Returns true if the step has a failure that no handler of this kind handles.
fn fails_unless(step: &Step, is_handled_by: impl Fn(&FailureHandler) -> bool) -> bool {
    let handles = |handler: Option<&FailureHandler>| handler.is_some_and(&is_handled_by);
    let handles_failures = handles(step.on_failure.as_ref());
    let handles_timeouts = step
        .on_timeout
        .as_ref()
        .map_or(handles_failures, &is_handled_by);

    // A loop has no result, but too many rounds make it fail.
    if let Action::Repeat(repeat) = &step.action {
        return repeat.on_max == OnMaxRounds::Fail && !handles_failures;
    }
    let times_out = step.timeout.is_some() && !handles_timeouts;
    match step.action.traits().completion {
        Completion::Acceptance | Completion::Outcome => !handles_failures || times_out,
        Completion::Event | Completion::User => {
            times_out || (!step.fail.is_empty() && !handles_failures)
        }
        Completion::Timer | Completion::None => false,
    }
}

/// OL08: a step that may take longer than the saga timeout.
pub(super) fn outlasts_saga_timeout(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let constant = |limit: &Option<TimeLimit>| limit.as_ref().and_then(TimeLimit::constant);
    let Some(saga_timeout) = constant(&context.definition.timeout) else {
        return Vec::new();
    };

    // The saga timer no longer runs past the pivot.
    let long = context.steps().filter(|(i, step)| {
        let longest = constant(&step.timeout).max(step.action.kind().duration());
        longest.is_some_and(|time| time >= saga_timeout) && !context.past_pivot(*i)
    });
    long.map(|(i, step)| {
        let message = format!(
            "step `{}` may outlast the saga timeout, which expires first",
            step.id
        );
        RawDiagnostic::new(format!("steps[{i}]"), message)
            .with_suggestion("increase the saga timeout, or shorten that of the step")
    })
    .collect()
}

/// OL27: a step that ends before its first reminder is due.
pub(super) fn no_time_to_remind(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let constant = |limit: &Option<TimeLimit>| limit.as_ref().and_then(TimeLimit::constant);

    let mut findings = Vec::new();
    for (i, step) in context.steps() {
        let Some(remind) = &step.remind else { continue };

        // Reminders continue while a command is retried, whose timeout limits each attempt.
        let own = constant(&step.timeout).filter(|_| step.retry.is_none());
        // The saga timer no longer runs past the pivot.
        let of_saga = constant(&context.definition.timeout).filter(|_| !context.past_pivot(i));
        let longest = own.into_iter().chain(of_saga).min();

        if longest.is_some_and(|time| remind.every >= time) {
            let message = format!(
                "step `{}` ends before its first reminder is due, so none is sent",
                step.id
            );
            findings.push(
                RawDiagnostic::new(format!("steps[{i}].remind.every"), message)
                    .with_suggestion("use an interval that is shorter than the timeout"),
            );
        }
    }
    findings
}
