//! Migration of the state that only some steps have: elements, job results, child sagas,
//! escalations, events, reminders.

use orlog_model::Name;

use crate::contract::FailureCause;
use crate::machine::compiled::{COMPENSATE, REMIND};
use crate::machine::execution::Execution;
use crate::machine::state::{CollectedEvents, Reminders, State, StepIndex};
use crate::steps::CompiledActionKind;

/// Copies the state of the step `from`, which has these positions in the old and the new
/// definition, under its new id.
pub(in crate::machine) fn migrate_extra(
    old: &State,
    from: &Name,
    to: &Name,
    index: usize,
    target: usize,
    new: &mut State,
) {
    for collected in &old.run.events.collected {
        let tag = renamed(&collected.tag, from, to);
        new.run
            .events
            .collected
            .extend(tag.map(|tag| CollectedEvents {
                tag,
                ..collected.clone()
            }));
    }

    for reminders in &old.run.events.reminders {
        let tag = renamed(&reminders.tag, from, to);
        new.run.events.reminders.extend(tag.map(|tag| Reminders {
            tag,
            ..reminders.clone()
        }));
    }

    let Some(extra) = &old.extra else { return };

    if let Some(elements) = old.elements(index) {
        new.set_elements(target, elements.list.clone());
        for (place, entry) in elements.entries.iter().enumerate() {
            *new.entry_mut(StepIndex::element(target, place)) = *entry;
        }
    }

    if let Some(result) = extra.results.get(from.as_str()) {
        new.extra_mut()
            .results
            .insert(to.to_string(), result.clone());
    }

    if let Some(failure) = old.failure(index) {
        let cause = FailureCause {
            code: failure.code.clone(),
            message: failure.message.clone(),
            step: to.to_string(),
        };
        new.add_failure(target, &cause, failure.handled_by, failure.own_vars.clone());
    }

    for (tag, child) in &extra.children {
        if let Some(tag) = renamed(tag, from, to) {
            new.extra_mut().children.push((tag, child.clone()));
        }
    }

    for (tag, round) in &extra.rounds {
        if let Some(tag) = renamed(tag, from, to) {
            new.extra_mut().rounds.push((tag, *round));
        }
    }

    for (tag, due) in &extra.escalations {
        if let Some(tag) = renamed(tag, from, to) {
            new.extra_mut().escalations.push((tag, *due));
        }
    }
}

/// Returns the tag of a step, an element, a compensation, the reminders of a step or one of them with
/// the new step name.
pub(in crate::machine) fn renamed(tag: &Name, from: &Name, to: &Name) -> Option<Name> {
    let text = tag.as_str();
    let mut prefixes = [COMPENSATE, REMIND].into_iter();
    let prefix = prefixes
        .find(|prefix| text.starts_with(prefix))
        .unwrap_or_default();

    let element = text[prefix.len()..].strip_prefix(from.as_str())?;
    // The step `pay` must not match the tags of the step `payout`.
    let is_tag_of_step = element.is_empty() || element.starts_with(['[', ':']);
    is_tag_of_step.then(|| {
        Name::new(format!("{prefix}{to}{element}"))
            .expect("step ids reserve space for the prefix and the number")
    })
}

/// Drops the escalations of tasks for which the new version has none.
pub(in crate::machine) fn migrate_escalations(run: &mut Execution<'_>) {
    let Some(extra) = &run.state.extra else {
        return;
    };
    let escalates = |tag: &Name| {
        let Some((at, is_compensation)) = run.step_of_tag(tag.as_str()) else {
            return false;
        };
        matches!(
            &run.action_of(at, is_compensation).kind,
            CompiledActionKind::Human(human) if human.escalate.is_some()
        )
    };
    let kept: Vec<_> = extra
        .escalations
        .iter()
        .filter(|(tag, _)| escalates(tag))
        .cloned()
        .collect();

    if kept.len() < extra.escalations.len() {
        run.state.extra_mut().escalations = kept;
    }
}
