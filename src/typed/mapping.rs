//! Which handler serves which steps, and everything that does not fit; plain functions of values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orlog_model::{EffectName, EventType, Name, SagaName};
use orlog_program::{Action, AnswerForm, Compiled, Program, Step};

/// By handler's effect, the saga and the steps it serves.
pub type Mapping = BTreeMap<EffectName, (SagaName, Vec<Name>)>;

/// What a handler says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// It does a step.
    Step { ok: EventType, fail: Option<EventType> },
    /// It undoes one.
    Undo,
}

/// A step and a handler that do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Nobody performs what a step asks for.
    #[error("step `{step}` of {saga} asks for {effect}, which no handler performs")]
    NoHandler {
        /// Of which saga.
        saga: SagaName,
        /// Which step.
        step: Name,
        /// What it asks for.
        effect: EffectName,
    },
    /// A handler of steps stands in an undo, or a compensation in a step.
    #[error("step `{step}` of {saga} uses {effect} {place}, for which it is not made")]
    WrongPlace {
        /// Of which saga.
        saga: SagaName,
        /// Which step.
        step: Name,
        /// Which handler.
        effect: EffectName,
        /// `to do its work` or `as its undo`.
        place: &'static str,
    },
    /// Step and handler name other events.
    #[error(
        "step `{step}` of {saga} expects {expected} as `{field}`, the handler of {effect} answers with {declared}"
    )]
    OtherEvents {
        /// Of which saga.
        saga: SagaName,
        /// Which step.
        step: Name,
        /// Which handler.
        effect: EffectName,
        /// `ok` or `fail`.
        field: &'static str,
        /// What the step says.
        expected: String,
        /// What the handler says.
        declared: String,
    },
    /// A handler serves two sagas.
    #[error("the handler of {effect} serves two sagas, {first} and {second}")]
    TwoSagas {
        /// Which handler.
        effect: EffectName,
        /// One saga.
        first: SagaName,
        /// The other.
        second: SagaName,
    },
}

/// Everything that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfits(pub Vec<Misfit>);

impl fmt::Display for Misfits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("handlers and sagas do not fit:")?;
        self.0.iter().try_for_each(|misfit| write!(f, "\n  {misfit}"))
    }
}

impl std::error::Error for Misfits {}

pub(super) fn map(
    declared: &BTreeMap<EffectName, Declared>,
    sagas: &[Arc<Compiled>],
) -> Result<Mapping, Misfits> {
    let (mut mapping, mut misfits) = (Mapping::new(), Vec::new());
    for compiled in sagas {
        let saga = &compiled.reference().saga;
        for step in &compiled.definition().steps {
            let undo = step.undo.as_ref().map(|undo| (&undo.action, true));
            for (action, is_undo) in std::iter::once((&step.action, false)).chain(undo) {
                let Action::Effect { name: effect, .. } = action else { continue };
                misfits.extend(compare(saga, step, effect, is_undo, declared.get(effect)));
                note(&mut mapping, effect, saga, &step.id, &mut misfits);
            }
        }
    }
    if misfits.is_empty() { Ok(mapping) } else { Err(Misfits(misfits)) }
}

fn note(mapping: &mut Mapping, effect: &EffectName, saga: &SagaName, step: &Name, misfits: &mut Vec<Misfit>) {
    let (first, steps) = mapping.entry(effect.clone()).or_insert_with(|| (saga.clone(), Vec::new()));
    if first == saga {
        steps.push(step.clone());
        return;
    }
    let misfit = Misfit::TwoSagas { effect: effect.clone(), first: first.clone(), second: saga.clone() };
    if !misfits.contains(&misfit) {
        misfits.push(misfit);
    }
}

fn compare(
    saga: &SagaName,
    step: &Step,
    effect: &EffectName,
    is_undo: bool,
    declared: Option<&Declared>,
) -> Vec<Misfit> {
    let (saga, id, effect) = (saga.clone(), step.id.clone(), effect.clone());
    match (declared, is_undo) {
        (None, _) => vec![Misfit::NoHandler { saga, step: id, effect }],
        (Some(Declared::Step { .. }), true) => {
            vec![Misfit::WrongPlace { saga, step: id, effect, place: "as its undo" }]
        }
        (Some(Declared::Undo), false) => {
            vec![Misfit::WrongPlace { saga, step: id, effect, place: "to do its work" }]
        }
        (Some(Declared::Undo), true) => Vec::new(),
        (Some(Declared::Step { ok, fail }), false) => {
            let sides = [("ok", &step.ok, Some(ok)), ("fail", &step.fail, fail.as_ref())];
            let other = sides.into_iter().filter(|(_, expected, declared)| !agree(expected, *declared));
            other
                .map(|(field, expected, declared)| Misfit::OtherEvents {
                    saga: saga.clone(),
                    step: id.clone(),
                    effect: effect.clone(),
                    field,
                    expected: listed(expected.iter().map(|answer| &answer.event)),
                    declared: listed(declared),
                })
                .collect()
        }
    }
}

/// The step awaits what the handler answers with, and nothing else.
fn agree(expected: &[AnswerForm], declared: Option<&EventType>) -> bool {
    let kinds = expected.iter().map(|answer| &answer.event);
    kinds.clone().all(|kind| Some(kind) == declared)
        && declared.is_none_or(|kind| kinds.clone().any(|k| k == kind))
}

fn listed<'e>(events: impl IntoIterator<Item = &'e EventType>) -> String {
    let names: Vec<_> = events.into_iter().map(ToString::to_string).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}
