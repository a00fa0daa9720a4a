//! Parser of work outcomes: resolves the step, the meaning and the data.

use orlog_model::{EventType, Failure, IN_DOUBT, WorkOutcome};
use serde_json::Value;

use super::compiled::{self, CompiledAction, CompiledActionKind};
use super::in_doubt::{EXECUTED, NOT_EXECUTED};
use super::outcome_table::StepOutcome;
use super::state::StepIndex;
use super::step_input::{Certainty, NOTHING, StepInput, expression_error, failure_message};
use super::transition::{Execution, NoTransition};
use crate::expression::EvalError;

/// Parsed outcome: success or failure, and its name.
enum ParsedOutcome {
    Success(Option<EventType>),
    Failure(Option<EventType>, Failure),
    TimedOut(Failure),
    InDoubt(Failure),
}

impl Execution<'_> {
    /// Resolves a work outcome to the input of a step.
    pub(super) fn parse_outcome<'v>(
        &self,
        tag: &str,
        outcome: &'v WorkOutcome,
    ) -> Result<StepInput<'v>, NoTransition> {
        if tag.starts_with(compiled::ON) {
            return Err(NoTransition::Ignored("results of handler actions are not awaited"));
        }
        let (at, is_compensation) =
            self.step_of_tag(tag).ok_or(NoTransition::Ignored("no step requested this work"))?;
        let action = self.action_of(at, is_compensation);
        if let WorkOutcome::Succeeded { event: Some(decision), payload } = outcome
            && !is_compensation
            && self.is_operator_decision(at, action, decision)
        {
            return self.resolve_decision(at, decision, payload);
        }
        let read = match (&action.kind, outcome) {
            (CompiledActionKind::Wait(_) | CompiledActionKind::Event | CompiledActionKind::Switch(_), _) => {
                return Err(NoTransition::Ignored("no step requested this work"));
            }
            (CompiledActionKind::Command { .. }, WorkOutcome::Accepted | WorkOutcome::Succeeded { .. })
                if action.awaits_event() =>
            {
                return Err(NoTransition::Ignored("the command was accepted; its result is an event"));
            }
            (CompiledActionKind::Command { .. }, WorkOutcome::Accepted | WorkOutcome::Succeeded { .. })
            | (_, WorkOutcome::Accepted) => ParsedOutcome::Success(None),
            (_, WorkOutcome::Succeeded { event, payload }) => {
                self.success(at, action, event.as_ref(), payload)
            }
            (_, WorkOutcome::Failed { event, failure, payload }) => {
                self.classify_failure(at, action, event.as_ref(), failure, payload)
            }
            (_, WorkOutcome::TimedOut { failure }) if failure.code == IN_DOUBT && action.asks_operator() => {
                ParsedOutcome::InDoubt(failure.clone())
            }
            (_, WorkOutcome::TimedOut { failure }) => ParsedOutcome::TimedOut(failure.clone()),
        };
        let data = match outcome {
            WorkOutcome::Succeeded { payload, .. } | WorkOutcome::Failed { payload, .. } => payload,
            WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => &NOTHING,
        };
        let (result, named, failure) = match (is_compensation, read) {
            (false, ParsedOutcome::Success(named)) => (StepOutcome::Ok, named, None),
            (true, ParsedOutcome::Success(named)) => (StepOutcome::Compensated, named, None),
            (false, ParsedOutcome::Failure(named, failure)) => (StepOutcome::Failed, named, Some(failure)),
            (false, ParsedOutcome::TimedOut(failure)) => (StepOutcome::TimedOut, None, Some(failure)),
            (false, ParsedOutcome::InDoubt(failure)) => (StepOutcome::InDoubt, None, Some(failure)),
            (
                true,
                ParsedOutcome::Failure(_, failure)
                | ParsedOutcome::TimedOut(failure)
                | ParsedOutcome::InDoubt(failure),
            ) => (StepOutcome::NotCompensated, None, Some(failure)),
        };
        let certainty = match (outcome, &action.kind) {
            (
                WorkOutcome::TimedOut { .. },
                CompiledActionKind::Command { .. }
                | CompiledActionKind::Effect { .. }
                | CompiledActionKind::Job(_),
            ) => Certainty::Unknown,
            (_, _) => Certainty::Known,
        };
        Ok(StepInput { at, result, data, named, failure, certainty })
    }

    /// Returns true for a decision of the in-doubt task, open or closed: a provider result never has the
    /// name of the negative outcome.
    fn is_operator_decision(&self, at: StepIndex, action: &CompiledAction, decision: &EventType) -> bool {
        let own = || action.ok.iter().chain(&action.fail).any(|result| result.event == *decision);
        let in_doubt = self.state.entry(at).state.is_in_doubt();
        in_doubt || (action.asks_operator() && decision.as_str() == NOT_EXECUTED && !own())
    }

    /// Resolves a decision of the in-doubt task. `EXECUTED` is a success of the effect; its data must match
    /// the step, because an input error must not fail an executed step.
    fn resolve_decision<'v>(
        &self,
        at: StepIndex,
        decision: &EventType,
        data: &'v Value,
    ) -> Result<StepInput<'v>, NoTransition> {
        let step_input = |result, named, failure| StepInput {
            at,
            result,
            data,
            named,
            failure,
            certainty: Certainty::Known,
        };
        match decision.as_str() {
            NOT_EXECUTED => Ok(step_input(StepOutcome::NotExecuted, None, None)),
            EXECUTED => match self.success(at, self.action_of(at, false), None, data) {
                ParsedOutcome::Success(named) => Ok(step_input(StepOutcome::Ok, named, None)),
                ParsedOutcome::Failure(Some(named), failure) => {
                    Ok(step_input(StepOutcome::Failed, Some(named), Some(failure)))
                }
                ParsedOutcome::Failure(None, _) | ParsedOutcome::TimedOut(_) | ParsedOutcome::InDoubt(_) => {
                    Err(NoTransition::Rejected("the data does not match the expected result of the step"))
                }
            },
            _ => Err(NoTransition::Ignored("an operator decision is pending for the effect in doubt")),
        }
    }

    /// Classifies a successful outcome by its name or else by its data.
    fn success(
        &self,
        at: StepIndex,
        action: &CompiledAction,
        name: Option<&EventType>,
        data: &Value,
    ) -> ParsedOutcome {
        let anything = action.ok.is_empty() && action.fail.is_empty();
        match self.named_success(at, action, name, data) {
            Ok(Some(read)) => read,
            Ok(None) if anything || (name.is_none() && action.ok.is_empty()) => {
                ParsedOutcome::Success(name.cloned())
            }
            Ok(None) => ParsedOutcome::Failure(None, contract_violation(action, name)),
            Err(error) => ParsedOutcome::Failure(None, expression_error(&error)),
        }
    }

    fn named_success(
        &self,
        at: StepIndex,
        action: &CompiledAction,
        name: Option<&EventType>,
        data: &Value,
    ) -> Result<Option<ParsedOutcome>, EvalError> {
        for ok in &action.ok {
            if name.is_none_or(|name| *name == ok.event) && self.holds(at, ok.when.as_ref(), data)? {
                return Ok(Some(ParsedOutcome::Success(Some(ok.event.clone()))));
            }
        }
        for fail in &action.fail {
            // A success without a name matches no unconditional failure, unless the action also has an `ok`.
            let possible = fail.when.is_some() || !action.ok.is_empty();
            if name.map_or(possible, |name| *name == fail.event)
                && self.holds(at, fail.when.as_ref(), data)?
            {
                let failure =
                    Failure { code: fail.event.to_string(), message: failure_message(&fail.event, data) };
                return Ok(Some(ParsedOutcome::Failure(Some(fail.event.clone()), failure)));
            }
        }
        Ok(None)
    }

    /// Classifies a failed outcome by its name; without a name, uses the first matching failure name.
    fn classify_failure(
        &self,
        at: StepIndex,
        action: &CompiledAction,
        name: Option<&EventType>,
        failure: &Failure,
        data: &Value,
    ) -> ParsedOutcome {
        let Some(name) = name else {
            let fits =
                |fail: &&compiled::CompiledMatcher| self.holds(at, fail.when.as_ref(), data).unwrap_or(false);
            return ParsedOutcome::Failure(
                action.fail.iter().find(fits).map(|fail| fail.event.clone()),
                failure.clone(),
            );
        };
        let known = action.fail.iter().any(|fail| fail.event == *name);
        let free = action.fail.is_empty() && !action.ok.iter().any(|ok| ok.event == *name);
        if known || free {
            return ParsedOutcome::Failure(Some(name.clone()), failure.clone());
        }
        ParsedOutcome::Failure(None, contract_violation(action, Some(name)))
    }

    /// Returns the step or element of a tag, and whether the tag is that of its compensation.
    pub(super) fn step_of_tag(&self, tag: &str) -> Option<(StepIndex, bool)> {
        let (is_compensation, rest) =
            tag.strip_prefix(compiled::COMPENSATE).map_or((false, tag), |rest| (true, rest));
        let (id, element) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((id, number)) => (id, Some(number.parse::<usize>().ok()?)),
            None => (rest, None),
        };
        let at = StepIndex { step: self.saga.find(id)?, element };
        let there = self.units_of(at.step).any(|unit| unit == at);
        (there && (!is_compensation || self.step(at).compensation.is_some())).then_some((at, is_compensation))
    }
}

fn contract_violation(action: &CompiledAction, event: Option<&EventType>) -> Failure {
    let expected: Vec<_> = action.ok.iter().chain(&action.fail).map(|result| result.event.as_str()).collect();
    let expected = expected.join(", ");
    let message = match event {
        Some(event) => format!("{} returned {event}, which is none of {expected}", action.tag),
        None => format!("{} returned a result that is none of {expected}", action.tag),
    };
    Failure { code: "contract_violation".to_owned(), message }
}
