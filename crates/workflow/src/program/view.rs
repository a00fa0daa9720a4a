//! Readable view of the state of an instance, with the fields that the API, the web UI and the
//! command line show.

use serde_json::{Map, Value as Json, json};

use super::compiled::WorkflowProgram;
use super::effects::timestamp;
use super::state::{NodeState, StepEnd, name_of, status};
use crate::graph::Step;
use crate::state::{Branch, Phase, Work};

/// Returns the view.
pub(super) fn view(program: &WorkflowProgram, state: &NodeState) -> Json {
    let definition = &program.definition;
    let path = |branch: &&Branch| definition.path(branch);
    // A step with children only waits for them, so they are the current steps.
    let is_leaf = |branch: &&Branch| !matches!(branch.work, Work::Children { .. });
    let leaves = || state.workflow.branches.iter().filter(is_leaf);

    let steps: Vec<_> = definition
        .graph
        .steps()
        .map(|step| step_view(program, state, step))
        .collect();
    let completed: Vec<_> = definition
        .graph
        .steps()
        .filter(|step| state.ended.get(&step.name) == Some(&StepEnd::Completed))
        .map(|step| &step.name)
        .collect();
    let values: Map<_, _> = leaves()
        .filter_map(|branch| Some((path(&branch), branch.value.json().ok()?)))
        .collect();

    let mut fields = json!({
        "phase": status(state.workflow.phase).as_str(),
        "steps": steps,
        "current": leaves().map(|branch| path(&branch)).collect::<Vec<_>>(),
        "completed": completed,
        "vars": values,
        "failure": state.cause,
    });

    if !state.workflow.buffered.is_empty() {
        let names: Vec<_> = state
            .workflow
            .buffered
            .iter()
            .map(|(name, _)| name)
            .collect();
        fields["signals"] = json!(names);
    }
    if let Some(step) =
        compensating(program, state).filter(|_| state.workflow.phase == Phase::Stuck)
    {
        fields["stuck"] = json!({ "step": step, "action": "compensate" });
    }
    fields
}

/// Returns the path of the step whose compensation is in progress or stuck.
fn compensating(program: &WorkflowProgram, state: &NodeState) -> Option<String> {
    let last = state.workflow.compensations.last()?;
    let is_due = matches!(state.workflow.phase, Phase::Compensating | Phase::Stuck);
    is_due.then(|| program.definition.path_at(last.step, &last.indexes))
}

fn step_view(program: &WorkflowProgram, state: &NodeState, step: &Step) -> Json {
    let branch = state
        .workflow
        .branches
        .iter()
        .find(|branch| *program.definition.step_name(branch.at) == *step.name);
    let is_compensating =
        compensating(program, state).is_some_and(|path| name_of(&path) == step.name);

    let until = branch.and_then(|branch| match branch.work {
        Work::Task { deadline_ms, .. } => deadline_ms,
        Work::Delay { until_ms } => Some(until_ms),
        Work::Signal { until_ms } => until_ms,
        Work::Children { .. } => None,
    });

    let name = match (branch, state.ended.get(&step.name)) {
        // A step in a list can have ended for one element while it runs for another.
        (Some(_), _) => "running",
        (None, _) if is_compensating && state.workflow.phase == Phase::Compensating => {
            "compensating"
        }
        (None, Some(StepEnd::Completed)) => "completed",
        (None, Some(StepEnd::Failed)) => "failed",
        (None, Some(StepEnd::Compensated)) => "compensated",
        (None, Some(StepEnd::CompensationFailed)) => "compensation_failed",
        (None, None) => "pending",
    };

    json!({
        "id": step.name,
        "state": name,
        "until": until.map(|until| timestamp(until).to_string()),
    })
}
