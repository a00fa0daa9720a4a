//! Mapping of handlers to steps and its validation, as pure functions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orlog_model::{EffectName, EventType, Name, SagaName};
use orlog_program::{Action, AnswerForm, CompiledDefinition, Program, Step};

/// Saga and steps of each handler, by effect.
pub type HandlerSagaMapping = BTreeMap<EffectName, (SagaName, Vec<Name>)>;

/// Declaration of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandlerDeclaration {
    /// It executes a step.
    Step { ok: EventType, fail: Option<EventType> },
    /// It compensates a step.
    Compensation,
}

/// Mismatch between a step and a handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The effect of a step has no handler.
    #[error("step `{step}` of {saga} uses effect {effect}, which has no handler")]
    NoHandler {
        /// Saga of the step.
        saga: SagaName,
        /// Id of the step.
        step: Name,
        /// Effect of the step.
        effect: EffectName,
    },
    /// A step handler is used as a compensation, or a compensation handler as a step.
    #[error("step `{step}` of {saga} uses {effect} as {role}, but its handler has another role")]
    WrongRole {
        /// Saga of the step.
        saga: SagaName,
        /// Id of the step.
        step: Name,
        /// Effect of the handler.
        effect: EffectName,
        /// Role of the handler in the step: `its action` or `its compensation`.
        role: &'static str,
    },
    /// Step and handler declare different events.
    #[error(
        "step `{step}` of {saga} expects {expected} as `{field}`, but the handler of {effect} returns {declared}"
    )]
    EventMismatch {
        /// Saga of the step.
        saga: SagaName,
        /// Id of the step.
        step: Name,
        /// Effect of the handler.
        effect: EffectName,
        /// `ok` or `fail`.
        field: &'static str,
        /// Event of the step.
        expected: String,
        /// Event of the handler.
        declared: String,
    },
    /// A handler is used by two sagas.
    #[error("handler of {effect} is mapped to two sagas, {first} and {second}")]
    HandlerInTwoSagas {
        /// Effect of the handler.
        effect: EffectName,
        /// First saga.
        first: SagaName,
        /// Second saga.
        second: SagaName,
    },
}

/// All mapping errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingErrors(pub Vec<MappingError>);

impl fmt::Display for MappingErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("handlers and sagas do not match:")?;
        self.0.iter().try_for_each(|misfit| write!(f, "\n  {misfit}"))
    }
}

impl std::error::Error for MappingErrors {}

pub(super) fn build_mapping(
    declared: &BTreeMap<EffectName, HandlerDeclaration>,
    sagas: &[Arc<CompiledDefinition>],
) -> Result<HandlerSagaMapping, MappingErrors> {
    let (mut mapping, mut misfits) = (HandlerSagaMapping::new(), Vec::new());
    for compiled in sagas {
        let saga = &compiled.definition_ref().saga;
        for step in &compiled.definition().steps {
            let compensation = step.compensate.as_ref().map(|compensation| (&compensation.action, true));
            for (action, is_compensation) in std::iter::once((&step.action, false)).chain(compensation) {
                let Action::Effect(effect) = action else { continue };
                let effect = &effect.name;
                misfits.extend(compare(saga, step, effect, is_compensation, declared.get(effect)));
                note(&mut mapping, effect, saga, &step.id, &mut misfits);
            }
        }
    }
    if misfits.is_empty() { Ok(mapping) } else { Err(MappingErrors(misfits)) }
}

fn note(
    mapping: &mut HandlerSagaMapping,
    effect: &EffectName,
    saga: &SagaName,
    step: &Name,
    misfits: &mut Vec<MappingError>,
) {
    let (first, steps) = mapping.entry(effect.clone()).or_insert_with(|| (saga.clone(), Vec::new()));
    if first == saga {
        steps.push(step.clone());
        return;
    }
    let misfit = MappingError::HandlerInTwoSagas {
        effect: effect.clone(),
        first: first.clone(),
        second: saga.clone(),
    };
    if !misfits.contains(&misfit) {
        misfits.push(misfit);
    }
}

fn compare(
    saga: &SagaName,
    step: &Step,
    effect: &EffectName,
    is_compensation: bool,
    declared: Option<&HandlerDeclaration>,
) -> Vec<MappingError> {
    let (saga, id, effect) = (saga.clone(), step.id.clone(), effect.clone());
    match (declared, is_compensation) {
        (None, _) => vec![MappingError::NoHandler { saga, step: id, effect }],
        (Some(HandlerDeclaration::Step { .. }), true) => {
            vec![MappingError::WrongRole { saga, step: id, effect, role: "its compensation" }]
        }
        (Some(HandlerDeclaration::Compensation), false) => {
            vec![MappingError::WrongRole { saga, step: id, effect, role: "its action" }]
        }
        (Some(HandlerDeclaration::Compensation), true) => Vec::new(),
        (Some(HandlerDeclaration::Step { ok, fail }), false) => {
            let sides = [("ok", &step.ok, Some(ok)), ("fail", &step.fail, fail.as_ref())];
            let other = sides.into_iter().filter(|(_, expected, declared)| !agree(expected, *declared));
            other
                .map(|(field, expected, declared)| MappingError::EventMismatch {
                    saga: saga.clone(),
                    step: id.clone(),
                    effect: effect.clone(),
                    field,
                    expected: listed(expected.iter().map(|matcher| &matcher.event)),
                    declared: listed(declared),
                })
                .collect()
        }
    }
}

/// Returns whether the step expects exactly the events that the handler returns.
fn agree(expected: &[AnswerForm], declared: Option<&EventType>) -> bool {
    let kinds = expected.iter().map(|matcher| &matcher.event);
    kinds.clone().all(|kind| Some(kind) == declared)
        && declared.is_none_or(|kind| kinds.clone().any(|k| k == kind))
}

fn listed<'e>(events: impl IntoIterator<Item = &'e EventType>) -> String {
    let names: Vec<_> = events.into_iter().map(ToString::to_string).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}
