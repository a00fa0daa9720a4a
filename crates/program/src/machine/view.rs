//! Readable view of the stored state: names instead of indices and codes.

mod flow;
mod steps;

use orlog_model::Name;
use serde_json::{Map, Value, json};

use super::compiled::{CompiledSaga, CompiledStep};
use super::state::{Flags, State, StepEntry, StepFailure, StepIndex};
use super::step_state::{Phase, StepState};
pub(crate) use steps::steps;
pub use steps::{StepsView, UnitView};

/// Returns the state with its steps in the order of the definition; `None` if it is not a state of
/// this saga.
pub(crate) fn view(saga: &CompiledSaga, state: &[u8]) -> Option<Value> {
    let state = State::decode(state, saga.steps.len()).ok()?;
    let steps: Vec<_> = (0..saga.steps.len())
        .map(|index| step(saga, &state, index))
        .collect();

    let failure = state.cause.as_ref().map(|cause| {
        let step = Some(&cause.step).filter(|step| !step.is_empty());
        json!({ "code": cause.code, "message": cause.message, "step": step })
    });

    let mut fields = Map::new();
    fields.insert("phase".to_owned(), json!(state.phase.status().as_str()));
    fields.insert("steps".to_owned(), Value::Array(steps));
    fields.insert("vars".to_owned(), Value::Object(state.vars.clone()));
    fields.insert("failure".to_owned(), json!(failure));

    if state.flags.has(Flags::PIVOTED) {
        fields.insert("pivoted".to_owned(), json!(true));
    }
    if state.run.run_number() > 1 {
        fields.insert("run".to_owned(), json!(state.run.run_number()));
    }
    if let Some(stuck) = stuck(saga, &state) {
        fields.insert("stuck".to_owned(), stuck);
    }
    if let Some(extra) = state.extra.as_ref().filter(|extra| !extra.early.is_empty()) {
        let kinds: Vec<_> = extra
            .early
            .iter()
            .map(|event| event.kind.as_str())
            .collect();
        fields.insert("early_events".to_owned(), json!(kinds));
    }
    if !state.run.events.children.is_empty() {
        let children = state.run.events.children.iter();
        let children: Vec<_> = children
            .map(|child| format!("{}/{}", child.saga, child.correlation))
            .collect();
        fields.insert("children".to_owned(), json!(children));
    }
    if let Some(flow) = flow::of(saga, &state, |index| {
        effective_state(&state, &saga.steps[index], index)
    }) {
        fields.insert("flow".to_owned(), flow);
    }

    Some(Value::Object(fields))
}

fn step(saga: &CompiledSaga, state: &State, index: usize) -> Value {
    let step = &saga.steps[index];
    let entry = state.steps[index];
    let mut fields = Map::new();
    fields.insert("id".to_owned(), json!(step.id.as_str()));
    fields.insert(
        "state".to_owned(),
        json!(state_name(effective_state(state, step, index))),
    );
    fields.insert(
        "until".to_owned(),
        json!(entry.deadline.map(|until| until.to_string())),
    );

    match step.action.kind.cases() {
        // The entry of a switch contains the number of the case, which must not be shown as
        // attempts.
        Some(cases) if entry.state == StepState::Completed => {
            let selected = usize::try_from(entry.retries)
                .ok()
                .and_then(|selected| cases.get(selected));
            let step_ids =
                selected.map(|case| case.then.iter().map(|step| saga.steps[*step].id.as_str()));
            fields.insert(
                "then".to_owned(),
                json!(step_ids.map(Iterator::collect::<Vec<_>>)),
            );
        }
        _ => attempts(entry, &mut fields),
    }

    if let Some(failure) = state.failure(index) {
        let StepFailure {
            code,
            message,
            handled_by,
            ..
        } = failure;
        fields.insert(
            "failure".to_owned(),
            json!({ "code": code, "message": message, "handled_by": handled_by }),
        );
    }

    let collected = state
        .run
        .events
        .collected
        .iter()
        .filter(|collected| is_of(&collected.tag, &step.id));
    if let Some(count) = collected
        .map(|collected| collected.keys.len())
        .reduce(|a, b| a + b)
    {
        fields.insert("collected".to_owned(), json!(count));
    }

    let reminders = state.run.events.reminders.iter();
    let reminders: Vec<_> = reminders.filter(|of| is_of(&of.tag, &step.id)).collect();
    if step.remind.is_some() && !reminders.is_empty() {
        // Elements send their own ones.
        let sent: u64 = reminders.iter().map(|of| u64::from(of.sent)).sum();
        let next = reminders.iter().filter_map(|of| of.due).min();
        let next = next.map(|due| due.to_string());
        fields.insert(
            "reminders".to_owned(),
            json!({ "sent": sent, "next": next }),
        );
    }

    if let Some(end) = step.in_loop {
        fields.insert("rounds".to_owned(), Value::Array(rounds(state, end, index)));
    }
    if step.action.kind.repeat().is_some() {
        fields.insert("round".to_owned(), json!(state.run.loop_round(index)));
    }

    if let Some(elements) = state.elements(index).filter(|_| step.foreach.is_some()) {
        let elements: Vec<_> = elements
            .entries
            .iter()
            .map(|entry| element(*entry))
            .collect();
        fields.insert("elements".to_owned(), Value::Array(elements));
    }
    Value::Object(fields)
}

/// Returns whether a tag is that of the step, of an element or of a round of it.
fn is_of(tag: &Name, step: &Name) -> bool {
    tag.as_str()
        .strip_prefix(step.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
}

/// Returns the past rounds of a step that can be compensated, and the current round.
fn rounds(state: &State, end: usize, step: usize) -> Vec<Value> {
    let past = state.run.past_rounds_of(end, step).into_iter();
    let past = past.filter_map(|round| Some((round, state.run.past_entry(step, round)?)));
    let all = past.chain([(state.run.loop_round(end), state.steps[step])]);
    all.map(|(round, entry)| {
        let mut fields = Map::new();
        fields.insert("round".to_owned(), json!(round));
        unit(entry, &mut fields);
        Value::Object(fields)
    })
    .collect()
}

fn element(entry: StepEntry) -> Value {
    let mut fields = Map::new();
    unit(entry, &mut fields);
    Value::Object(fields)
}

fn unit(entry: StepEntry, fields: &mut Map<String, Value>) {
    fields.insert("state".to_owned(), json!(state_name(entry.state)));
    fields.insert(
        "until".to_owned(),
        json!(entry.deadline.map(|until| until.to_string())),
    );
    attempts(entry, fields);
}

fn attempts(entry: StepEntry, fields: &mut Map<String, Value>) {
    if entry.retries > 0 {
        fields.insert(
            "attempts".to_owned(),
            json!(entry.retries.saturating_add(1)),
        );
    }
}

/// Returns the state of a step as it is displayed. A step with elements, or with past rounds of a
/// loop, has several: the first that compensates or requires a decision counts, because an operator
/// must see it. It is compensated if one of them is and none must still be.
fn effective_state(state: &State, step: &CompiledStep, index: usize) -> StepState {
    let own = state.step_state(index);
    let parts = part_states(state, step, index);
    if let Some(decisive) = parts.iter().find(|part| needs_attention(**part)) {
        return *decisive;
    }

    let is_compensated =
        parts.contains(&StepState::Compensated) && !parts.contains(&StepState::Completed);
    if is_compensated {
        StepState::Compensated
    } else {
        own
    }
}

/// Returns the states of the elements of a step, or of its rounds with the current one as the last.
fn part_states(state: &State, step: &CompiledStep, index: usize) -> Vec<StepState> {
    if step.foreach.is_some() {
        let elements = state.elements(index);
        let entries = elements.map_or(&[][..], |elements| &elements.entries);
        return entries.iter().map(|entry| entry.state).collect();
    }

    let Some(end) = step.in_loop else {
        return Vec::new();
    };
    let mut states = Vec::new();
    for round in state.run.past_rounds_of(end, index) {
        states.extend(state.run.past_entry(index, round).map(|entry| entry.state));
    }
    states.push(state.steps[index].state);
    states
}

fn needs_attention(state: StepState) -> bool {
    state.is_compensation() || state.is_in_doubt() || state == StepState::Blocked
}

/// Returns the stuck step or element, and whether its action or its compensation is stuck.
fn stuck(saga: &CompiledSaga, state: &State) -> Option<Value> {
    if state.phase != Phase::Stuck {
        return None;
    }

    // The same order as that of the decisions: retry and skip apply to a failed compensation first.
    if let Some(at) = state
        .compensating_step
        .filter(|at| state.entry(*at).state == StepState::CompensationFailed)
    {
        return Some(json!({ "step": name(saga, state, at), "action": "compensate" }));
    }

    // Past rounds are never blocked: a loop does not end a round before its steps have finished.
    let elements = |step: usize| {
        let count = state
            .elements(step)
            .map_or(0, |elements| elements.entries.len());
        std::iter::once(StepIndex::step(step))
            .chain((0..count).map(move |element| StepIndex::element(step, element)))
    };
    let mut all = (0..saga.steps.len()).flat_map(elements);
    let at = all.find(|at| state.entry(*at).state == StepState::Blocked)?;
    Some(json!({ "step": name(saga, state, at), "action": "do" }))
}

fn name(saga: &CompiledSaga, state: &State, at: StepIndex) -> String {
    let step = &saga.steps[at.step];
    let number = at
        .element
        .or_else(|| Some(state.run.loop_round(step.in_loop?)));
    number.map_or_else(
        || step.id.to_string(),
        |number| format!("{}[{number}]", step.id),
    )
}

/// Returns the displayed names of all step states.
pub(crate) fn step_state_names() -> Vec<&'static str> {
    let states = (0..=u8::MAX).map_while(|code| StepState::try_from(code).ok());
    states.map(state_name).collect()
}

fn state_name(step_state: StepState) -> &'static str {
    match step_state {
        StepState::Pending => "pending",
        StepState::Running => "running",
        StepState::Skipped => "skipped",
        StepState::Completed => "completed",
        StepState::Failed => "failed",
        StepState::Abandoned => "abandoned",
        StepState::Compensating => "compensating",
        StepState::CompensationFailed => "compensation_failed",
        StepState::Compensated => "compensated",
        StepState::Retrying => "retrying",
        StepState::Bypassed => "bypassed",
        StepState::CompensationPending => "compensation_pending",
        StepState::CompensationRetrying => "compensation_retrying",
        StepState::Blocked => "blocked",
        StepState::InDoubt => "in_doubt",
        StepState::InDoubtAbandoned => "in_doubt_abandoned",
        StepState::ChildAwaited => "child_awaited",
    }
}
