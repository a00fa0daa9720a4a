//! Requests the action of a step or of its compensation: work, a human task, a child saga, or a
//! wait.

use std::sync::LazyLock;

use orlog_model::{Name, ParentEndPolicy, TaskChange, TimerChange, Work};

use super::compiled::{CompiledAction, ESCALATE, prefixed_name};
use super::execution::Execution;
use super::state::{StepEntry, StepIndex};
use super::step_state::StepState;
use crate::contract::FailureCause;
use crate::expression::{Bindings, EvalError};
use crate::steps::kind::{
    Cancellation, OutstandingRequest, Request, RequestContext, RequestLimits,
};

/// `failure` in the compensation of steps that are not needed.
pub(super) static RACE_LOST: LazyLock<FailureCause> = LazyLock::new(|| FailureCause {
    code: "race_lost".to_owned(),
    message: "the step is no longer needed".to_owned(),
    step: String::new(),
});

/// Requests the action of a step or of its compensation; arms the timer if there is a limit.
pub(super) fn request_action(
    run: &mut Execution<'_>,
    at: StepIndex,
    is_compensation: bool,
) -> Result<(), EvalError> {
    let action = run.action_of(at, is_compensation);
    let tag = run.tag_of(at, is_compensation);
    let retries = run.state.entry(at).retries;
    let origin = RequestOrigin {
        step: &run.step(at).id,
        tag: &tag,
        round: run.state.round(&tag),
        retries,
    };

    let bindings = action_bindings(run, at, is_compensation);
    // Evaluated once for each request. The timer and the deadline of the work store the result (ADR
    // 0075).
    let limits =
        action
            .options
            .limits(action.kind.traits().is_effect, run.context.now, &bindings)?;
    // The state changes only below this line: an expression without a value leaves nothing behind.
    let request = request_of(run, action, &origin, limits, &bindings)?;

    let mut until = limits
        .timeout
        .map(|timeout| run.context.now.saturating_add(timeout));

    match request {
        Request::Work(work) => {
            // The address is stored, so that the child can be cancelled (ADR 0060).
            if let Work::StartChild(start) = &*work {
                let child = (tag.clone(), start.correlation.clone());
                run.state.extra_mut().children.push(child);
            }
            run.work.push(*work);
        }
        Request::Task(opened) => {
            if let Some(due) = opened.escalates {
                run.state.extra_mut().escalations.push((tag.clone(), due));
                run.timers.push(TimerChange::Arm {
                    name: prefixed_name(ESCALATE, &tag),
                    due,
                });
            }
            run.tasks.push(TaskChange::Open(opened.spec));
        }
        // A wait has no timeout: the compiler rejects the field for this kind.
        Request::Until(due) => until = Some(due),
        Request::Nothing => {}
    }

    // The timer has the name of the tag, so that the timer of a repeated request replaces the old
    // one.
    run.timers
        .extend(until.map(|due| TimerChange::Arm { name: tag, due }));

    let step_state = if is_compensation {
        StepState::Compensating
    } else {
        StepState::Running
    };
    // `is_new` gives a wait for an event another token: a signal for the previous request must not
    // count here (ADR 0071).
    *run.state.entry_mut(at) = StepEntry {
        state: step_state,
        deadline: until,
        retries,
        is_new: true,
        null_allowed: run.state.entry(at).null_allowed,
    };

    if !is_compensation {
        run.begin_reminders(at);
    }
    Ok(())
}

/// Returns the expression variables of the action of a step or of its compensation.
pub(super) fn action_bindings<'r>(
    run: &'r Execution<'_>,
    at: StepIndex,
    is_compensation: bool,
) -> Bindings<'r> {
    let bindings = run
        .bindings(at)
        .allow_null(is_compensation && run.state.entry(at).null_allowed);
    // An `undo` may read `failure`, which has no cause if only a branch is compensated.
    if is_compensation && run.state.cause.is_none() {
        bindings.cause(Some(&RACE_LOST))
    } else {
        bindings
    }
}

/// Creates the request of an action with these variables.
pub(super) fn request_of(
    run: &Execution<'_>,
    action: &CompiledAction,
    origin: &RequestOrigin<'_>,
    limits: RequestLimits,
    bindings: &Bindings<'_>,
) -> Result<Request, EvalError> {
    action.kind.kind().request(&RequestContext {
        key: run.context.key,
        now: run.context.now,
        step: origin.step,
        tag: origin.tag,
        round: origin.round,
        start_version: run.state.run.start_version(),
        run: run.state.run.run_number(),
        retries: origin.retries,
        options: &action.options,
        limits,
        env: &run.saga.env,
        results: run.state.results(),
        bindings,
    })
}

/// Identity of a request.
pub(super) struct RequestOrigin<'a> {
    pub(super) step: &'a Name,
    pub(super) tag: &'a Name,
    pub(super) round: u64,
    pub(super) retries: u32,
}

/// Cancels the outstanding work of a step that is abandoned, and returns its state: a child saga
/// can be cancelled, abandoned or awaited; a task is closed.
pub(super) fn abandon_outstanding(run: &mut Execution<'_>, at: StepIndex) -> StepState {
    withdraw_request(run, at, false);
    cancel_outstanding(run, at);
    match run.action_of(at, false).kind.kind().on_parent_end() {
        // A result that is a dead letter does not arrive without a redrive, so waiting for it could
        // never end.
        ParentEndPolicy::Wait if !run.has_unapplied_result(at) => StepState::ChildAwaited,
        ParentEndPolicy::Stop | ParentEndPolicy::Abandon | ParentEndPolicy::Wait => {
            StepState::Abandoned
        }
    }
}

/// Withdraws the command or the effect that this transition has requested for a step, so that it is
/// not executed after the end of the step.
pub(super) fn withdraw_request(run: &mut Execution<'_>, at: StepIndex, is_compensation: bool) {
    // Most transitions that end a step have requested nothing before.
    if run.work.is_empty() {
        return;
    }

    let tag = run.tag_of(at, is_compensation);
    let requested = run.work.iter().rposition(|work| {
        matches!(work, Work::Command(_) | Work::Effect(_)) && work.tag() == Some(&tag)
    });
    let Some(position) = requested else { return };

    // The last run has its own requests; a step of the run before it has none in progress.
    if run.new_run.is_some_and(|first| position < first) {
        return;
    }
    run.work.remove(position);
}

/// Cancels the outstanding work of a step: cancels a child saga, closes a task.
pub(super) fn cancel_outstanding(run: &mut Execution<'_>, at: StepIndex) {
    let is_compensation = run.state.entry(at).state.is_compensation();
    let tag = run.tag_of(at, is_compensation);
    // The address was stored with the request, because the variables of its template can change.
    let children = run
        .state
        .extra
        .as_ref()
        .map_or(&[][..], |extra| &extra.children);
    let child = children
        .iter()
        .find(|(of, _)| *of == tag)
        .map(|(_, child)| child.clone());
    let outstanding = OutstandingRequest {
        saga: &run.context.key.saga,
        step: &run.step(at).id,
        child,
    };

    match run
        .action_of(at, is_compensation)
        .kind
        .kind()
        .cancellation(&outstanding)
    {
        Some(Cancellation::CloseTask) => run.tasks.push(TaskChange::Close { tag }),
        Some(Cancellation::Work(work)) => run.work.push(work),
        None => {}
    }
}
