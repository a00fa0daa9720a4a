//! Lints of variables and results that are null when an expression reads them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::context::LintContext;
use crate::compile::expressions::ExpressionText;
use crate::definition::{AfterFailure, Definition, FailureHandler, Join, Step};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{FieldTest, Root, tested_fields, untested_fields};
use crate::steps::Action;

/// Codes of the rules.
pub(super) const UNDO_READS_NULL: &str = "OL22";
pub(super) const STEP_READS_FAILED: &str = "OL23";
pub(super) const UNDO_LACKS_VALUE: &str = "OL28";

/// Finding with the code of its rule.
type CodedFinding = (&'static str, RawDiagnostic);

/// OL22, OL23 and OL28: reads of values that can be null.
pub(super) fn null_values(context: &LintContext<'_>) -> Vec<CodedFinding> {
    let values = SavedValues::of(context);
    let mut analysis = ValueAnalysis {
        set: values.set_before(context, Assumption::AllOutcomes),
        set_without_failures: values.set_before(context, Assumption::NoFailures),
        set_under_condition: BTreeMap::new(),
        context,
        values,
    };

    let mut findings = Vec::new();
    for read in analysis.values.reads(context) {
        if analysis.is_allowed(&read) {
            continue;
        }
        let found = if !read.in_undo {
            analysis.step_reads_failed(&read)
        } else if analysis
            .values
            .saves(&context.definition.steps[read.step], read.value)
        {
            analysis.undo_lacks_value(&read)
        } else {
            analysis.undo_reads_null(&read)
        };
        findings.extend(found);
    }
    findings
}

/// Values that steps save, and when they are set.
struct ValueAnalysis<'c, 'd> {
    context: &'c LintContext<'d>,
    values: SavedValues,
    /// For each step, the values that are certainly set when it starts.
    set: Vec<ValueSet>,
    set_without_failures: Vec<ValueSet>,
    /// The same for steps with a condition, if the other steps with this condition are executed.
    set_under_condition: BTreeMap<String, Vec<ValueSet>>,
}

impl ValueAnalysis<'_, '_> {
    /// Returns whether the definition itself says that the value may be null, or tests it.
    fn is_allowed(&self, read: &ValueRead) -> bool {
        let step = &self.context.definition.steps[read.step];
        let name = &self.values.names[read.value];
        if read.in_undo
            && let Some(undo) = &step.compensate
            && let Some(variable) = name.strip_prefix("vars.")
            && undo.allow_null.iter().any(|allowed| allowed == variable)
        {
            return true;
        }

        // A step whose `when` tests the value does not start without it.
        let Some(when) = step
            .when
            .as_deref()
            .filter(|_| read.path != when_path(read.step))
        else {
            return false;
        };
        let when = when.strip_prefix('=').unwrap_or(when);
        let mut tested = ROOTS.into_iter().flat_map(|(root, test)| {
            let fields = tested_fields(when, root, test);
            fields.into_iter().map(move |fields| (root, fields))
        });
        tested.any(|(root, fields)| name_of(root, &fields) == *name)
    }

    /// Returns whether a value is set when a step starts.
    fn is_set(&mut self, step: usize, value: usize) -> bool {
        if self.set[step].contains(value) {
            return true;
        }
        let definition = self.context.definition;
        let Some(condition) = condition_of(&definition.steps[step]) else {
            return false;
        };
        let Self {
            context,
            values,
            set_under_condition,
            ..
        } = self;
        let set = set_under_condition
            .entry(condition.to_owned())
            .or_insert_with(|| values.set_before(context, Assumption::Condition(condition)));
        set[step].contains(value)
    }

    /// OL22: an `undo` that reads a value which another step saves, although that step need not
    /// have completed.
    fn undo_reads_null(&mut self, read: &ValueRead) -> Option<CodedFinding> {
        if self.values.has_initial[read.value] || self.is_set(read.step, read.value) {
            return None;
        }

        let steps = &self.context.definition.steps;
        let step = &steps[read.step];
        let name = &self.values.names[read.value];
        let saving = &steps[self.values.first_saved_by[read.value]];
        let message = format!(
            "the `undo` of step `{}` reads `{name}`, which is null if `{}` has not completed",
            step.id, saving.id
        );
        let suggestion = format!(
            "save it in `{}`, or test it, for example `={name} == null ? '' : {name}`",
            step.id
        );
        let finding = RawDiagnostic::new(&read.path, message).with_suggestion(suggestion);
        Some((UNDO_READS_NULL, finding))
    }

    /// OL23: a step that reads what a step with a handled failure would have saved.
    fn step_reads_failed(&mut self, read: &ValueRead) -> Option<CodedFinding> {
        let is_lost = self.set_without_failures[read.step].contains(read.value)
            && !self.is_set(read.step, read.value);
        let failed = self.values.lost_by[read.value].filter(|_| is_lost)?;

        let steps = &self.context.definition.steps;
        let name = &self.values.names[read.value];
        let failed = &steps[failed].id;
        let message = format!(
            "step `{}` reads `{name}`, which is null if `{failed}` has failed",
            steps[read.step].id
        );
        let suggestion = match name.strip_prefix("vars.") {
            Some(variable) => format!(
                "set it in the failure handler of `{failed}`, `save: {{ {variable}: … }}`, or test \
                 it, for example `={name} == null ? '' : {name}`"
            ),
            None => "test it with `has`, or select other steps with `then`".to_owned(),
        };
        let finding = RawDiagnostic::new(&read.path, message).with_suggestion(suggestion);
        Some((STEP_READS_FAILED, finding))
    }

    /// OL28: an `undo` that reads what its own step saves, although it is compensated without it.
    fn undo_lacks_value(&self, read: &ValueRead) -> Option<CodedFinding> {
        let step = &self.context.definition.steps[read.step];
        let name = &self.values.names[read.value];
        let is_of_request = !["undo.ok[", "undo.fail["]
            .iter()
            .any(|field| read.field.starts_with(field));
        if !is_of_request
            || self.values.has_initial[read.value]
            || self.set[read.step].contains(read.value)
        {
            return None;
        }

        let variable = name.strip_prefix("vars.");
        let template = variable.and_then(|variable| step.save.get(variable));
        // A variable that only a handler sets is required in no compensation.
        if variable.is_some() && template.is_none() {
            return None;
        }
        let condition = if template.is_some_and(is_optional) {
            "the result lacks it"
        } else if step.action.traits().is_retried() {
            "it times out"
        } else {
            return None;
        };
        let message = format!(
            "the `undo` of step `{}` reads `{name}`, which is null if {condition}: the instance \
             becomes stuck with `undo_without_value`",
            step.id
        );
        let suggestion = match variable {
            Some(variable) => format!(
                "identify the change by a value that is known before the step; write \
                 `allow_null: [{variable}]` in the `undo` if its upstream accepts null"
            ),
            None => format!(
                "identify the change by a value that is known before the step, and test `{name}` \
                 with `has`"
            ),
        };
        let finding = RawDiagnostic::new(&read.path, message).with_suggestion(suggestion);
        Some((UNDO_LACKS_VALUE, finding))
    }
}

/// Roots of saved values, with the test of each. The result of a job that has not completed does not
/// exist.
const ROOTS: [(Root, FieldTest); 2] = [
    (Root::Vars, FieldTest::Null),
    (Root::Results, FieldTest::Presence),
];

/// Returns the name of the value that an access reads.
fn name_of(root: Root, fields: &[String]) -> String {
    let first = fields.first().map_or("", String::as_str);
    format!("{}.{first}", root.name())
}

fn when_path(step: usize) -> String {
    format!("steps[{step}].when")
}

/// Returns the condition of a step without its `=`.
fn condition_of(step: &Step) -> Option<&str> {
    let when = step.when.as_deref()?;
    Some(when.strip_prefix('=').unwrap_or(when).trim())
}

/// Returns whether a template is null if the result lacks the field that it reads.
fn is_optional(template: &Value) -> bool {
    let text = template.as_str().unwrap_or_default();
    text.starts_with('=') && text.contains("orValue(null)")
}

/// What an analysis assumes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Assumption<'a> {
    /// Every outcome after which the saga runs on can happen.
    AllOutcomes,
    /// No failure is handled.
    NoFailures,
    /// As `AllOutcomes`, and the steps with this condition are executed.
    Condition(&'a str),
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
    /// Whether a value is set before any step completes: by the start event, or by a handler.
    has_initial: Vec<bool>,
}

/// A step reads a value without a test.
struct ValueRead {
    path: String,
    /// Path below the step.
    field: String,
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
                // The start event, or an event of a handler, sets these as well. The list of a
                // `foreach` step that fails is null all the same.
                let has_initial = is_set_elsewhere(definition, &name);
                if has_initial && step.foreach.is_none() {
                    continue;
                }
                if !values.numbers.contains_key(&name) {
                    values.numbers.insert(name.clone(), values.names.len());
                    values.names.push(name);
                    values.first_saved_by.push(i);
                    values.has_initial.push(has_initial);
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
                    .any(|handler| handler.prevents_failure() && !saves_name(handler, &name))
                    // Only the failure of a list replaces an initial value.
                    && (step.foreach.is_some() || !values.has_initial[*number]);
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
                    field: field.to_owned(),
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
                field: "do.job.dependencies".to_owned(),
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
        for (root, test) in ROOTS {
            // Each expression would be parsed for each root.
            if !expression.source.contains(root.name()) {
                continue;
            }
            for fields in untested_fields(&expression.source, element, root, test) {
                reads.extend(self.numbers.get(&name_of(root, &fields)));
            }
        }
        reads.dedup();
        reads
    }

    /// Returns for each step the values that are certainly set when it starts.
    fn set_before(&self, context: &LintContext<'_>, assumption: Assumption<'_>) -> Vec<ValueSet> {
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
                after.add(&self.set_by(context, earlier, step, assumption));

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
        assumption: Assumption<'_>,
    ) -> ValueSet {
        let form = &context.definition.steps[earlier];
        let id = &context.definition.steps[step].id;
        let completed = self.numbered(completed_names(form));
        let nothing = ValueSet::none(self.names.len());
        let is_conditional = match assumption {
            Assumption::Condition(condition) => {
                condition_of(form).is_some_and(|own| own != condition)
            }
            Assumption::AllOutcomes | Assumption::NoFailures => form.when.is_some(),
        };
        if assumption == Assumption::NoFailures {
            return if is_conditional { nothing } else { completed };
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
            if is_conditional {
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

/// Returns whether a variable has a value before any step saves it.
fn is_set_elsewhere(definition: &Definition, name: &str) -> bool {
    let Some(variable) = name.strip_prefix("vars.") else {
        return false;
    };
    let mut handlers = definition.on.iter();
    let initial = definition.vars.get(variable);
    initial.is_some_and(|template| !template.is_null())
        || handlers.any(|handler| handler.save.contains_key(variable))
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
