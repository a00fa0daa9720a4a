//! Parser of work outcomes: resolves the step, the meaning and the data.

use orlog_model::{EventType, Failure, IN_DOUBT, WorkOutcome};
use serde_json::Value;

use super::compiled::{CompiledAction, ON, REMIND};
use super::execution::{Execution, NoTransition};
use super::in_doubt::{EXECUTED, NOT_EXECUTED};
use super::outcome_table::StepOutcome;
use super::state::StepIndex;
use super::step_input::{Certainty, NOTHING, StepInput, expression_error, failure_message};
use crate::expression::{EvalError, EventData};
use crate::steps::kind::Completion;

/// Parsed outcome: success or failure, and its name.
enum ParsedOutcome {
    Success(Option<EventType>),
    Failure(Option<EventType>, Failure),
    /// The action may have been executed: it timed out, or its success is not an expected result.
    Unknown(Failure),
    InDoubt(Failure),
}

/// Resolves a work outcome to the input of a step.
pub(super) fn parse_outcome<'v>(
    run: &Execution<'_>,
    tag: &str,
    outcome: &'v WorkOutcome,
) -> Result<StepInput<'v>, NoTransition> {
    // The ends of awaited children of handlers are already handled; nothing waits for the other
    // results.
    if tag.starts_with(ON) {
        return Err(NoTransition::Ignored(
            "results of handler actions are not awaited",
        ));
    }

    // The engine records the failure of ignored work in the history.
    if tag.starts_with(REMIND) {
        return Err(NoTransition::Ignored(match outcome {
            WorkOutcome::Failed { .. } | WorkOutcome::TimedOut { .. } => {
                "the reminder failed; its step is not affected"
            }
            WorkOutcome::Accepted | WorkOutcome::Succeeded { .. } => {
                "results of reminders are not awaited"
            }
        }));
    }

    let (at, is_compensation) = run
        .step_of_tag(tag)
        .ok_or(NoTransition::Ignored("no step requested this work"))?;
    let action = run.action_of(at, is_compensation);

    if let WorkOutcome::Succeeded {
        event: Some(decision),
        payload,
        ..
    } = outcome
        && !is_compensation
        && is_operator_decision(run, at, action, decision)
    {
        return resolve_decision(run, at, decision, payload);
    }

    let completion = action.kind.traits().completion;
    let read = match (completion, outcome) {
        (Completion::Timer | Completion::Event | Completion::None, _) => {
            return Err(NoTransition::Ignored("no step requested this work"));
        }
        (Completion::Acceptance, WorkOutcome::Accepted | WorkOutcome::Succeeded { .. })
            if action.awaits_event() =>
        {
            return Err(NoTransition::Ignored(
                "the command was accepted; its result is an event",
            ));
        }
        (Completion::Acceptance, WorkOutcome::Accepted | WorkOutcome::Succeeded { .. })
        | (_, WorkOutcome::Accepted) => ParsedOutcome::Success(None),
        (_, WorkOutcome::Succeeded { event, payload, .. }) => {
            match success(run, at, action, event.as_ref(), payload) {
                // The action was executed, although the definition does not expect its result.
                ParsedOutcome::Failure(None, failure) if action.kind.traits().is_retried() => {
                    ParsedOutcome::Unknown(failure)
                }
                expected => expected,
            }
        }
        (
            _,
            WorkOutcome::Failed {
                event,
                failure,
                payload,
            },
        ) => classify_failure(run, at, action, event.as_ref(), failure, payload),
        (_, WorkOutcome::TimedOut { failure })
            if failure.code == IN_DOUBT && action.asks_operator() =>
        {
            ParsedOutcome::InDoubt(failure.clone())
        }
        (_, WorkOutcome::TimedOut { failure }) => ParsedOutcome::Unknown(failure.clone()),
    };

    let data = match outcome {
        WorkOutcome::Succeeded { payload, .. } | WorkOutcome::Failed { payload, .. } => payload,
        WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => &NOTHING,
    };

    // A compensation has no question for an operator: without a confirmation it is retried or
    // stuck.
    let (result, named, failure) = match (is_compensation, read) {
        (false, ParsedOutcome::Success(named)) => (StepOutcome::Ok, named, None),
        (true, ParsedOutcome::Success(named)) => (StepOutcome::Compensated, named, None),
        (false, ParsedOutcome::Failure(named, failure)) => {
            (StepOutcome::Failed, named, Some(failure))
        }
        (false, ParsedOutcome::Unknown(failure)) => (StepOutcome::Unknown, None, Some(failure)),
        (false, ParsedOutcome::InDoubt(failure)) => (StepOutcome::InDoubt, None, Some(failure)),
        (
            true,
            ParsedOutcome::Failure(_, failure)
            | ParsedOutcome::Unknown(failure)
            | ParsedOutcome::InDoubt(failure),
        ) => (StepOutcome::NotCompensated, None, Some(failure)),
    };

    let is_unknown =
        result == StepOutcome::Unknown || matches!(outcome, WorkOutcome::TimedOut { .. });
    // Only these kinds repeat a request under its key; a user or a child saga reports a definite
    // end.
    let is_unknown = is_unknown && action.kind.traits().is_retried();
    let certainty = if is_unknown {
        Certainty::Unknown
    } else {
        Certainty::Known
    };

    Ok(StepInput {
        at,
        result,
        event: EventData::of_result(data),
        named,
        failure,
        certainty,
        event_key: 0,
    })
}

/// Returns true for a decision of the in-doubt task, open or closed: a provider result never has
/// the name of the negative outcome.
fn is_operator_decision(
    run: &Execution<'_>,
    at: StepIndex,
    action: &CompiledAction,
    decision: &EventType,
) -> bool {
    if run.state.entry(at).state.is_in_doubt() {
        return true;
    }

    // The task can be closed in the meantime; no result of a provider has this name.
    if !action.asks_operator() || decision.as_str() != NOT_EXECUTED {
        return false;
    }

    // A definition can give this name to a result of its own.
    action
        .options
        .ok
        .iter()
        .chain(&action.options.fail)
        .all(|result| result.event != *decision)
}

/// Resolves a decision of the in-doubt task. `EXECUTED` is a success of the effect.
fn resolve_decision<'v>(
    run: &Execution<'_>,
    at: StepIndex,
    decision: &EventType,
    data: &'v Value,
) -> Result<StepInput<'v>, NoTransition> {
    let step_input = |result, named, failure| StepInput {
        at,
        result,
        event: EventData::of_result(data),
        named,
        failure,
        certainty: Certainty::Known,
        event_key: 0,
    };

    match decision.as_str() {
        NOT_EXECUTED => Ok(step_input(StepOutcome::NotExecuted, None, None)),
        EXECUTED => match success(run, at, run.action_of(at, false), None, data) {
            ParsedOutcome::Success(named) => Ok(step_input(StepOutcome::Ok, named, None)),
            ParsedOutcome::Failure(Some(named), failure) => {
                Ok(step_input(StepOutcome::Failed, Some(named), Some(failure)))
            }
            // A wrong input of the operator must not fail a step that was executed.
            ParsedOutcome::Failure(None, _)
            | ParsedOutcome::Unknown(_)
            | ParsedOutcome::InDoubt(_) => Err(NoTransition::Rejected(
                "the data does not match the expected result of the step",
            )),
        },
        _ => Err(NoTransition::Ignored(
            "an operator decision is pending for the effect in doubt",
        )),
    }
}

/// Classifies a successful outcome by its name or else by its data.
fn success(
    run: &Execution<'_>,
    at: StepIndex,
    action: &CompiledAction,
    name: Option<&EventType>,
    data: &Value,
) -> ParsedOutcome {
    let anything = action.options.ok.is_empty() && action.options.fail.is_empty();
    match named_success(run, at, action, name, data) {
        Ok(Some(read)) => read,
        Ok(None) if anything || (name.is_none() && action.options.ok.is_empty()) => {
            ParsedOutcome::Success(name.cloned())
        }
        Ok(None) => ParsedOutcome::Failure(None, contract_violation(action, name)),
        Err(error) => ParsedOutcome::Failure(None, expression_error(&error)),
    }
}

fn named_success(
    run: &Execution<'_>,
    at: StepIndex,
    action: &CompiledAction,
    name: Option<&EventType>,
    data: &Value,
) -> Result<Option<ParsedOutcome>, EvalError> {
    for ok in &action.options.ok {
        if name.is_none_or(|name| *name == ok.event)
            && run.holds(at, ok.when.as_ref(), EventData::of_result(data))?
        {
            return Ok(Some(ParsedOutcome::Success(Some(ok.event.clone()))));
        }
    }

    for fail in &action.options.fail {
        // A success without a name matches no unconditional failure, unless the action also has an
        // `ok`.
        let possible = fail.when.is_some() || !action.options.ok.is_empty();
        if name.map_or(possible, |name| *name == fail.event)
            && run.holds(at, fail.when.as_ref(), EventData::of_result(data))?
        {
            let failure = Failure {
                code: fail.event.to_string(),
                message: failure_message(&fail.event, data),
            };
            return Ok(Some(ParsedOutcome::Failure(
                Some(fail.event.clone()),
                failure,
            )));
        }
    }
    Ok(None)
}

/// Classifies a failed outcome by its name; without a name, uses the first matching failure name.
fn classify_failure(
    run: &Execution<'_>,
    at: StepIndex,
    action: &CompiledAction,
    name: Option<&EventType>,
    failure: &Failure,
    data: &Value,
) -> ParsedOutcome {
    let Some(name) = name else {
        let fail = action.options.fail.iter().find(|fail| {
            run.holds(at, fail.when.as_ref(), EventData::of_result(data))
                .unwrap_or(false)
        });
        return ParsedOutcome::Failure(fail.map(|fail| fail.event.clone()), failure.clone());
    };

    let known = action.options.fail.iter().any(|fail| fail.event == *name);
    let free =
        action.options.fail.is_empty() && !action.options.ok.iter().any(|ok| ok.event == *name);
    if known || free {
        return ParsedOutcome::Failure(Some(name.clone()), failure.clone());
    }
    ParsedOutcome::Failure(None, contract_violation(action, Some(name)))
}

fn contract_violation(action: &CompiledAction, event: Option<&EventType>) -> Failure {
    let expected: Vec<_> = action
        .options
        .ok
        .iter()
        .chain(&action.options.fail)
        .map(|result| result.event.as_str())
        .collect();
    let expected = expected.join(", ");

    let message = match event {
        Some(event) => format!(
            "{} returned {event}, which is none of {expected}",
            action.tag
        ),
        None => format!(
            "{} returned a result that is none of {expected}",
            action.tag
        ),
    };
    Failure {
        code: "contract_violation".to_owned(),
        message,
    }
}
