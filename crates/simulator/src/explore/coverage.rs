//! Coverage of a definition: steps, responses, compensations and timers, in the order of the
//! definition.

use std::collections::BTreeSet;

use orlog_engine::Decision;
use orlog_model::{InDoubtPolicy, Input};
use orlog_program::{Action, Definition, HandlerSpec, OnMaxRounds, Step};

use crate::invariants::StepStates;
use crate::responses::{ResponseSource, WorkTag, response_spec};
use crate::simulator::{DecisionObserver, ObservedDecision};

/// Parts of a definition, covered and not covered.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    parts: Vec<String>,
    reached: BTreeSet<String>,
    handlers: Vec<HandlerSpec>,
}

impl Coverage {
    /// Collects all parts of a definition.
    pub(super) fn of(definition: &Definition) -> Self {
        let mut parts: Vec<_> = definition
            .steps
            .iter()
            .flat_map(|step| of_step(definition, step))
            .collect();

        parts.extend(definition.timeout.as_ref().map(|_| "timer saga".to_owned()));
        parts.extend(
            definition
                .on
                .iter()
                .flat_map(|on| &on.event)
                .map(|event| format!("on {event}")),
        );
        parts.extend(["completed", "failed", "cancelled"].map(|status| format!("status {status}")));

        // Two switches can start one step, which is one part of the report.
        let mut seen = BTreeSet::new();
        parts.retain(|item| seen.insert(item.clone()));

        Self {
            parts,
            reached: BTreeSet::new(),
            handlers: definition.on.clone(),
        }
    }

    /// Returns the covered and the uncovered parts.
    pub(super) fn split(self) -> (Vec<String>, Vec<String>) {
        let reached = self.reached;
        self.parts
            .into_iter()
            .partition(|item| reached.contains(item))
    }
}

impl DecisionObserver for Coverage {
    fn on_decision(&mut self, seen: &ObservedDecision<'_>) {
        let Decision::Commit(commit) = seen.decision else {
            return;
        };
        let Some(after) = &commit.instance else {
            return;
        };

        let program = seen.context.program;
        let before = StepStates::of(program, seen.context.instance);
        let step_states = StepStates::of(program, Some(after));

        for (tag, state) in step_states
            .iter()
            .filter(|(tag, state)| before.get(tag) != *state)
        {
            let WorkTag { step, index, .. } = WorkTag::parse(tag);
            // Elements of a list also count here, but their steps have no part of this name.
            if index.is_some_and(|round| round > 0) {
                self.reached.insert(format!("{step} repeated"));
            }
            self.reached.insert(format!("{step} {}", term(state)));
            if let Input::Event(event) = seen.input {
                self.reached
                    .insert(format!("{step} {} by {}", term(state), event.kind));
            }
        }

        match seen.input {
            Input::Timer(timer) => {
                self.reached
                    .insert(format!("timer {}", step_timer(timer.name.as_str())));
            }
            Input::Event(event)
                if self
                    .handlers
                    .iter()
                    .any(|on| on.event.contains(&event.kind)) =>
            {
                self.reached.insert(format!("on {}", event.kind));
            }
            Input::Event(_)
            | Input::WorkResult(_)
            | Input::Control(_)
            | Input::Workflow(_)
            | Input::Early(_) => {}
        }

        if seen
            .context
            .instance
            .is_some_and(|before| before.run_id != after.run_id)
        {
            self.reached.insert(RESTARTED.to_owned());
        }
        self.reached.insert(format!("status {}", after.status));
    }
}

/// Part that is covered when an instance begins a new run.
const RESTARTED: &str = "restarted as new";

fn restarts(definition: &Definition, id: &orlog_model::Name) -> bool {
    let mut steps = definition.steps.iter().filter(|step| step.id == *id);
    steps.any(|step| matches!(step.action, Action::Restart(_)))
}

fn of_step(definition: &Definition, step: &Step) -> Vec<String> {
    let id = step.id.as_str();
    if let Action::Restart(_) = step.action {
        // The state of the step ends with its run.
        return vec![RESTARTED.to_owned()];
    }
    let mut parts = vec![format!("{id} completed")];
    let response =
        response_spec(definition, id).filter(|spec| spec.source == ResponseSource::Event);
    if let Some(spec) = response {
        let by = |term: &'static str| {
            move |(event, _): (&orlog_model::EventType, Option<&str>)| {
                format!("{id} {term} by {event}")
            }
        };
        parts.extend(spec.ok.iter().copied().map(by("completed")));
        parts.extend(spec.fail.iter().copied().map(by("failed")));
    }

    let fails = match &step.action {
        Action::Repeat(repeat) => repeat.on_max == OnMaxRounds::Fail,
        action => !matches!(
            action,
            Action::Wait(_) | Action::Switch(_) | Action::Event(_) | Action::Restart(_)
        ),
    };

    // A step without an own failure, such as a wait, fails only if the definition names an event
    // for it.
    parts.extend((fails || !step.fail.is_empty()).then(|| format!("{id} failed")));
    parts.extend(step.when.as_ref().map(|_| format!("{id} skipped")));
    parts.extend((step.in_doubt == Some(InDoubtPolicy::Ask)).then(|| format!("{id} in doubt")));

    if let Some(compensation) = &step.compensate {
        parts.push(format!("{id} compensated"));
        parts.extend(
            (!matches!(compensation.action, Action::Wait(_)))
                .then(|| format!("{id} compensation failed")),
        );
        parts.extend(
            compensation
                .timeout
                .as_ref()
                .map(|_| format!("timer compensate:{id}")),
        );
    }

    parts.extend(step.timeout.as_ref().map(|_| format!("timer {id}")));
    parts.extend(step.remind.as_ref().map(|_| format!("timer remind:{id}")));

    if let Action::Human(human) = &step.action {
        parts.extend(
            human
                .escalate
                .as_ref()
                .map(|_| format!("timer escalate:{id}")),
        );
    }
    if let Action::Switch(cases) = &step.action {
        let targets = cases
            .iter()
            .flat_map(|case| &case.then)
            .filter(|target| !restarts(definition, target));
        parts.extend(targets.map(|target| format!("{target} started")));
    }
    if let Action::Repeat(repeat) = &step.action {
        parts.extend(repeat.from.iter().map(|first| format!("{first} repeated")));
    }
    parts
}

/// Returns the term of the report for a step state. A completed step that is being compensated
/// counts as compensated.
fn term(state: &str) -> String {
    match state {
        "running" => "started".to_owned(),
        "abandoned" | "blocked" => "failed".to_owned(),
        "in_doubt" | "in_doubt_abandoned" => "in doubt".to_owned(),
        "compensation_failed" | "compensation_retrying" => "compensation failed".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Returns the timer name of the step for a timer of an element.
fn step_timer(timer: &str) -> &str {
    timer.split_once('[').map_or(timer, |(step, _)| step)
}
