//! Simulated responses of aggregates, gateway, providers, users, child sagas and timers, derived from a
//! definition.

use orlog_model::{EventType, IdError, WorkOutcome};
use orlog_program::in_doubt::EXECUTED;
use orlog_program::{Action, AnswerForm as ResultMatcher, CompiledDefinition, Definition, Step};
use serde_json::Value;

use super::InstanceDriver;
use super::outcomes::{failed, succeeded};
use super::samples::{KnownValues, PayloadSamples};

/// Pending work or wait of a tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingTag<'a> {
    pub(super) step: &'a Step,
    pub(super) compensation: bool,
    pub(super) element: Option<usize>,
}

impl<'a> PendingTag<'a> {
    pub(super) fn of(definition: &'a Definition, tag: &str) -> Option<Self> {
        let (compensation, rest) = tag
            .strip_prefix("compensate:")
            .map_or((false, tag), |rest| (true, rest));
        let (id, element) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((id, number)) => (id, number.parse().ok()),
            None => (rest, None),
        };
        let step = definition
            .steps
            .iter()
            .find(|step| step.id.as_str() == id)?;
        Some(Self {
            step,
            compensation,
            element,
        })
    }

    pub(super) fn action(&self) -> &'a Action {
        match (self.compensation, &self.step.compensate) {
            (true, Some(compensation)) => &compensation.action,
            (true, None) | (false, _) => &self.step.action,
        }
    }

    /// Returns the matchers of success.
    fn ok(&self) -> Vec<ResultMatcher> {
        match (self.compensation, &self.step.compensate, &self.step.action) {
            (true, Some(compensation), _) => compensation.ok.clone(),
            (_, _, Action::Event(awaited)) => {
                let response = |event: &EventType| ResultMatcher {
                    event: event.clone(),
                    when: awaited.when.clone(),
                };
                awaited.events.iter().map(response).collect()
            }
            (_, _, _) => self.step.ok.clone(),
        }
    }

    /// Returns the event of success.
    pub(super) fn event(&self) -> Option<EventType> {
        self.ok().into_iter().next().map(|response| response.event)
    }

    pub(super) fn fail(&self) -> &'a [ResultMatcher] {
        match (self.compensation, &self.step.compensate) {
            (true, Some(compensation)) => &compensation.fail,
            (true, None) | (false, _) => &self.step.fail,
        }
    }

    /// Returns whether an event completes it, not an outcome.
    pub(super) fn by_event(&self) -> bool {
        match self.action() {
            Action::Command(_) => !self.ok().is_empty(),
            Action::Event(_) => true,
            Action::Effect(_)
            | Action::Wait(_)
            | Action::Human(_)
            | Action::Saga(_)
            | Action::Job(_)
            | Action::Switch(_)
            | Action::Repeat(_)
            | Action::Restart(_) => false,
        }
    }
}

/// Returns the pending tags: steps and elements in progress, then the compensation, in the order of the
/// definition.
#[must_use]
pub fn pending_tags(run: &InstanceDriver<'_>, definition: &Definition) -> Vec<String> {
    let view = run.state_view();
    let mut tags = Vec::new();
    for (form, step) in definition
        .steps
        .iter()
        .zip(view["steps"].as_array().into_iter().flatten())
    {
        let id = form.id.as_str();
        match (&form.foreach, step["rounds"].as_array()) {
            (None, None) => tags.extend(tag(id, &step["state"])),
            (None, Some(rounds)) => {
                let each = rounds.iter();
                tags.extend(
                    each.filter_map(|unit| {
                        tag(&format!("{id}[{}]", unit["round"]), &unit["state"])
                    }),
                );
            }
            (Some(_), _) => {
                let each = step["elements"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .enumerate();
                tags.extend(
                    each.filter_map(|(n, element)| tag(&format!("{id}[{n}]"), &element["state"])),
                );
            }
        }
    }
    tags
}

fn tag(id: &str, state: &Value) -> Option<String> {
    match state.as_str() {
        Some("running" | "retrying" | "in_doubt" | "in_doubt_abandoned" | "child_awaited") => {
            Some(id.to_owned())
        }
        Some("compensating" | "compensation_retrying") => Some(format!("compensate:{id}")),
        Some(_) | None => None,
    }
}

/// Completes the action of a step with success.
///
/// # Errors
/// The reason why nothing changed.
pub fn respond_ok(
    run: &mut InstanceDriver<'_>,
    saga: &CompiledDefinition,
    tag: &str,
    samples: &PayloadSamples,
) -> Result<String, String> {
    let definition = saga.definition();
    let Some(open) = PendingTag::of(definition, tag) else {
        return Err(format!("unknown tag {tag}"));
    };
    let ok = open.ok();
    let response = ok.first();
    let in_doubt = is_in_doubt(run, tag);
    let name = response.map_or_else(|| tag.to_owned(), |response| response.event.to_string());
    let payload = payload(run, &open, response, &name, samples);
    match (open.action(), response) {
        (_, Some(response)) if open.by_event() => run.event(response.event.as_str(), payload),
        (Action::Command(_), _) => run.outcome(tag, &WorkOutcome::Accepted),
        (_, _) if in_doubt => resolve_in_doubt(run, tag, EXECUTED, payload),
        (Action::Wait(_), _) => run.fire(tag, std::time::Duration::ZERO),
        (Action::Human(_), response) => {
            let event = response.map(|response| response.event.clone());
            run.outcome(tag, &WorkOutcome::succeeded(event, payload))
        }
        (_, _) => run.outcome(tag, &succeeded(payload)),
    }
}

/// Returns whether an operator must decide if the work of a tag was executed.
#[must_use]
pub fn is_in_doubt(run: &InstanceDriver<'_>, tag: &str) -> bool {
    let (id, element) = match tag.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((id, number)) => (id, number.parse::<usize>().ok()),
        None => (tag, None),
    };
    let view = run.state_view();
    let steps = view["steps"].as_array().cloned().unwrap_or_default();
    let step = steps.iter().find(|step| step["id"] == id);
    let state = step.map(|step| match (element, step["rounds"].as_array()) {
        (None, _) => &step["state"],
        (Some(n), None) => &step["elements"][n]["state"],
        (Some(n), Some(rounds)) => rounds
            .iter()
            .find(|unit| unit["round"] == n)
            .map_or(&Value::Null, |unit| &unit["state"]),
    });
    matches!(
        state.and_then(Value::as_str),
        Some("in_doubt" | "in_doubt_abandoned")
    )
}

/// Applies the decision of an operator whether the work of a tag was executed.
///
/// # Errors
/// The reason why nothing changed.
pub fn resolve_in_doubt(
    run: &mut InstanceDriver<'_>,
    tag: &str,
    decision: &str,
    payload: Value,
) -> Result<String, String> {
    let event = decision
        .parse()
        .map_err(|error: IdError| error.to_string())?;
    run.outcome(tag, &WorkOutcome::succeeded(Some(event), payload))
}

/// Completes the action of a step, or its compensation, with an event or a named outcome of failure.
///
/// # Errors
/// The reason why nothing changed.
pub fn respond_fail(
    run: &mut InstanceDriver<'_>,
    saga: &CompiledDefinition,
    tag: &str,
    event: &EventType,
    samples: &PayloadSamples,
) -> Result<String, String> {
    let Some(open) = PendingTag::of(saga.definition(), tag) else {
        return Err(format!("unknown tag {tag}"));
    };
    let response = open.fail().iter().find(|response| response.event == *event);
    let payload = payload(run, &open, response, event.as_str(), samples);
    if open.by_event() {
        return run.event(event.as_str(), payload);
    }
    match open.action() {
        Action::Human(_) => run.outcome(tag, &WorkOutcome::succeeded(Some(event.clone()), payload)),
        Action::Command(_)
        | Action::Effect(_)
        | Action::Wait(_)
        | Action::Event(_)
        | Action::Saga(_)
        | Action::Job(_)
        | Action::Switch(_)
        | Action::Repeat(_)
        | Action::Restart(_) => run.outcome(tag, &failed("rejected")),
    }
}

/// Confirms a compensation.
///
/// # Errors
/// The reason why nothing changed.
pub fn confirm_compensation(
    run: &mut InstanceDriver<'_>,
    saga: &CompiledDefinition,
    tag: &str,
) -> Result<String, String> {
    respond_ok(run, saga, tag, &PayloadSamples::of(saga.definition()))
}

/// Returns a payload that satisfies the condition of the response, as far as the condition can be
/// analyzed.
fn payload(
    run: &InstanceDriver<'_>,
    open: &PendingTag<'_>,
    response: Option<&ResultMatcher>,
    name: &str,
    samples: &PayloadSamples,
) -> Value {
    let mut payload = samples.response(name);
    if let Some(when) = response.and_then(|response| response.when.as_deref()) {
        let vars = run.state_view()["vars"].clone();
        let list = open
            .step
            .foreach
            .as_ref()
            .map(|foreach| (foreach, elements(&foreach.list, &vars)));
        let element = list
            .as_ref()
            .zip(open.element)
            .map(|((foreach, list), index)| {
                (
                    foreach.name.as_str(),
                    list.get(index).cloned().unwrap_or_default(),
                    index,
                )
            });
        KnownValues {
            vars: &vars,
            element: element
                .as_ref()
                .map(|(name, value, index)| (*name, value, *index)),
        }
        .satisfy(when, &mut payload);
    }
    payload
}

/// Returns the list of a `foreach` that is a plain path under `vars`.
fn elements(list: &str, vars: &Value) -> Vec<Value> {
    let path = list.trim_start_matches('=').trim();
    let value = path
        .strip_prefix("vars.")
        .map(|path| path.split('.').fold(vars, |value, field| &value[field]));
    value.and_then(Value::as_array).cloned().unwrap_or_default()
}
