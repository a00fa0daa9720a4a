//! Which event means what: each type of event may answer only one thing at a time.

use std::collections::BTreeMap;

use orlog_model::EventType;

use super::order::Order;
use crate::form::{Action, Answer, Definition, Step};
use crate::machine::Role;
use crate::problem::Finding;

/// What the events of each type can mean.
pub(super) fn roles(definition: &Definition) -> BTreeMap<EventType, Vec<Role>> {
    let mut roles: BTreeMap<EventType, Vec<Role>> = BTreeMap::new();
    let mut add = |kind: &EventType, role| {
        let known = roles.entry(kind.clone()).or_default();
        if known.last() != Some(&role) {
            known.push(role);
        }
    };
    for (i, step) in definition.steps.iter().enumerate() {
        if is_command(&step.action) {
            step.ok.iter().for_each(|a| add(&a.event, Role::Ok(i)));
            step.fail.iter().for_each(|a| add(&a.event, Role::Fail(i)));
        }
        if let Some(undo) = step.undo.as_ref().filter(|undo| is_command(&undo.action)) {
            undo.ok.iter().for_each(|a| add(&a.event, Role::Undone(i)));
            undo.fail.iter().for_each(|a| add(&a.event, Role::NotUndone(i)));
        }
    }
    roles
}

fn is_command(action: &Action) -> bool {
    matches!(action, Action::Command { .. })
}

/// Events that could be taken for two things, answers that nothing awaits, answers that nothing can deliver.
pub(super) fn check(definition: &Definition, order: Option<&Order>, findings: &mut Vec<Finding>) {
    if definition.start.is_empty() {
        findings
            .push(Finding::new("start", "nothing starts the saga").suggest("name the event that begins it"));
    }
    for (i, step) in definition.steps.iter().enumerate() {
        answers_fit(i, step, findings);
    }
    for (kind, roles) in roles(definition) {
        if definition.start.contains(&kind) {
            let message = format!(
                "{kind} starts the saga, so it cannot answer step `{}` too",
                name(definition, roles[0])
            );
            findings.push(Finding::new(place(definition, roles[0], &kind), message));
        }
        let pairs = roles.iter().enumerate().flat_map(|(n, a)| roles[..n].iter().map(move |b| (*a, *b)));
        for (a, b) in pairs.filter(|(a, b)| confusable(*a, *b, order)).take(1) {
            let message = format!(
                "{kind} could mean two things: {} and {}",
                meaning(definition, b),
                meaning(definition, a)
            );
            let suggestion = "give them events of their own, or put one step after the other";
            findings.push(Finding::new(place(definition, a, &kind), message).suggest(suggestion));
        }
    }
}

fn answers_fit(i: usize, step: &Step, findings: &mut Vec<Finding>) {
    let path = format!("steps[{i}]");
    if is_command(&step.action) && step.ok.is_empty() && !step.fail.is_empty() {
        let message = format!(
            "step `{}` is done when its command is accepted, so nothing waits for {}",
            step.id, step.fail[0].event
        );
        findings.push(
            Finding::new(format!("{path}.fail"), message).suggest("name the event of success with `ok`"),
        );
    }
    if is_command(&step.action) && step.ok.is_empty() && !step.save.is_empty() {
        let message = format!(
            "step `{}` is done when its command is accepted, so there is no event to save from",
            step.id
        );
        findings.push(
            Finding::new(format!("{path}.save"), message).suggest("name the event of success with `ok`"),
        );
    }
    if let Some(kind) = step.ok.iter().find(|ok| step.fail.contains(ok)).map(|a| &a.event) {
        findings.push(Finding::new(format!("{path}.fail"), format!("{kind} means both success and failure")));
    }
    let Some(undo) = &step.undo else { return };
    let answered = !undo.ok.is_empty() || !undo.fail.is_empty();
    if !is_command(&undo.action) && answered {
        let message = "an effect is answered by its outcome, so nothing could deliver an event for this undo";
        findings.push(Finding::new(format!("{path}.undo"), message).suggest("remove `ok` and `fail`"));
    }
    if is_command(&undo.action) && undo.ok.is_empty() && !undo.fail.is_empty() {
        let message = "this undo is done when its command is accepted, so nothing waits for its failure";
        findings.push(
            Finding::new(format!("{path}.undo.fail"), message).suggest("name the event of success with `ok`"),
        );
    }
    if let Some(kind) = undo.ok.iter().find(|ok| undo.fail.contains(ok)).map(|a| &a.event) {
        findings.push(Finding::new(
            format!("{path}.undo.fail"),
            format!("{kind} means both success and failure"),
        ));
    }
}

/// Steps that cannot overlap may share an event, and so may undos, of which one at a time is under way.
fn confusable(a: Role, b: Role, order: Option<&Order>) -> bool {
    match (a, b) {
        (Role::Ok(a) | Role::Fail(a), Role::Ok(b) | Role::Fail(b)) => order.is_some_and(|o| o.overlap(a, b)),
        (Role::Undone(_) | Role::NotUndone(_), Role::Undone(_) | Role::NotUndone(_)) => false,
        (Role::Ok(_) | Role::Fail(_), Role::Undone(_) | Role::NotUndone(_))
        | (Role::Undone(_) | Role::NotUndone(_), Role::Ok(_) | Role::Fail(_)) => true,
    }
}

fn index(role: Role) -> usize {
    let (Role::Ok(i) | Role::Fail(i) | Role::Undone(i) | Role::NotUndone(i)) = role;
    i
}

fn name(definition: &Definition, role: Role) -> &str {
    definition.steps[index(role)].id.as_str()
}

fn meaning(definition: &Definition, role: Role) -> String {
    let step = name(definition, role);
    match role {
        Role::Ok(_) => format!("success of `{step}`"),
        Role::Fail(_) => format!("failure of `{step}`"),
        Role::Undone(_) => format!("`{step}` undone"),
        Role::NotUndone(_) => format!("`{step}` not undone"),
    }
}

fn place(definition: &Definition, role: Role, kind: &EventType) -> String {
    let i = index(role);
    let step = &definition.steps[i];
    let nth = |list: &[Answer]| list.iter().position(|a| a.event == *kind).unwrap_or(0);
    match role {
        Role::Ok(_) => format!("steps[{i}].ok"),
        Role::Fail(_) => format!("steps[{i}].fail[{}]", nth(&step.fail)),
        Role::Undone(_) => format!("steps[{i}].undo.ok"),
        Role::NotUndone(_) => {
            format!("steps[{i}].undo.fail[{}]", step.undo.as_ref().map_or(0, |undo| nth(&undo.fail)))
        }
    }
}
