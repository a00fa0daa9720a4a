//! Lints of variables and results that are null when an expression reads them.

use std::collections::BTreeMap;

use super::context::LintContext;
use crate::compile::expressions::ExpressionText;
use crate::definition::{AfterFailure, FailureHandler, Join, Step};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{FieldTest, Root, untested_fields};
use crate::steps::Action;

/// OL22: an `undo` that reads a value which another step saves, although that step need not have
/// completed.
pub(super) fn undo_reads_null(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let values = SavedValues::of(context);
    let set = values.set_before(context, Outcomes::All);
    let mut findings = Vec::new();
    for read in values.reads(context) {
        let step = &context.definition.steps[read.step];
        let is_set = set[read.step].contains(read.value) || values.saves(step, read.value);
        if !read.in_undo || is_set {
            continue;
        }

        let name = &values.names[read.value];
        let saving = &context.definition.steps[values.first_saved_by[read.value]];
        let message = format!(
            "the `undo` of step `{}` reads `{name}`, which is null if `{}` has not completed",
            step.id, saving.id
        );
        let suggestion = format!(
            "save it in `{}`, or test it, for example `={name} == null ? '' : {name}`",
            step.id
        );
        findings.push(RawDiagnostic::new(&read.path, message).with_suggestion(suggestion));
    }
    findings
}

/// OL23: a step that reads what a step with a handled failure would have saved.
pub(super) fn step_reads_failed(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let values = SavedValues::of(context);
    let set = values.set_before(context, Outcomes::All);
    let set_without_failures = values.set_before(context, Outcomes::WithoutFailures);
    let mut findings = Vec::new();
    for read in values.reads(context) {
        let is_lost = set_without_failures[read.step].contains(read.value)
            && !set[read.step].contains(read.value);
        // Lint OL22 concerns compensations.
        if read.in_undo || !is_lost {
            continue;
        }
        let Some(failed) = values.lost_by[read.value] else {
            continue;
        };

        let name = &values.names[read.value];
        let failed = &context.definition.steps[failed].id;
        let message = format!(
            "step `{}` reads `{name}`, which is null if `{failed}` has failed",
            context.definition.steps[read.step].id
        );
        let suggestion = match name.strip_prefix("vars.") {
            Some(variable) => format!(
                "set it in the failure handler of `{failed}`, `save: {{ {variable}: … }}`, or test \
                 it, for example `={name} == null ? '' : {name}`"
            ),
            None => "test it with `has`, or select other steps with `then`".to_owned(),
        };
        findings.push(RawDiagnostic::new(&read.path, message).with_suggestion(suggestion));
    }
    findings
}

/// Which outcomes of a step count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcomes {
    /// All after which the saga runs on.
    All,
    /// As if no failure was handled.
    WithoutFailures,
}

/// Variables (`vars.x`) and results of jobs (`results.x`) that only steps save, by number.
#[derive(Default)]
struct SavedValues {
    names: Vec<String>,
    numbers: BTreeMap<String, usize>,
    /// For each value, the first step that saves it.
    first_saved_by: Vec<usize>,
    /// For each value, the first step that saves it only if it completes, and whose failure is
    /// handled.
    lost_by: Vec<Option<usize>>,
}

/// A step reads a value without a test.
struct ValueRead {
    path: String,
    step: usize,
    in_undo: bool,
    value: usize,
}

impl SavedValues {
    fn of(context: &LintContext<'_>) -> Self {
        let definition = context.definition;
        let mut values = Self::default();
        for (i, step) in context.steps() {
            for name in own_names(step) {
                let variable = name.strip_prefix("vars.");
                // The start event, or an event of a handler, sets these as well.
                let is_set_elsewhere = variable.is_some_and(|variable| {
                    let mut handlers = definition.on.iter();
                    definition.vars.contains_key(variable)
                        || handlers.any(|handler| handler.save.contains_key(variable))
                });
                if !is_set_elsewhere && !values.numbers.contains_key(&name) {
                    values.numbers.insert(name.clone(), values.names.len());
                    values.names.push(name);
                    values.first_saved_by.push(i);
                }
            }
        }

        values.lost_by = vec![None; values.names.len()];
        for (i, step) in context.steps() {
            for name in completed_names(step) {
                let Some(number) = values.numbers.get(&name) else {
                    continue;
                };
                let mut handlers = step.failure_handlers().map(|(_, handler)| handler);
                let is_lost = handlers
                    .any(|handler| handler.prevents_failure() && !saves_name(handler, &name));
                if is_lost {
                    values.lost_by[*number].get_or_insert(i);
                }
            }
        }
        values
    }

    /// Returns whether a step, or one of its failure handlers, saves a value.
    fn saves(&self, step: &Step, value: usize) -> bool {
        own_names(step).any(|name| self.numbers.get(&name) == Some(&value))
    }

    /// Returns the reads of the values in the order of the text.
    fn reads(&self, context: &LintContext<'_>) -> Vec<ValueRead> {
        let mut reads = Vec::new();
        for expression in &context.texts.expressions {
            let Some((step, field)) = step_of(&expression.path) else {
                continue;
            };
            // The condition of an awaited event is compiled for each event of its list.
            let mut path = expression.path.clone();
            let is_event = matches!(context.definition.steps[step].action, Action::Event(_));
            if is_event && field.starts_with("ok[") {
                if !field.starts_with("ok[0]") {
                    continue;
                }
                path = format!("steps[{step}].do.when");
            }

            for value in self.reads_of(expression) {
                reads.push(ValueRead {
                    path: path.clone(),
                    step,
                    in_undo: field.starts_with("undo."),
                    value,
                });
            }
        }

        // The results are passed to the job without an expression.
        for (i, step) in context.steps() {
            let Action::Job(job) = &step.action else {
                continue;
            };
            let results = job.dependencies.iter().map(|id| result_of(id.as_str()));
            let numbers = results.filter_map(|name| self.numbers.get(&name).copied());
            reads.extend(numbers.map(|value| ValueRead {
                path: format!("steps[{i}].do.job.dependencies"),
                step: i,
                in_undo: false,
                value,
            }));
        }
        reads
    }

    fn reads_of(&self, expression: &ExpressionText) -> Vec<usize> {
        let element = expression.element.as_deref();
        let mut reads = Vec::new();
        for (root, test) in [
            (Root::Vars, FieldTest::Null),
            // The result of a job that has not completed does not exist.
            (Root::Results, FieldTest::Presence),
        ] {
            // Each expression would be parsed for each root.
            if !expression.source.contains(root.name()) {
                continue;
            }
            for fields in untested_fields(&expression.source, element, root, test) {
                let first = fields.first().map_or("", String::as_str);
                let name = format!("{}.{first}", root.name());
                reads.extend(self.numbers.get(&name));
            }
        }
        reads.dedup();
        reads
    }

    /// Returns for each step the values that are certainly set when it starts.
    fn set_before(&self, context: &LintContext<'_>, outcomes: Outcomes) -> Vec<ValueSet> {
        let order = &context.order;
        let steps = &context.definition.steps;
        let mut set = vec![ValueSet::none(self.names.len()); steps.len()];
        for step in order.sorted.iter().copied() {
            let before = &order.before[step];
            let requires_all = match steps[step].after.as_ref().map(|after| after.join) {
                None | Some(Join::All) => true,
                Some(Join::AtLeast(count)) => {
                    usize::try_from(count).is_ok_and(|count| count >= before.len())
                }
            };

            // What every predecessor sets is set, whichever of them was bypassed.
            let mut common: Option<ValueSet> = None;
            let mut certain = ValueSet::none(self.names.len());
            for earlier in before.iter().copied() {
                let mut after = set[earlier].clone();
                after.add(&self.set_by(context, earlier, step, outcomes));

                if requires_all && order.implies(step, earlier) {
                    certain.add(&after);
                }
                match &mut common {
                    None => common = Some(after),
                    Some(common) => common.retain(&after),
                }
            }

            if let Some(common) = common {
                certain.add(&common);
            }
            set[step] = certain;
        }
        set
    }

    /// Returns the values that every outcome of `earlier` sets after which `step` can start.
    fn set_by(
        &self,
        context: &LintContext<'_>,
        earlier: usize,
        step: usize,
        outcomes: Outcomes,
    ) -> ValueSet {
        let form = &context.definition.steps[earlier];
        let id = &context.definition.steps[step].id;
        let completed = self.numbered(completed_names(form));
        let nothing = ValueSet::none(self.names.len());
        if outcomes == Outcomes::WithoutFailures {
            return if form.when.is_none() {
                completed
            } else {
                nothing
            };
        }

        let follows_failure = form
            .failure_handlers()
            .any(|(_, handler)| handler.steps().contains(id));
        let mut sets = Vec::new();
        for (_, handler) in form.failure_handlers() {
            let leads = match &handler.then {
                AfterFailure::Fail => false,
                AfterFailure::Continue => !follows_failure,
                AfterFailure::Steps(steps) if follows_failure => steps.contains(id),
                // The step can start because of other predecessors.
                AfterFailure::Steps(_) => !context.order.follows_completion(step, earlier),
            };
            if leads {
                sets.push(self.numbered(handler.save.keys().map(|name| variable(name))));
            }
        }

        if !follows_failure {
            sets.push(completed);
            if form.when.is_some() {
                sets.push(nothing.clone());
            }
        }
        let common = sets.into_iter().reduce(|mut common, set| {
            common.retain(&set);
            common
        });
        common.unwrap_or(nothing)
    }

    fn numbered(&self, names: impl Iterator<Item = String>) -> ValueSet {
        let mut set = ValueSet::none(self.names.len());
        for name in names {
            if let Some(number) = self.numbers.get(&name) {
                set.insert(*number);
            }
        }
        set
    }
}

/// Set of numbered values. A definition can have 1000 steps and tens of thousands of values.
#[derive(Clone)]
struct ValueSet {
    words: Vec<u64>,
}

impl ValueSet {
    /// Returns the empty set of this number of values.
    fn none(count: usize) -> Self {
        Self {
            words: vec![0; count.div_ceil(64)],
        }
    }

    fn insert(&mut self, value: usize) {
        self.words[value / 64] |= 1 << (value % 64);
    }

    fn contains(&self, value: usize) -> bool {
        self.words[value / 64] & (1 << (value % 64)) != 0
    }

    fn add(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    fn retain(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }
}

/// Returns the step of a path such as `steps[3].undo.data`, and the path within it.
fn step_of(path: &str) -> Option<(usize, &str)> {
    let (number, field) = path.strip_prefix("steps[")?.split_once("].")?;
    Some((number.parse().ok()?, field))
}

fn variable(name: &str) -> String {
    format!("{}.{name}", Root::Vars.name())
}

fn result_of(job: &str) -> String {
    format!("{}.{job}", Root::Results.name())
}

fn saves_name(handler: &FailureHandler, name: &str) -> bool {
    let variable = name.strip_prefix("vars.");
    variable.is_some_and(|variable| handler.save.contains_key(variable))
}

/// Returns the values that a completed step has set.
fn completed_names(step: &Step) -> impl Iterator<Item = String> {
    let is_job = matches!(step.action, Action::Job(_));
    let result = is_job.then(|| result_of(step.id.as_str()));
    step.save.keys().map(|name| variable(name)).chain(result)
}

/// Returns the values that a step or its failure handlers set.
fn own_names(step: &Step) -> impl Iterator<Item = String> {
    let handled = step
        .failure_handlers()
        .flat_map(|(_, handler)| handler.save.keys());
    completed_names(step).chain(handled.map(|name| variable(name)))
}
