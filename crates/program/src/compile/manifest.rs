//! What a definition consumes and what it may ask for.

use orlog_model::{EffectName, EventType, SagaName};

use crate::contract::{Manifest, Trigger};
use crate::definition::{Action, DEFAULT_EARLY, Definition};

pub(super) fn of(definition: &Definition, answers: &[EventType]) -> Manifest {
    Manifest {
        triggers: triggers(definition, answers),
        effects: sorted(actions(definition).filter_map(effect)),
        commands: sorted(actions(definition).filter_map(command)),
        sagas: sorted(actions(definition).filter_map(saga)),
        early: definition.early.unwrap_or(DEFAULT_EARLY),
    }
}

/// The events it takes: those that start it, those that answer steps and undos, those that handlers wait for.
fn triggers(definition: &Definition, answers: &[EventType]) -> Vec<Trigger> {
    let trigger = |starts| move |kind: &EventType| Trigger { kind: kind.clone(), starts };
    let handled = definition.on.iter().flat_map(|handler| &handler.event);
    let others = answers.iter().chain(handled).map(trigger(false));
    let mut triggers: Vec<_> = definition.start.iter().map(trigger(true)).chain(others).collect();
    triggers.sort_by(|a, b| (&a.kind, b.starts).cmp(&(&b.kind, a.starts)));
    triggers.dedup_by(|later, first| later.kind == first.kind);
    triggers
}

fn actions(definition: &Definition) -> impl Iterator<Item = &Action> {
    let steps = definition.steps.iter();
    let steps =
        steps.flat_map(|s| std::iter::once(&s.action).chain(s.undo.as_ref().map(|undo| &undo.action)));
    steps.chain(definition.on.iter().flat_map(|handler| &handler.actions))
}

fn sorted<T: Ord>(names: impl Iterator<Item = T>) -> Vec<T> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    names
}

fn effect(action: &Action) -> Option<EffectName> {
    match action {
        Action::Effect { name, .. } => Some(name.clone()),
        Action::Job(job) => EffectName::new(format!("job.{}", job.kind)).ok(),
        Action::Command { .. }
        | Action::Wait(_)
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Switch(_) => None,
    }
}

fn command(action: &Action) -> Option<String> {
    let Action::Command { aggregate_type, name, .. } = action else { return None };
    Some(format!("{aggregate_type}.{name}"))
}

fn saga(action: &Action) -> Option<SagaName> {
    let Action::Saga { saga, .. } = action else { return None };
    Some(saga.clone())
}
