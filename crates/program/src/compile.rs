//! From the intermediate form to a program: every check that can be made before the first event, all findings at once.

mod events;
mod order;
mod parts;

use orlog_model::{CorrelationId, EffectName, Event, EventType, ProgramRef};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::form::{Action, Correlate, DEFAULT_EARLY, Definition};
use crate::machine::{self, Saga};
use crate::problem::{Finding, Problem};
use crate::program::{Context, Fault, Manifest, Program, Reaction, Stimulus, Trigger};

/// A definition that runs.
#[derive(Debug)]
pub struct Compiled {
    definition: Definition,
    source: String,
    reference: ProgramRef,
    manifest: Manifest,
    saga: Saga,
}

/// Compiles a definition that has no text of its own; its source is its canonical JSON.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(definition: Definition) -> Result<Compiled, Vec<Problem>> {
    let file = format!("saga {}", definition.saga);
    let source = serde_json::to_string(&definition).expect("a definition is plain data with text keys");
    with_source(definition, source).map_err(|f| f.into_iter().map(|f| f.without_text(&file)).collect())
}

/// Compiles a definition that was read from `source`.
pub(crate) fn with_source(definition: Definition, source: String) -> Result<Compiled, Vec<Finding>> {
    let saga = parts::assemble(&definition)?;
    let hash = Sha256::digest(source.as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    let reference = ProgramRef { saga: definition.saga.clone(), version: definition.version, hash: short };
    let manifest = Manifest {
        triggers: triggers(&definition),
        effects: effects(&definition),
        early: definition.early.unwrap_or(DEFAULT_EARLY),
        ..Manifest::default()
    };
    Ok(Compiled { definition, source, reference, manifest, saga })
}

impl Compiled {
    /// The intermediate form.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The text it was compiled from; loading it again gives the same program.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl Program for Compiled {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        let path = match &self.definition.correlate {
            Correlate::Envelope => None,
            Correlate::Field(path) => Some(path),
            Correlate::ByType(paths) => paths.get(&event.kind),
        };
        let stated = path.and_then(|path| field(&event.data, path).map(|value| (path, value)));
        match (stated, &event.correlation) {
            (Some((path, value)), _) => identifier(event, path, value),
            (None, Some(envelope)) => Ok(envelope.clone()),
            (None, None) => Err(Fault::Schema(match path {
                Some(path) => {
                    format!("{} has no `{path}`, which says to which instance it belongs", event.kind)
                }
                None => format!("{} carries no correlation id", event.kind),
            })),
        }
    }

    fn compiled(&self) -> Option<&Compiled> {
        Some(self)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        machine::apply(&self.saga, state, stimulus, context)
    }

    /// `phase` (a status), `steps` (`id`, `state`, `until`) in the order of the definition, `vars`, and `failure`
    /// (`code`, `message`, `step`), null while there is none.
    fn show(&self, state: &[u8]) -> Option<Value> {
        machine::show(&self.saga, state)
    }
}

fn field<'a>(data: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(data, |value, field| value.get(field)).filter(|value| !value.is_null())
}

fn identifier(event: &Event, path: &str, value: &Value) -> Result<CorrelationId, Fault> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        other => {
            let kind = crate::expression::kind_of(other);
            return Err(Fault::Schema(format!(
                "`{path}` of {} must be a text or a whole number, it is {kind}",
                event.kind
            )));
        }
    };
    CorrelationId::new(text).map_err(|error| Fault::Schema(format!("`{path}` of {}: {error}", event.kind)))
}

/// The events it takes: those that start it, and the answers to commands. An effect is answered by its outcome.
fn triggers(definition: &Definition) -> Vec<Trigger> {
    let mut triggers: Vec<_> =
        definition.start.iter().map(|kind| Trigger { kind: kind.clone(), starts: true }).collect();
    triggers.extend(answers(definition).map(|kind| Trigger { kind: kind.clone(), starts: false }));
    triggers.sort_by(|a, b| (&a.kind, b.starts).cmp(&(&b.kind, a.starts)));
    triggers.dedup_by(|later, first| later.kind == first.kind);
    triggers
}

fn answers(definition: &Definition) -> impl Iterator<Item = &EventType> {
    let is_command = |action: &Action| matches!(action, Action::Command { .. });
    definition.steps.iter().flat_map(move |step| {
        let step_answers =
            step.ok.iter().chain(&step.fail).map(|a| &a.event).filter(move |_| is_command(&step.action));
        let undo = step.undo.iter().filter(move |undo| is_command(&undo.action));
        step_answers.chain(undo.flat_map(|undo| undo.ok.iter().chain(&undo.fail)).map(|a| &a.event))
    })
}

fn effects(definition: &Definition) -> Vec<EffectName> {
    let actions = definition
        .steps
        .iter()
        .flat_map(|step| std::iter::once(&step.action).chain(step.undo.as_ref().map(|undo| &undo.action)));
    let mut names: Vec<_> = actions
        .filter_map(|action| match action {
            Action::Effect { name, .. } => Some(name.clone()),
            Action::Command { .. }
            | Action::Wait(_)
            | Action::Event { .. }
            | Action::Human(_)
            | Action::Saga { .. }
            | Action::Job(_)
            | Action::Switch(_) => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}
