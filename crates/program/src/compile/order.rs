//! The order of steps: who comes after whom, without circles, and what follows from it.

mod cycle;
mod paths;

use std::collections::BTreeMap;

use crate::definition::{Action, Definition, Join, Step};
use crate::diagnostic::{Finding, Findings, did_you_mean};

/// What is known about the order.
pub(super) struct Order {
    /// For each step, those directly before it.
    pub(super) before: Vec<Vec<usize>>,
    /// For each step, the switches that name it.
    pub(super) named_by: Vec<Vec<usize>>,
    /// All steps, each after those before it; among equals in the order of the definition.
    pub(super) sorted: Vec<usize>,
    /// For each join that does not need all, the steps all of whose ways lead to it, sorted.
    pub(super) regions: Vec<Vec<usize>>,
    /// For each step, the joins in whose region it lies, sorted.
    pub(super) joins: Vec<Vec<usize>>,
    /// For each step, all that are certainly over when it begins.
    over: Vec<Vec<bool>>,
    /// For each step, the ways of switches on one of which it must lie.
    ways: Vec<paths::Ways>,
}

impl Order {
    /// Whether two steps can be under way at the same time.
    pub(super) fn overlap(&self, a: usize, b: usize) -> bool {
        a != b && !self.over[a][b] && !self.over[b][a] && !paths::exclude(&self.ways[a], &self.ways[b])
    }
}

/// Finds the order, or says what stands against it.
pub(super) fn of(definition: &Definition, findings: &mut Findings) -> Option<Order> {
    let steps = &definition.steps;
    let mut index = BTreeMap::new();
    for (i, step) in steps.iter().enumerate() {
        if let Some(first) = index.insert(step.id.as_str(), i) {
            let message = format!("step `{}` is there already, as steps[{first}]", step.id);
            findings
                .push(Finding::new(format!("steps[{i}].id"), message).suggest("give each step its own id"));
        }
    }
    let found = findings.len();
    let mut names = Names { steps, index, findings };
    let named_by = names.named_by();
    let before: Vec<_> = (0..steps.len()).map(|i| names.before(i, &named_by[i])).collect();
    let Some(sorted) = cycle::sort(&before) else {
        findings.push(cycle::describe(steps, &before));
        return None;
    };
    let ancestors = paths::ancestors(&before, &sorted);
    switches_lead(steps, &named_by, &ancestors, findings);
    let regions = paths::regions(steps, &before, &sorted);
    let mut joins = vec![Vec::new(); steps.len()];
    for join in &sorted {
        for step in &regions[*join] {
            joins[*step].push(*join);
        }
    }
    let over = paths::over(steps, &before, &sorted, &regions);
    let ways = paths::ways(steps, &before, &sorted, &named_by);
    let order = Order { before, named_by, sorted, regions, joins, over, ways };
    (found == findings.len()).then_some(order)
}

struct Names<'a> {
    steps: &'a [Step],
    index: BTreeMap<&'a str, usize>,
    findings: &'a mut Findings,
}

impl Names<'_> {
    fn find(&mut self, id: &str, path: String) -> Option<usize> {
        let found = self.index.get(id).copied();
        if found.is_none() {
            let near = did_you_mean(id, self.index.keys().copied());
            self.findings.push(Finding::new(path, format!("there is no step `{id}`")).maybe_suggest(near));
        }
        found
    }

    /// For each step, the switches that name it.
    fn named_by(&mut self) -> Vec<Vec<usize>> {
        let mut named_by = vec![Vec::new(); self.steps.len()];
        for (i, step) in self.steps.iter().enumerate() {
            let Action::Switch(cases) = &step.action else { continue };
            for (n, case) in cases.iter().enumerate() {
                for id in &case.then {
                    let path = format!("steps[{i}].do.switch[{n}].then");
                    match self.find(id.as_str(), path.clone()) {
                        Some(target) if target == i => {
                            self.findings.push(Finding::new(path, format!("`{id}` cannot lead to itself")));
                        }
                        Some(target) if !named_by[target].contains(&i) => named_by[target].push(i),
                        Some(_) | None => {}
                    }
                }
            }
        }
        named_by
    }

    /// The steps directly before one: those it names; else the switches that name it; else the step before.
    fn before(&mut self, i: usize, named_by: &[usize]) -> Vec<usize> {
        let steps = self.steps;
        let step = &steps[i];
        let needs = needs(&step.action);
        let mut before = match &step.after {
            Some(after) => {
                let found = after.steps.iter().enumerate();
                found.filter_map(|(n, id)| self.find(id.as_str(), format!("steps[{i}].after[{n}]"))).collect()
            }
            None if !named_by.is_empty() => named_by.to_vec(),
            None if !needs.is_empty() => Vec::new(),
            None => i.checked_sub(1).into_iter().collect(),
        };
        for (field, id) in needs {
            before.extend(self.find(id, format!("steps[{i}].do.job.{field}")));
        }
        before.sort_unstable();
        before.dedup();
        self.count(i, before.len());
        before
    }

    fn count(&mut self, i: usize, before: usize) {
        let Some(Join::AtLeast(count)) = self.steps[i].after.as_ref().map(|after| after.join) else { return };
        let path = format!("steps[{i}].after");
        let finding = match usize::try_from(count) {
            Ok(0) => Finding::new(path, "a join needs at least one step").suggest("1 or more"),
            Ok(count) if count <= before && needs(&self.steps[i].action).is_empty() => return,
            Ok(count) if count <= before => {
                let message = "a job with prerequisites or dependencies needs all of the steps before it";
                Finding::new(path, message).suggest("put the join on a step of its own before the job")
            }
            Ok(_) | Err(_) => Finding::new(path, format!("{count} of {before} steps can never be done"))
                .suggest("lower the count, or name more steps"),
        };
        self.findings.push(finding);
    }
}

/// The steps a job names, with the field.
fn needs(action: &Action) -> Vec<(&'static str, &str)> {
    let Action::Job(job) = action else { return Vec::new() };
    let prerequisites = job.prerequisites.iter().map(|id| ("prerequisites", id.as_str()));
    prerequisites.chain(job.dependencies.iter().map(|id| ("dependencies", id.as_str()))).collect()
}

/// A switch can only lead to steps that come after it.
fn switches_lead(steps: &[Step], named_by: &[Vec<usize>], ancestors: &[Vec<bool>], findings: &mut Findings) {
    for (target, switches) in named_by.iter().enumerate() {
        for switch in switches.iter().filter(|switch| !ancestors[target][**switch]) {
            let (target, switch) = (&steps[target].id, &steps[*switch].id);
            let message = format!("switch `{switch}` names `{target}`, which does not come after it");
            let place = steps.iter().position(|step| step.id == *target).unwrap_or_default();
            let suggestion = format!("add `{switch}` to its `after`, or leave `after` away");
            findings.push(Finding::new(format!("steps[{place}].after"), message).suggest(suggestion));
        }
    }
}

/// Steps that may run beside a point of no return would be neither final nor undone.
pub(super) fn check_pivots(definition: &Definition, order: &Order, findings: &mut Findings) {
    let steps = &definition.steps;
    for (i, pivot) in steps.iter().enumerate().filter(|(_, step)| step.pivot) {
        let Some(beside) = (0..steps.len()).find(|other| order.overlap(i, *other)) else { continue };
        let other = &steps[beside].id;
        let message = format!("step `{other}` may run beside the point of no return `{}`", pivot.id);
        let suggestion = format!("put `{other}` before or after it with `after`");
        findings.push(Finding::new(format!("steps[{i}].pivot"), message).suggest(suggestion));
    }
}
