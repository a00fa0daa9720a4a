//! Step order: dependencies without cycles, and the properties that follow from them.

mod cycle;
mod loops;
mod paths;

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::EventType;

use crate::definition::{Definition, Join, Step};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics, did_you_mean};
use crate::steps::Action;
use loops::LoopContext;

/// Order of the steps.
#[derive(Default)]
pub(crate) struct StepOrder {
    /// For each step, its direct predecessors.
    pub(crate) before: Vec<Vec<usize>>,
    /// For each step, the switches, and the steps with failure handlers, that select it.
    pub(crate) selected_by: Vec<Vec<usize>>,
    /// For each step, those of them that select it without effect: its predecessors require
    /// another branch.
    pub(crate) ineffective_selections: Vec<Vec<usize>>,
    /// All steps in topological order; ties in the order of the definition.
    pub(crate) sorted: Vec<usize>,
    /// For each join that does not require all predecessors, the steps whose paths all lead to it,
    /// sorted.
    pub(crate) regions: Vec<Vec<usize>>,
    /// For each step, the joins whose region contains it, sorted.
    pub(crate) joins: Vec<Vec<usize>>,
    /// For each step, the loop that contains it: the index of the step that ends the loop.
    pub(crate) loops: Vec<Option<usize>>,
    /// For each step, all steps from which a path leads to it.
    ancestors: Vec<Vec<bool>>,
    /// For each step, the steps that are certainly finished when it starts.
    finished_before: Vec<Vec<bool>>,
    /// For each step, the branches of switches and failures of which one must be selected.
    branches: Vec<paths::Branches>,
}

impl StepOrder {
    /// Returns true if two steps can be in progress at the same time.
    pub(crate) fn overlap(&self, a: usize, b: usize) -> bool {
        a != b && !self.finished_before[a][b] && !self.finished_before[b][a] && !self.exclude(a, b)
    }

    /// Returns for each step whether it is `step`, or a path leads from it to `step`.
    pub(crate) fn up_to(&self, step: usize) -> Vec<bool> {
        let mut steps = self.ancestors.get(step).cloned().unwrap_or_default();
        if let Some(own) = steps.get_mut(step) {
            *own = true;
        }
        steps
    }

    /// Returns true if a path leads from `first` to `second`.
    pub(crate) fn precedes(&self, first: usize, second: usize) -> bool {
        self.ancestors[second][first]
    }

    /// Returns for each step whether it is one of these or follows one of them. Empty for no steps.
    pub(crate) fn reached_from(&self, first: &[usize]) -> Vec<bool> {
        if first.is_empty() {
            return Vec::new();
        }
        let steps = self.ancestors.iter().enumerate();
        let reached = steps.map(|(step, ancestors)| {
            first
                .iter()
                .any(|first| *first == step || ancestors[*first])
        });
        reached.collect()
    }

    /// Returns true if the step requires branches that exclude each other.
    pub(crate) fn never_starts(&self, step: usize) -> bool {
        self.branches[step].values().any(BTreeSet::is_empty)
    }

    /// Returns true if the step starts only if `earlier` has completed, or its handler continues as
    /// if it had.
    pub(crate) fn follows_completion(&self, step: usize, earlier: usize) -> bool {
        let outcomes = self.branches[step].get(&earlier);
        outcomes.is_some_and(|outcomes| outcomes.iter().all(|outcome| *outcome == paths::COMPLETED))
    }

    /// Returns true if no switch and no failure bypasses `earlier` if the step starts.
    pub(crate) fn implies(&self, step: usize, earlier: usize) -> bool {
        let mine = &self.branches[step];
        let mut required = self.branches[earlier].iter();
        required.all(|(selecting, cases)| {
            mine.get(selecting)
                .is_some_and(|mine| mine.is_subset(cases))
        })
    }

    /// Returns true if a switch selects one step or the other, never both.
    pub(crate) fn exclude(&self, a: usize, b: usize) -> bool {
        paths::are_exclusive(&self.branches[a], &self.branches[b])
    }
}

/// Returns the order, or adds diagnostics if there is none.
pub(crate) fn of(definition: &Definition, findings: &mut RawDiagnostics) -> Option<StepOrder> {
    let steps = &definition.steps;
    let mut index = BTreeMap::new();
    for (i, step) in steps.iter().enumerate() {
        if let Some(first) = index.insert(step.id.as_str(), i) {
            let message = format!("step `{}` already exists as steps[{first}]", step.id);
            findings.push(
                RawDiagnostic::new(format!("steps[{i}].id"), message)
                    .with_suggestion("use a unique id for each step"),
            );
        }
    }

    // Counted after the duplicates, which do not prevent an order: more errors are found with it.
    let found = findings.len();

    let mut names = StepNames {
        steps,
        index,
        findings,
    };

    let selected_by = names.selected_by();
    let before: Vec<_> = (0..steps.len())
        .map(|i| names.before(i, &selected_by[i]))
        .collect();
    let firsts = names.firsts();

    let Some(sorted) = cycle::sort(&before) else {
        findings.push(cycle::describe_cycle(steps, &before));
        return None;
    };

    let ancestors = paths::ancestors(&before, &sorted);
    switches_lead(steps, &selected_by, &ancestors, findings);

    let context = LoopContext {
        steps,
        before: &before,
        ancestors: &ancestors,
    };
    let loops = loops::loops(&context, &firsts, findings);

    let regions = paths::regions(steps, &before, &sorted);
    let mut joins = vec![Vec::new(); steps.len()];
    for join in &sorted {
        for step in &regions[*join] {
            joins[*step].push(*join);
        }
    }

    let finished_before = paths::finished_before(steps, &before, &sorted, &regions);
    let branches = paths::branches(steps, &before, &sorted, &selected_by, &ancestors);
    let ineffective_selections = paths::ineffective_selections(steps, &selected_by, &branches);

    let order = StepOrder {
        before,
        selected_by,
        ineffective_selections,
        sorted,
        regions,
        joins,
        loops,
        ancestors,
        finished_before,
        branches,
    };
    (found == findings.len()).then_some(order)
}

struct StepNames<'a> {
    steps: &'a [Step],
    index: BTreeMap<&'a str, usize>,
    findings: &'a mut RawDiagnostics,
}

impl StepNames<'_> {
    fn find(&mut self, id: &str, path: String) -> Option<usize> {
        let found = self.index.get(id).copied();
        if found.is_none() {
            let near = reaction_instead_of_step(id, &path)
                .or_else(|| did_you_mean(id, self.index.keys().copied()));
            self.findings.push(
                RawDiagnostic::new(path, format!("there is no step `{id}`"))
                    .with_optional_suggestion(near),
            );
        }
        found
    }

    /// Returns for each step the switches, and the steps with failure handlers, that select it.
    fn selected_by(&mut self) -> Vec<Vec<usize>> {
        let mut selected_by = vec![Vec::new(); self.steps.len()];
        for (i, step) in self.steps.iter().enumerate() {
            for (field, selected) in step.selections() {
                for id in selected {
                    let path = format!("steps[{i}].{field}");
                    match self.find(id.as_str(), path.clone()) {
                        Some(target) if target == i => {
                            self.findings.push(RawDiagnostic::new(
                                path,
                                format!("`{id}` cannot depend on itself"),
                            ));
                        }
                        Some(target) if !selected_by[target].contains(&i) => {
                            selected_by[target].push(i);
                        }
                        Some(_) | None => {}
                    }
                }
            }
        }

        selected_by
    }

    /// Returns the first steps of each loop, by the index of the step that ends it.
    fn firsts(&mut self) -> Vec<(usize, Vec<usize>)> {
        let mut firsts = Vec::new();
        for (end, step) in self.steps.iter().enumerate() {
            let Action::Repeat(repeat) = &step.action else {
                continue;
            };
            let from = repeat.from.iter().enumerate();
            let found = from.filter_map(|(n, id)| {
                self.find(id.as_str(), format!("steps[{end}].do.repeat[{n}]"))
            });
            firsts.push((end, found.collect()));
        }

        firsts
    }

    /// Returns the direct predecessors of a step: those in its `after`; else those that select it;
    /// else the previous step.
    fn before(&mut self, i: usize, selected_by: &[usize]) -> Vec<usize> {
        let steps = self.steps;
        let step = &steps[i];
        let needs = step.action.kind().required_steps();
        let mut before = match &step.after {
            Some(after) => {
                let found = after.steps.iter().enumerate();
                found
                    .filter_map(|(n, id)| self.find(id.as_str(), format!("steps[{i}].after[{n}]")))
                    .collect()
            }
            // A selected step follows the one that selects it, wherever it is in the text.
            None if !selected_by.is_empty() => selected_by.to_vec(),
            // A job that names other steps does not also follow the one before it in the text.
            None if !needs.is_empty() => Vec::new(),
            None => i.checked_sub(1).into_iter().collect(),
        };

        for (field, id) in needs {
            before.extend(self.find(id.as_str(), format!("steps[{i}].do.job.{field}")));
        }

        // A job can name a step in several fields; a join counts it once.
        before.sort_unstable();
        before.dedup();
        self.count(i, before.len());
        before
    }

    fn count(&mut self, i: usize, before: usize) {
        let Some(Join::AtLeast(count)) = self.steps[i].after.as_ref().map(|after| after.join)
        else {
            return;
        };

        let path = format!("steps[{i}].after");
        let finding = match usize::try_from(count) {
            Ok(0) => RawDiagnostic::new(path, "a join requires at least one step")
                .with_suggestion("set 1 or more"),
            Ok(count)
                if count <= before && self.steps[i].action.kind().required_steps().is_empty() =>
            {
                return;
            }
            Ok(count) if count <= before => {
                let message =
                    "a job with prerequisites or dependencies requires all preceding steps";
                RawDiagnostic::new(path, message)
                    .with_suggestion("put the join on a separate step before the job")
            }
            Ok(_) | Err(_) => RawDiagnostic::new(
                path,
                format!("{count} of {before} steps can never complete"),
            )
            .with_suggestion("lower the count, or list more steps"),
        };

        self.findings.push(finding);
    }
}

/// Returns the remedy if the `then` of a failure handler has a reaction instead of a step.
fn reaction_instead_of_step(id: &str, path: &str) -> Option<String> {
    let handler = path.strip_suffix(".then")?.rsplit('.').next()?;
    if !handler.starts_with("on_") {
        return None;
    }
    match id {
        "continue" => Some(format!(
            "to go on as after a completion, omit `then`, or write `{handler}: continue`"
        )),
        "fail" => Some(format!("to let the saga fail, write `{handler}: fail`")),
        _ => None,
    }
}

/// Checks that a switch or a failure handler selects only steps that come after its step.
fn switches_lead(
    steps: &[Step],
    selected_by: &[Vec<usize>],
    ancestors: &[Vec<bool>],
    findings: &mut RawDiagnostics,
) {
    for (target, switches) in selected_by.iter().enumerate() {
        for switch in switches
            .iter()
            .filter(|switch| !ancestors[target][**switch])
        {
            let target = &steps[target].id;
            let kind = match steps[*switch].action {
                Action::Switch(_) => "switch",
                _ => "step",
            };
            let switch = &steps[*switch].id;
            let message =
                format!("{kind} `{switch}` selects `{target}`, which does not come after it");

            let index = steps
                .iter()
                .position(|step| step.id == *target)
                .unwrap_or_default();
            let suggestion = format!("add `{switch}` to its `after`, or omit `after`");
            findings.push(
                RawDiagnostic::new(format!("steps[{index}].after"), message)
                    .with_suggestion(suggestion),
            );
        }
    }
}

/// Reports steps that follow a restart or may run concurrently with it.
pub(crate) fn check_restarts(
    definition: &Definition,
    order: &StepOrder,
    findings: &mut RawDiagnostics,
) {
    let steps = &definition.steps;
    for (i, step) in steps.iter().enumerate() {
        let Action::Restart(restart) = &step.action else {
            continue;
        };

        let path = format!("steps[{i}].do");
        if !definition.start.contains(&restart.event) {
            let message = format!("{} does not start this saga", restart.event);
            let near = did_you_mean(
                restart.event.as_str(),
                definition.start.iter().map(EventType::as_str),
            );
            let finding = RawDiagnostic::new(format!("{path}.restart_as_new"), message);
            findings.push(finding.with_optional_suggestion(near));
        }

        if step.pivot {
            let message = format!("the restart `{}` ends the run, so it is no pivot", step.id);
            findings.push(RawDiagnostic::new(format!("steps[{i}].pivot"), message));
        }

        // The restart ends the run, so nothing of the run may be in progress or follow.
        let follows = (0..steps.len()).find(|other| order.precedes(i, *other));
        let beside = (0..steps.len()).find(|other| order.overlap(i, *other));
        let finding = match (follows, beside) {
            (Some(later), _) => {
                let message = format!(
                    "step `{}` follows the restart `{}`",
                    steps[later].id, step.id
                );
                RawDiagnostic::new(path, message)
                    .with_suggestion("make the restart the last step of its branch")
            }
            (None, Some(beside)) => {
                let beside = &steps[beside].id;
                let message = format!(
                    "step `{beside}` may run concurrently with the restart `{}`",
                    step.id
                );
                RawDiagnostic::new(path, message)
                    .with_suggestion(format!("order `{beside}` before it with `after`"))
            }
            (None, None) => continue,
        };

        findings.push(finding);
    }
}

/// Reports steps that may run concurrently with a pivot.
pub(crate) fn check_pivots(
    definition: &Definition,
    order: &StepOrder,
    findings: &mut RawDiagnostics,
) {
    let steps = &definition.steps;
    for (i, pivot) in steps.iter().enumerate().filter(|(_, step)| step.pivot) {
        // Such a step would be neither final nor compensated.
        let Some(beside) = (0..steps.len()).find(|other| order.overlap(i, *other)) else {
            continue;
        };

        let other = &steps[beside].id;
        let message = format!(
            "step `{other}` may run concurrently with the pivot `{}`",
            pivot.id
        );
        let suggestion = format!("order `{other}` before or after it with `after`");
        findings.push(
            RawDiagnostic::new(format!("steps[{i}].pivot"), message).with_suggestion(suggestion),
        );
    }
}
