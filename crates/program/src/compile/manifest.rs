//! Manifest: the events that a definition consumes and the work that it may request.

use orlog_model::{EffectName, EventType, Name, SagaName};
use serde_json::Value;

use crate::contract::{EventSubscription, Manifest};
use crate::definition::Definition;
use crate::steps::Action;

pub(super) fn of(definition: &Definition, result_events: &[EventType]) -> Manifest {
    Manifest {
        subscriptions: subscriptions(definition, result_events),
        effects: sorted(actions(definition).filter_map(effect)),
        commands: sorted(actions(definition).filter_map(command)),
        sagas: sorted(actions(definition).filter_map(saga)),
        early_event_ttl: definition.early_event_ttl(),
        indexed: sorted(
            definition
                .index
                .iter()
                .cloned()
                .chain(reference_parts(definition)),
        ),
        ..Manifest::default()
    }
}

/// Returns the indexed names of the parts of the business reference: `reference.order`.
fn reference_parts(definition: &Definition) -> impl Iterator<Item = Name> {
    let parts = definition
        .reference
        .iter()
        .filter_map(Value::as_object)
        .flatten();
    parts.filter_map(|(part, _)| Name::new(format!("reference.{part}")).ok())
}

/// Returns the consumed events: start events, result events of steps and compensations, and events
/// of handlers.
fn subscriptions(definition: &Definition, result_events: &[EventType]) -> Vec<EventSubscription> {
    let subscription = |starts| {
        move |kind: &EventType| EventSubscription {
            kind: kind.clone(),
            starts,
        }
    };

    let handled = definition.on.iter().flat_map(|handler| &handler.event);
    let others = result_events.iter().chain(handled).map(subscription(false));
    let mut subscriptions: Vec<_> = definition
        .start
        .iter()
        .map(subscription(true))
        .chain(others)
        .collect();

    // A type that starts an instance and is awaited later counts as a start.
    subscriptions.sort_by(|a, b| (&a.kind, b.starts).cmp(&(&b.kind, a.starts)));
    subscriptions.dedup_by(|later, first| later.kind == first.kind);
    subscriptions
}

fn actions(definition: &Definition) -> impl Iterator<Item = &Action> {
    let steps = definition.steps.iter();
    let steps = steps.flat_map(|s| {
        let compensation = s
            .compensate
            .as_ref()
            .map(|compensation| &compensation.action);
        let reminder = s.remind.as_ref().map(|remind| &remind.action);
        std::iter::once(&s.action)
            .chain(compensation)
            .chain(reminder)
    });
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
        Action::Effect(effect) => Some(effect.name.clone()),
        // Never `None`: an invalid type is rejected before the manifest is built.
        Action::Job(job) => job.effect().ok(),
        _ => None,
    }
}

fn command(action: &Action) -> Option<String> {
    let Action::Command(command) = action else {
        return None;
    };
    Some(format!("{}.{}", command.aggregate_type, command.name))
}

fn saga(action: &Action) -> Option<SagaName> {
    let Action::Saga(child) = action else {
        return None;
    };
    Some(child.saga.clone())
}
