//! Steps of a workflow in the form that nodes draw: a definition without expressions. It is never
//! executed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlog_model::{DefinitionRef, EventType, Name, format_duration};
use orlog_program::{
    Action, CompensationSpec, CorrelationSpec, Definition, EffectAction, EventAction, FactSpec,
    Foreach, Join, OnMaxRounds, RepeatAction, Step, StepDependencies, SwitchCase, TimeLimit,
    TimeSpec,
};
use serde_json::{Map, Value};

use super::compiled::TaskEffects;
use crate::graph::{Graph, StepId, StepKind};

/// Returns the drawing of a workflow.
pub(super) fn draw(
    graph: &Graph,
    reference: &DefinitionRef,
    start: &EventType,
    completed: &EventType,
    effects: &BTreeMap<StepId, TaskEffects>,
) -> Definition {
    let mut drawing = Drawing {
        graph,
        effects,
        steps: Vec::new(),
    };

    drawing.body(0, &BTreeSet::new(), None);

    Definition {
        saga: reference.saga.clone(),
        version: reference.version,
        start: vec![start.clone()],
        correlate: CorrelationSpec::Envelope,
        early_event_ttl: None,
        events: BTreeMap::new(),
        env: Map::new(),
        vars: Map::new(),
        reference: None,
        index: Vec::new(),
        timeout: None,
        on: Vec::new(),
        keep_active: false,
        steps: drawing.steps,
        publish: None,
        completed: Some(FactSpec {
            fact: completed.clone(),
            data: Value::Null,
        }),
        failed: None,
        migrations: Vec::new(),
        invariants: Vec::new(),
    }
}

struct Drawing<'a> {
    graph: &'a Graph,
    effects: &'a BTreeMap<StepId, TaskEffects>,
    steps: Vec<Step>,
}

impl Drawing<'_> {
    /// Draws a body after these steps; returns the steps at its end. `list` is the list that the
    /// body is executed for.
    fn body(
        &mut self,
        body: usize,
        after: &BTreeSet<Name>,
        list: Option<&Foreach>,
    ) -> BTreeSet<Name> {
        let mut ends = after.clone();
        for (index, found) in self.graph.bodies[body].steps.iter().enumerate() {
            let name = name(&found.name);
            let own = BTreeSet::from([name.clone()]);

            match &found.kind {
                StepKind::Task(policy) => {
                    let effects = &self.effects[&StepId { body, index }];
                    let mut drawn = step(name, effect(&effects.task.name), &ends, list);
                    drawn.timeout = policy.timeout_ms.map(limit);
                    // A drawing has one compensation. The usual one takes precedence.
                    let undo = effects.undo.as_ref().or(effects.undo_unknown.as_ref());
                    drawn.compensate = undo.map(|undo| compensation(effect(&undo.name)));
                    self.steps.push(drawn);
                    ends = own;
                }
                StepKind::Delay { ms } => {
                    let time = Value::from(format_duration(Duration::from_millis(*ms)));
                    self.add(name, Action::Wait(TimeSpec::For(time)), &ends, list);
                    ends = own;
                }
                StepKind::Signal { timeout_ms } => {
                    let event = EventType::new(&*found.name).expect("names of signals are checked");
                    let action = EventAction {
                        events: vec![event],
                        when: None,
                        count: None,
                        until: None,
                    };
                    let mut drawn = step(name, Action::Event(action), &ends, list);
                    drawn.timeout = timeout_ms.map(limit);
                    self.steps.push(drawn);
                    ends = own;
                }
                StepKind::Fork { branches } => {
                    // Each branch starts after the same steps.
                    ends = branches
                        .iter()
                        .flat_map(|branch| self.body(*branch, &ends, list))
                        .collect();
                }
                StepKind::When { then, otherwise } => {
                    ends = self.when(name, *then, *otherwise, &ends, list);
                }
                StepKind::Each { body } => {
                    let each = Foreach {
                        list: found.name.clone(),
                        name: "element".to_owned(),
                        max_concurrency: None,
                    };
                    ends = self.body(*body, &ends, Some(&each));
                }
                StepKind::Repeat { body, max_rounds } => {
                    let first = self.firsts(*body);
                    ends = self.body(*body, &ends, list);
                    let repeat = RepeatAction {
                        from: first,
                        while_holds: Some(found.name.clone()),
                        until_holds: None,
                        max: *max_rounds,
                        on_max: OnMaxRounds::Fail,
                    };
                    self.add(name, Action::Repeat(repeat), &ends, list);
                    ends = own;
                }
                StepKind::Child { body, .. } => ends = self.body(*body, &ends, list),
            }
        }
        ends
    }

    fn when(
        &mut self,
        name: Name,
        then: usize,
        otherwise: usize,
        after: &BTreeSet<Name>,
        list: Option<&Foreach>,
    ) -> BTreeSet<Name> {
        let case = |when: Option<&str>, then| SwitchCase {
            when: when.map(ToOwned::to_owned),
            then,
        };

        let cases = vec![
            case(Some("yes"), self.firsts(then)),
            case(Some("no"), self.firsts(otherwise)),
        ];

        self.add(name.clone(), Action::Switch(cases), after, list);
        let after = BTreeSet::from([name]);

        let mut ends = self.body(then, &after, list);
        ends.extend(self.body(otherwise, &after, list));
        ends
    }

    /// Returns the steps with which a body begins.
    fn firsts(&self, body: usize) -> Vec<Name> {
        let Some(first) = self.graph.bodies[body].steps.first() else {
            return Vec::new();
        };

        match &first.kind {
            StepKind::Fork { branches } => branches
                .iter()
                .flat_map(|branch| self.firsts(*branch))
                .collect(),
            StepKind::Each { body }
            | StepKind::Child { body, .. }
            | StepKind::Repeat { body, .. } => self.firsts(*body),
            StepKind::Task(_)
            | StepKind::Delay { .. }
            | StepKind::Signal { .. }
            | StepKind::When { .. } => {
                vec![name(&first.name)]
            }
        }
    }

    fn add(&mut self, name: Name, action: Action, after: &BTreeSet<Name>, list: Option<&Foreach>) {
        let step = step(name, action, after, list);
        self.steps.push(step);
    }
}

fn step(id: Name, action: Action, after: &BTreeSet<Name>, list: Option<&Foreach>) -> Step {
    Step {
        id,
        after: Some(StepDependencies {
            steps: after.iter().cloned().collect(),
            join: Join::All,
        }),
        when: None,
        foreach: list.cloned(),
        action,
        ok: Vec::new(),
        fail: Vec::new(),
        compensate: None,
        pivot: false,
        timeout: None,
        save: Map::new(),
        retry: None,
        in_doubt: None,
        publish: None,
        priority: None,
        on_timeout: None,
        on_failure: None,
        remind: None,
    }
}

fn effect(name: &orlog_model::EffectName) -> Action {
    Action::Effect(EffectAction {
        name: name.clone(),
        data: Value::Null,
        version: None,
        responses: None,
    })
}

fn compensation(action: Action) -> CompensationSpec {
    CompensationSpec {
        action,
        ok: Vec::new(),
        fail: Vec::new(),
        timeout: None,
        retry: None,
        in_doubt: None,
        priority: None,
        allow_null: Vec::new(),
    }
}

fn limit(ms: u64) -> TimeLimit {
    TimeLimit::Constant(Duration::from_millis(ms))
}

fn name(step: &str) -> Name {
    Name::new(step).expect("names of steps are checked")
}
