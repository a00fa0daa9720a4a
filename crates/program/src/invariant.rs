//! Invariants of a definition: conditions over the steps of a run, checked by simulations. A node does
//! not evaluate them.
//!
//! | name | value |
//! |---|---|
//! | `steps.<id>` | the [`StepProperty`] values of the step so far, each true or false, and its `state` |
//! | `status` | the status of the instance |
//! | `vars` | the variables of the instance |

use orlog_model::Status;
use serde_json::{Map, Value};

use crate::definition::{Definition, InvariantSpec};
use crate::diagnostic::{Diagnostic, RawDiagnostic, RawDiagnostics, did_you_mean};
use crate::expression::{Filter, FreeRead, TextComparison, free_reads, text_comparisons};
use crate::machine::step_state_names;

const STEPS: &str = "steps";
const STATUS: &str = "status";
const VARS: &str = "vars";
const NAMES: [&str; 3] = [STEPS, STATUS, VARS];
/// Field of a step beside its properties.
const STATE: &str = "state";

/// Property of a step in a run, true or false. Once true, each but `Compensated` stays true until
/// the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepProperty {
    /// Its action has been requested, or its wait has begun.
    Started,
    /// It has completed, or may have been executed, so that it is compensated.
    Completed,
    /// It has ended without a success: failed, timed out or abandoned.
    Failed,
    /// Its `undo` has been confirmed for each of its completed elements and rounds.
    Compensated,
    /// It was skipped or bypassed.
    Skipped,
}

impl StepProperty {
    /// All properties.
    pub const ALL: [Self; 5] = [
        Self::Started,
        Self::Completed,
        Self::Failed,
        Self::Compensated,
        Self::Skipped,
    ];

    /// Returns the name in expressions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Compensated => "compensated",
            Self::Skipped => "skipped",
        }
    }
}

/// View of a run after a transition.
#[derive(Clone, Debug, Default)]
pub struct RunView {
    variables: Map<String, Value>,
}

impl RunView {
    /// Creates the view of a run without steps.
    #[must_use]
    pub fn new(status: &str, vars: Value) -> Self {
        let mut variables = Map::new();
        variables.insert(STEPS.to_owned(), Value::Object(Map::new()));
        variables.insert(STATUS.to_owned(), Value::from(status));
        variables.insert(VARS.to_owned(), vars);
        Self { variables }
    }

    /// Adds a step with its state and its properties.
    pub fn add_step(&mut self, id: &str, state: &str, holds: impl Fn(StepProperty) -> bool) {
        let mut fields = Map::new();
        for property in StepProperty::ALL {
            fields.insert(property.as_str().to_owned(), Value::from(holds(property)));
        }
        fields.insert(STATE.to_owned(), Value::from(state));

        if let Some(Value::Object(steps)) = self.variables.get_mut(STEPS) {
            steps.insert(id.to_owned(), Value::Object(fields));
        }
    }
}

/// When an invariant is checked, and which value of its condition violates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// After every transition; must not hold.
    Never,
    /// At the end of every run; must hold.
    Always,
}

/// Compiled invariant.
#[derive(Debug)]
pub struct SagaInvariant {
    name: String,
    rule: Rule,
    source: String,
    condition: Filter,
    reads: Vec<FreeRead>,
}

impl SagaInvariant {
    /// Compiles an invariant of the runs of a definition, for example from a test file.
    ///
    /// # Errors
    /// All diagnostics, without a position.
    pub fn compile(
        spec: &InvariantSpec,
        definition: &Definition,
        path: &str,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut findings = Vec::new();
        let compiled = compile(spec, definition, path, &mut findings);
        match compiled {
            Some(compiled) if findings.is_empty() => Ok(compiled),
            _ => Err(findings
                .into_iter()
                .map(|finding| finding.without_text(""))
                .collect()),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the condition reads a step.
    #[must_use]
    pub fn reads_step(&self, id: &str) -> bool {
        let mut steps = self.reads.iter().filter(|read| read.name == STEPS);
        steps.any(|read| read.fields.first().is_none_or(|field| field == id))
    }

    /// Returns how a run violates the invariant. `is_end`: the run has ended.
    #[must_use]
    pub fn violation(&self, view: &RunView, is_end: bool) -> Option<String> {
        if self.rule == Rule::Always && !is_end {
            return None;
        }

        let Self { name, source, .. } = self;
        let holds = self.condition.holds(&view.variables).0;
        match (self.rule, holds) {
            (Rule::Never, Ok(false)) | (Rule::Always, Ok(true)) => None,
            (Rule::Never, Ok(true)) => Some(format!("{name}: never {source}")),
            (Rule::Always, Ok(false)) => Some(format!("{name}: always {source}")),
            (_, Err(reason)) => Some(format!("{name}: `{source}` has no value: {reason}")),
        }
    }
}

/// Compiles the invariants of a definition.
pub(crate) fn compile_all(
    definition: &Definition,
    findings: &mut RawDiagnostics,
) -> Vec<SagaInvariant> {
    let mut compiled: Vec<SagaInvariant> = Vec::new();
    for (n, spec) in definition.invariants.iter().enumerate() {
        let path = format!("invariants[{n}]");
        if compiled.iter().any(|other| other.name == spec.name) {
            let message = format!("the invariant `{}` is stated twice", spec.name);
            findings.push(RawDiagnostic::new(format!("{path}.name"), message));
        }
        compiled.extend(compile(spec, definition, &path, findings));
    }
    compiled
}

fn compile(
    spec: &InvariantSpec,
    definition: &Definition,
    path: &str,
    findings: &mut RawDiagnostics,
) -> Option<SagaInvariant> {
    let (rule, field, text) = match (&spec.never, &spec.always) {
        (Some(text), None) => (Rule::Never, "never", text),
        (None, Some(text)) => (Rule::Always, "always", text),
        (Some(_), Some(_)) | (None, None) => {
            let message = "an invariant has either `never` or `always`";
            let suggestion = "for example never: steps.charge.started && !steps.verified.completed";
            findings.push(RawDiagnostic::new(path, message).with_suggestion(suggestion));
            return None;
        }
    };

    let path = format!("{path}.{field}");
    let source = text.strip_prefix('=').unwrap_or(text);
    let condition = match Filter::over(source, &NAMES) {
        Ok(condition) => condition,
        Err(errors) => {
            findings.extend(errors.into_iter().map(|error| {
                RawDiagnostic::new(&path, error.message)
                    .within(error.at)
                    .with_optional_suggestion(error.suggestion)
            }));
            return None;
        }
    };

    for compared in text_comparisons(source, &NAMES) {
        findings.extend(unknown_text(&compared, &path));
    }
    let reads = free_reads(source, &NAMES);
    for read in &reads {
        findings.extend(unknown_name(read, definition, &path));
    }
    Some(SagaInvariant {
        name: spec.name.clone(),
        rule,
        source: source.to_owned(),
        condition,
        reads,
    })
}

/// Reports a comparison with a status, or with the state of a step, that does not exist.
fn unknown_text(compared: &TextComparison, path: &str) -> Option<RawDiagnostic> {
    let names: Vec<&str> = match (compared.name.as_str(), compared.fields.as_slice()) {
        (STATUS, []) => Status::ALL.map(Status::as_str).to_vec(),
        (STEPS, [_, field]) if field == STATE => step_state_names(),
        (_, _) => return None,
    };
    let text = compared.text.as_str();
    if names.contains(&text) {
        return None;
    }

    let label = if compared.name == STATUS {
        "status"
    } else {
        "state of a step"
    };
    let suggestion = did_you_mean(text, names.iter().copied())
        .unwrap_or_else(|| format!("valid: {}", names.join(", ")));
    let finding = RawDiagnostic::new(path, format!("`{text}` is no {label}"));
    Some(finding.with_suggestion(suggestion))
}

/// Reports a step, a property or a variable that does not exist.
fn unknown_name(read: &FreeRead, definition: &Definition, path: &str) -> Option<RawDiagnostic> {
    let first = read.fields.first()?;
    if read.name == VARS {
        let variables = definition.variables();
        if variables.contains(first) {
            return None;
        }
        let near = did_you_mean(first, variables.iter().map(String::as_str));
        let finding = RawDiagnostic::new(path, format!("`vars.{first}` is never set"));
        return Some(finding.with_optional_suggestion(near));
    }
    if read.name != STEPS {
        return None;
    }

    let ids = || definition.steps.iter().map(|step| step.id.as_str());
    if !ids().any(|id| id == first) {
        let finding = RawDiagnostic::new(path, format!("there is no step `{first}`"));
        return Some(finding.with_optional_suggestion(did_you_mean(first, ids())));
    }

    let property = read.fields.get(1)?;
    let properties = || {
        StepProperty::ALL
            .map(StepProperty::as_str)
            .into_iter()
            .chain([STATE])
    };
    if properties().any(|known| known == property) {
        return None;
    }
    let names: Vec<_> = properties().map(|name| format!("`{name}`")).collect();
    let suggestion = did_you_mean(property, properties())
        .unwrap_or_else(|| format!("the properties of a step are {}", names.join(", ")));
    let finding = RawDiagnostic::new(path, format!("`{property}` is no property of a step"));
    Some(finding.with_suggestion(suggestion))
}

#[cfg(test)]
mod tests;
