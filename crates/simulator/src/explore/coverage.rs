//! What of a definition was reached: steps, answers, undos, timers, in the order of the definition.

use std::collections::BTreeSet;

use orlog_engine::Decision;
use orlog_model::{InDoubt, Input};
use orlog_program::{Action, Definition, Handler, Step};

use crate::invariants::Marks;
use crate::responses::{By, Tag, answering};
use crate::simulator::{Observer, Seen};

/// What there is to reach, and what was.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    wanted: Vec<String>,
    reached: BTreeSet<String>,
    handlers: Vec<Handler>,
}

impl Coverage {
    /// Everything of a definition.
    pub(super) fn of(definition: &Definition) -> Self {
        let mut wanted: Vec<_> = definition.steps.iter().flat_map(|step| of_step(definition, step)).collect();
        wanted.extend(definition.timeout.map(|_| "timer saga".to_owned()));
        wanted.extend(definition.on.iter().flat_map(|on| &on.event).map(|event| format!("on {event}")));
        wanted.extend(["completed", "failed", "cancelled"].map(|status| format!("status {status}")));
        let mut seen = BTreeSet::new();
        wanted.retain(|item| seen.insert(item.clone()));
        Self { wanted, reached: BTreeSet::new(), handlers: definition.on.clone() }
    }

    /// What was reached, and what was not.
    pub(super) fn split(self) -> (Vec<String>, Vec<String>) {
        let reached = self.reached;
        self.wanted.into_iter().partition(|item| reached.contains(item))
    }
}

impl Observer for Coverage {
    fn decided(&mut self, seen: &Seen<'_>) {
        let Decision::Commit(commit) = seen.decision else { return };
        let Some(after) = &commit.instance else { return };
        let program = seen.subject.program;
        let before = Marks::of(program, seen.subject.instance);
        let marks = Marks::of(program, Some(after));
        for (tag, mark) in marks.iter().filter(|(tag, mark)| before.get(tag) != *mark) {
            let step = Tag::parse(tag).step;
            self.reached.insert(format!("{step} {}", word(mark)));
            if let Input::Event(event) = seen.input {
                self.reached.insert(format!("{step} {} by {}", word(mark), event.kind));
            }
        }
        match seen.input {
            Input::Timer(timer) => drop(self.reached.insert(format!("timer {}", plain(timer.name.as_str())))),
            Input::Event(event) if self.handlers.iter().any(|on| on.event.contains(&event.kind)) => {
                self.reached.insert(format!("on {}", event.kind));
            }
            Input::Event(_)
            | Input::Outcome(_)
            | Input::Control(_)
            | Input::Workflow(_)
            | Input::Early(_) => {}
        }
        self.reached.insert(format!("status {}", after.status));
    }
}

fn of_step(definition: &Definition, step: &Step) -> Vec<String> {
    let id = step.id.as_str();
    let mut wanted = vec![format!("{id} done")];
    let answers = answering(definition, id);
    if let Some(how) = answers.filter(|how| how.by == By::Event) {
        let by = |word: &'static str| {
            move |(event, _): (&orlog_model::EventType, Option<&str>)| format!("{id} {word} by {event}")
        };
        wanted.extend(how.ok.iter().copied().map(by("done")));
        wanted.extend(how.fail.iter().copied().map(by("failed")));
    }
    let fails = !matches!(step.action, Action::Wait(_) | Action::Switch(_) | Action::Event { .. });
    wanted.extend((fails || !step.fail.is_empty()).then(|| format!("{id} failed")));
    wanted.extend(step.when.as_ref().map(|_| format!("{id} skipped")));
    wanted.extend((step.in_doubt == Some(InDoubt::Ask)).then(|| format!("{id} in doubt")));
    if let Some(undo) = &step.undo {
        wanted.push(format!("{id} undone"));
        wanted.extend((!matches!(undo.action, Action::Wait(_))).then(|| format!("{id} undo failed")));
        wanted.extend(undo.timeout.map(|_| format!("timer undo:{id}")));
    }
    wanted.extend(step.timeout.map(|_| format!("timer {id}")));
    if let Action::Human(human) = &step.action {
        wanted.extend(human.escalate.as_ref().map(|_| format!("timer escalate:{id}")));
    }
    if let Action::Switch(cases) = &step.action {
        let ways = cases.iter().flat_map(|case| &case.then);
        wanted.extend(ways.map(|way| format!("{way} begun")));
    }
    wanted
}

/// The words of a report: a step that was done and is undone was undone.
fn word(mark: &str) -> String {
    match mark {
        "running" => "begun".to_owned(),
        "given_up" | "blocked" => "failed".to_owned(),
        "asking" | "asking_late" => "in doubt".to_owned(),
        "undo_failed" | "undo_pausing" => "undo failed".to_owned(),
        other => other.replace('_', " "),
    }
}

/// A timer of an element is that of its step.
fn plain(timer: &str) -> &str {
    timer.split_once('[').map_or(timer, |(step, _)| step)
}
