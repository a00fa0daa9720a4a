//! Conversion of a definition to nodes and edges.

use orlog_program::{
    Action, AfterFailure, AfterHandler, Definition, Join, RepeatAction, Step, TimeLimit, TimeSpec,
};
use serde_json::Value;

use super::icons::Icon;
use crate::step::duration;

/// Graph of a definition: start, steps, end.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// Edges from the ends of loops to their first steps, and from restarts to the start.
    pub(super) back_edges: Vec<Edge>,
}

/// Node of the graph.
pub(super) struct Node {
    pub(super) shape: Shape,
    pub(super) icon: Option<Icon>,
    /// Id of the step, or the label of the start or end node.
    pub(super) title: String,
    /// Label of the action.
    pub(super) label: String,
    /// Conditions, limits and iteration.
    pub(super) notes: Vec<String>,
    /// Compensation of the step.
    pub(super) compensation: Option<String>,
    /// Required number of predecessors.
    pub(super) join: Option<String>,
    pub(super) pivot: bool,
    /// Step that the node represents.
    pub(super) step: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Start or end.
    Pill,
    /// Step.
    Box,
    /// Switch.
    Diamond,
}

/// Edge between two nodes.
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Condition of the case.
    pub(super) label: Option<String>,
}

impl Graph {
    pub(super) fn of(definition: &Definition) -> Self {
        let starts: Vec<_> = definition.start.iter().map(AsRef::<str>::as_ref).collect();
        let mut nodes = vec![pill(starts.join(" or "))];
        // The start is node 0, so that step n is node n + 1.
        nodes.extend(definition.steps.iter().map(step));

        let end = nodes.len();
        let end_label = definition
            .completed
            .as_ref()
            .map_or("completed", |fact| fact.fact.as_str());
        nodes.push(pill(end_label.to_owned()));

        let mut edges = Vec::new();
        for index in 0..definition.steps.len() {
            let before = before(definition, index);

            // A step without a predecessor starts with the instance.
            if before.is_empty() {
                edges.push(Edge {
                    from: 0,
                    to: index + 1,
                    label: None,
                });
            }
            edges.extend(before.into_iter().map(|(from, label)| Edge {
                from: from + 1,
                to: index + 1,
                label,
            }));
        }

        // A restart leads back to the start, not to the end.
        let label = ends(definition);
        for from in 0..end {
            let step = from
                .checked_sub(1)
                .map(|step| &definition.steps[step].action);
            let is_restart = matches!(step, Some(Action::Restart(_)));
            // From the edges and not from the text: a step without successors can be at any place.
            // Steps that follow its failure are none.
            let is_last = edges
                .iter()
                .all(|edge| edge.from != from || follows_failure(definition, edge));
            if is_last && !is_restart {
                edges.push(Edge {
                    from,
                    to: end,
                    label: label.clone(),
                });
            }
        }

        Self {
            nodes,
            edges,
            back_edges: back_edges(definition),
        }
    }
}

/// Returns whether an edge leads from a step to one that its failure handlers select.
fn follows_failure(definition: &Definition, edge: &Edge) -> bool {
    // The start is node 0, so that step n is node n + 1.
    let step_of = |node: usize| definition.steps.get(node.checked_sub(1)?);
    let Some(source) = step_of(edge.from) else {
        return false;
    };
    let Some(target) = step_of(edge.to) else {
        return false;
    };

    source
        .failure_handlers()
        .any(|(_, handler)| handler.steps().contains(&target.id))
}

/// Returns the events that complete an instance which stays active.
fn ends(definition: &Definition) -> Option<String> {
    let events: Vec<_> = definition
        .on
        .iter()
        .filter(|on| on.then == AfterHandler::Complete)
        .flat_map(|on| &on.event)
        .map(AsRef::<str>::as_ref)
        .collect();
    (definition.keep_active && !events.is_empty()).then(|| events.join(" or "))
}

fn pill(title: String) -> Node {
    Node {
        shape: Shape::Pill,
        icon: None,
        title,
        label: String::new(),
        notes: Vec::new(),
        compensation: None,
        join: None,
        pivot: false,
        step: None,
    }
}

/// Returns the edges from the end of each loop to its first steps, and from restarts to the start.
fn back_edges(definition: &Definition) -> Vec<Edge> {
    let position = |id: &str| {
        definition
            .steps
            .iter()
            .position(|step| step.id.as_str() == id)
    };

    let mut edges = Vec::new();
    for (end, step) in definition.steps.iter().enumerate() {
        if let Action::Restart(_) = step.action {
            edges.push(Edge {
                from: end + 1,
                to: 0,
                label: None,
            });
        }

        let Action::Repeat(repeat) = &step.action else {
            continue;
        };

        let firsts = repeat
            .from
            .iter()
            .filter_map(|first| position(first.as_str()));
        edges.extend(firsts.map(|first| Edge {
            from: end + 1,
            to: first + 1,
            label: condition(repeat),
        }));
    }
    edges
}

/// Returns the condition of another round.
fn condition(repeat: &RepeatAction) -> Option<String> {
    repeat
        .condition()
        .map(|(keyword, condition)| format!("{keyword} {}", expression_text(condition)))
}

/// Returns the positions of the predecessors of a step, each with the condition of the case if it
/// is a switch, or the failure after which the step follows.
fn before(definition: &Definition, index: usize) -> Vec<(usize, Option<String>)> {
    let step = &definition.steps[index];
    let position = |id: &str| {
        definition
            .steps
            .iter()
            .position(|step| step.id.as_str() == id)
    };

    let edges: Vec<_> = definition
        .steps
        .iter()
        .enumerate()
        .flat_map(|(at, step)| selected_edges(at, step))
        .collect();
    let label = |from: usize| {
        let labels: Vec<_> = edges
            .iter()
            .filter(|(at, to, _)| *at == from && *to == step.id.as_str())
            .map(|(_, _, label)| label.clone())
            .collect();
        (!labels.is_empty()).then(|| labels.join(" or "))
    };

    // The rules of the compiler: `after`, else the steps that select this one, else the previous
    // step.
    let mut found: Vec<usize> = if let Some(after) = &step.after {
        after
            .steps
            .iter()
            .filter_map(|id| position(id.as_str()))
            .collect()
    } else {
        let from: Vec<_> = edges
            .iter()
            .filter(|(_, to, _)| *to == step.id.as_str())
            .map(|(at, _, _)| *at)
            .collect();
        if from.is_empty() {
            index.checked_sub(1).into_iter().collect()
        } else {
            from
        }
    };

    if let Action::Job(job) = &step.action {
        found.extend(
            job.prerequisites
                .iter()
                .chain(&job.dependencies)
                .filter_map(|id| position(id.as_str())),
        );
    }

    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|from| (from, label(from))).collect()
}

/// Returns the steps that a step selects, the cases of a switch and the steps after a failure:
/// source, target and condition.
fn selected_edges(at: usize, step: &Step) -> Vec<(usize, &str, String)> {
    let mut edges = Vec::new();
    if let Action::Switch(cases) = &step.action {
        for case in cases {
            let label = case.when.as_deref().map_or("otherwise", expression_text);
            for to in &case.then {
                edges.push((at, to.as_str(), label.to_owned()));
            }
        }
    }

    for (field, handler) in step.failure_handlers() {
        for to in handler.steps() {
            edges.push((at, to.as_str(), failure_text(field).to_owned()));
        }
    }
    edges
}

/// Returns the field of a failure handler as a text.
fn failure_text(field: &str) -> &'static str {
    match field {
        "on_timeout" => "on timeout",
        _ => "on failure",
    }
}

fn expression_text(expression: &str) -> &str {
    expression.strip_prefix('=').unwrap_or(expression).trim()
}

fn step(step: &Step) -> Node {
    let (icon, label) = action(&step.action);
    let mut notes = Vec::new();
    notes.extend(
        step.foreach
            .as_ref()
            .map(|each| format!("for each {} in {}", each.name, expression_text(&each.list))),
    );
    notes.extend(
        step.when
            .as_ref()
            .map(|when| format!("if {}", expression_text(when))),
    );

    if let Action::Repeat(repeat) = &step.action {
        notes.extend(condition(repeat));
        notes.push(format!("at most {} rounds", repeat.max));
    }
    notes.extend(step.timeout.as_ref().map(|timeout| match timeout {
        TimeLimit::Constant(timeout) => format!("within {}", duration(*timeout)),
        TimeLimit::Computed(expression) => format!("within {}", expression_text(expression)),
    }));
    notes.extend(step.remind.as_ref().map(|remind| {
        let every = duration(remind.every);
        let (_, label) = action(&remind.action);
        format!("every {every}, at most {} times: {label}", remind.max)
    }));

    for (field, handler) in step.failure_handlers() {
        let text = match &handler.then {
            AfterFailure::Continue => "continue",
            AfterFailure::Fail => "fail",
            // An edge shows it.
            AfterFailure::Steps(_) => continue,
        };
        notes.push(format!("{}: {text}", failure_text(field)));
    }

    let join = step.after.as_ref().and_then(|after| match after.join {
        Join::All => None,
        Join::AtLeast(1) => Some("any".to_owned()),
        Join::AtLeast(count) => Some(format!("{count} of {}", after.steps.len())),
    });

    if let Action::Event(event) = &step.action {
        notes.extend(event.count.map(|count| format!("{count} events")));
        notes.extend(
            event
                .until
                .as_ref()
                .map(|until| format!("until {}", expression_text(until))),
        );
    }

    let is_switch = matches!(step.action, Action::Switch(_));
    Node {
        shape: if is_switch {
            Shape::Diamond
        } else {
            Shape::Box
        },
        icon: icon.filter(|_| !is_switch),
        title: step.id.to_string(),
        label,
        notes,
        compensation: step
            .compensate
            .as_ref()
            .map(|compensation| action(&compensation.action).1),
        join,
        pivot: step.pivot,
        step: Some(step.id.to_string()),
    }
}

fn action(action: &Action) -> (Option<Icon>, String) {
    let (icon, label) = match action {
        Action::Command(command) => (
            Icon::Command,
            format!("{}.{}", command.aggregate_type, command.name),
        ),
        Action::Effect(effect) => (Icon::Effect, effect.name.to_string()),
        Action::Wait(TimeSpec::For(time)) => (Icon::Wait, format!("for {}", text(time))),
        Action::Wait(TimeSpec::Until(time)) => (Icon::Wait, format!("until {}", text(time))),
        Action::Event(event) => {
            let events: Vec<_> = event.events.iter().map(AsRef::<str>::as_ref).collect();
            (Icon::Event, events.join(" or "))
        }
        Action::Human(human) => (Icon::Human, text(&human.title)),
        Action::Saga(child) => (Icon::Saga, child.saga.to_string()),
        Action::Job(job) => (Icon::Job, format!("{} script", job.kind)),
        Action::Switch(_) => (Icon::Command, String::new()),
        Action::Repeat(_) => return (None, "loop".to_owned()),
        Action::Restart(restart) => return (None, format!("restart as new by {}", restart.event)),
    };
    (Some(icon), label)
}

fn text(template: &Value) -> String {
    match template {
        Value::String(text) => expression_text(text).to_owned(),
        other => other.to_string(),
    }
}
