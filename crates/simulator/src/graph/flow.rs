//! From a definition to nodes and arrows.

use orlog_program::{Action, Definition, Join, Moment, Step};
use serde_json::Value;

use super::icons::Icon;
use crate::step::duration;

/// What a picture is made of: the start, the steps, the end.
pub(super) struct Flow {
    pub(super) nodes: Vec<Node>,
    pub(super) arrows: Vec<Arrow>,
}

/// A thing in the picture.
pub(super) struct Node {
    pub(super) shape: Shape,
    pub(super) icon: Option<Icon>,
    /// The step's id, or the words of the start and the end.
    pub(super) title: String,
    /// What it asks for.
    pub(super) label: String,
    /// Conditions, limits, repetition.
    pub(super) notes: Vec<String>,
    /// What undoes it.
    pub(super) undo: Option<String>,
    /// How many of its predecessors are enough.
    pub(super) join: Option<String>,
    pub(super) pivot: bool,
    /// The step it stands for.
    pub(super) step: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The start and the end.
    Pill,
    /// A step.
    Box,
    /// A decision.
    Diamond,
}

/// From one node to another.
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The condition of a way.
    pub(super) label: Option<String>,
}

impl Flow {
    pub(super) fn of(definition: &Definition) -> Self {
        let starts: Vec<_> = definition.start.iter().map(AsRef::<str>::as_ref).collect();
        let mut nodes = vec![pill(starts.join(" or "))];
        nodes.extend(definition.steps.iter().map(step));
        let end = nodes.len();
        let done = definition.completed.as_ref().map_or("completed", |fact| fact.fact.as_str());
        nodes.push(pill(done.to_owned()));
        let mut arrows = Vec::new();
        for index in 0..definition.steps.len() {
            let before = before(definition, index);
            if before.is_empty() {
                arrows.push(Arrow { from: 0, to: index + 1, label: None });
            }
            arrows.extend(before.into_iter().map(|(from, label)| Arrow {
                from: from + 1,
                to: index + 1,
                label,
            }));
        }
        let last = (0..end).filter(|node| arrows.iter().all(|arrow| arrow.from != *node));
        let ends: Vec<_> = last.map(|from| Arrow { from, to: end, label: None }).collect();
        arrows.extend(ends);
        Self { nodes, arrows }
    }
}

fn pill(title: String) -> Node {
    Node {
        shape: Shape::Pill,
        icon: None,
        title,
        label: String::new(),
        notes: Vec::new(),
        undo: None,
        join: None,
        pivot: false,
        step: None,
    }
}

/// The steps before a step, as positions, with the condition of the way where a decision leads here.
fn before(definition: &Definition, index: usize) -> Vec<(usize, Option<String>)> {
    let step = &definition.steps[index];
    let position = |id: &str| definition.steps.iter().position(|step| step.id.as_str() == id);
    let ways: Vec<_> = definition.steps.iter().enumerate().flat_map(|(at, step)| way(at, step)).collect();
    let label = |from: usize| {
        let labels =
            ways.iter().filter(|(at, to, _)| *at == from && *to == definition.steps[index].id.as_str());
        let labels: Vec<_> = labels.map(|(_, _, label)| label.clone()).collect();
        (!labels.is_empty()).then(|| labels.join(" or "))
    };
    let mut found: Vec<usize> = if let Some(after) = &step.after {
        after.steps.iter().filter_map(|id| position(id.as_str())).collect()
    } else {
        let from: Vec<_> =
            ways.iter().filter(|(_, to, _)| *to == step.id.as_str()).map(|(at, _, _)| *at).collect();
        if from.is_empty() { index.checked_sub(1).into_iter().collect() } else { from }
    };
    if let Action::Job(job) = &step.action {
        found
            .extend(job.prerequisites.iter().chain(&job.dependencies).filter_map(|id| position(id.as_str())));
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|from| (from, label(from))).collect()
}

/// The ways of a decision: from where, to which step, on which condition.
fn way(at: usize, step: &Step) -> Vec<(usize, &str, String)> {
    let Action::Switch(cases) = &step.action else { return Vec::new() };
    let ways = cases.iter().flat_map(|case| {
        let label = case.when.as_deref().map_or("otherwise", plain).to_owned();
        case.then.iter().map(move |to| (at, to.as_str(), label.clone()))
    });
    ways.collect()
}

fn plain(expression: &str) -> &str {
    expression.strip_prefix('=').unwrap_or(expression).trim()
}

fn step(step: &Step) -> Node {
    let (icon, label) = action(&step.action);
    let mut notes = Vec::new();
    notes
        .extend(step.foreach.as_ref().map(|each| format!("for each {} in {}", each.name, plain(&each.list))));
    notes.extend(step.when.as_ref().map(|when| format!("if {}", plain(when))));
    notes.extend(step.timeout.map(|timeout| format!("within {}", duration(timeout))));
    let join = step.after.as_ref().and_then(|after| match after.join {
        Join::All => None,
        Join::AtLeast(1) => Some("any".to_owned()),
        Join::AtLeast(count) => Some(format!("{count} of {}", after.steps.len())),
    });
    let is_switch = matches!(step.action, Action::Switch(_));
    Node {
        shape: if is_switch { Shape::Diamond } else { Shape::Box },
        icon: (!is_switch).then_some(icon),
        title: step.id.to_string(),
        label,
        notes,
        undo: step.undo.as_ref().map(|undo| action(&undo.action).1),
        join,
        pivot: step.pivot,
        step: Some(step.id.to_string()),
    }
}

fn action(action: &Action) -> (Icon, String) {
    match action {
        Action::Command { aggregate_type, name, .. } => (Icon::Command, format!("{aggregate_type}.{name}")),
        Action::Effect { name, .. } => (Icon::Effect, name.to_string()),
        Action::Wait(Moment::For(time)) => (Icon::Wait, format!("for {}", text(time))),
        Action::Wait(Moment::Until(time)) => (Icon::Wait, format!("until {}", text(time))),
        Action::Event { events, .. } => {
            let events: Vec<_> = events.iter().map(AsRef::<str>::as_ref).collect();
            (Icon::Event, events.join(" or "))
        }
        Action::Human(human) => (Icon::Human, text(&human.title)),
        Action::Saga { saga, .. } => (Icon::Saga, saga.to_string()),
        Action::Job(job) => (Icon::Job, format!("{} script", job.kind)),
        Action::Switch(_) => (Icon::Command, String::new()),
    }
}

fn text(template: &Value) -> String {
    match template {
        Value::String(text) => plain(text).to_owned(),
        other => other.to_string(),
    }
}
