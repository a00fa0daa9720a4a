//! Steps: what is said about the one named last.

use std::time::Duration;

use orlog_model::{InDoubt, Name, Retry};
use serde_json::{Map, Value};

use super::action::Do;
use super::definition::Builder;
use super::names::{answer, keep, steps};
use crate::definition::{Action, After, Foreach, Join, Step, Undo};
use crate::diagnostic::Finding;

impl Builder {
    /// The next step.
    #[must_use]
    pub fn step(self, id: &str, action: Do) -> Self {
        self.change(|definition, findings| {
            let path = format!("steps[{}]", definition.steps.len());
            let id = keep(Name::new(id), &format!("{path}.id"), findings);
            let (asked, action) = action.placed(&format!("{path}.do"), findings);
            if let (Some(id), Some(asked)) = (id, asked) {
                let Do { ok, fail, timeout, retry, in_doubt, .. } = action;
                definition.steps.push(Step { ok, fail, timeout, retry, in_doubt, ..new_step(id, asked) });
            }
        })
    }

    /// The steps that must be over first; without this, the step before, or the switch that names this step. An empty
    /// list begins at once.
    #[must_use]
    pub fn after(self, ids: &[&str]) -> Self {
        self.join(ids, Join::All)
    }

    /// One of these steps must be done first; the others have lost and are undone.
    #[must_use]
    pub fn after_any(self, ids: &[&str]) -> Self {
        self.join(ids, Join::AtLeast(1))
    }

    /// So many of these steps must be done first.
    #[must_use]
    pub fn after_count(self, count: u32, ids: &[&str]) -> Self {
        self.join(ids, Join::AtLeast(count))
    }

    fn join(self, ids: &[&str], join: Join) -> Self {
        self.on_step("after", |step, path, findings| {
            step.after = Some(After { steps: steps(ids, path, findings), join });
        })
    }

    /// The step is skipped when this expression is false.
    #[must_use]
    pub fn when(self, condition: &str) -> Self {
        self.on_step("when", |step, _, _| step.when = Some(condition.to_owned()))
    }

    /// The step is done for each element of the list that an expression gives; `name` stands for the element, `index` for
    /// its place.
    #[must_use]
    pub fn foreach(self, list: &str, name: &str) -> Self {
        self.on_step("foreach", |step, _, _| {
            step.foreach = Some(Foreach { list: list.to_owned(), name: name.to_owned(), limit: None });
        })
    }

    /// How many elements are under way at once.
    #[must_use]
    pub fn at_once(self, limit: u32) -> Self {
        self.on_step("foreach.limit", |step, path, findings| match &mut step.foreach {
            Some(foreach) => foreach.limit = Some(limit),
            None => findings.push(Finding::new(path, "`at_once` is about a step with `foreach`")),
        })
    }

    /// The event of success, or one of them.
    #[must_use]
    pub fn ok(self, event: &str) -> Self {
        self.on_step("ok", |step, path, findings| step.ok.extend(answer(event, None, path, findings)))
    }

    /// An event that means success if the condition holds.
    #[must_use]
    pub fn ok_when(self, event: &str, condition: &str) -> Self {
        self.on_step("ok", |step, path, findings| {
            step.ok.extend(answer(event, Some(condition), path, findings));
        })
    }

    /// An event of failure.
    #[must_use]
    pub fn fail(self, event: &str) -> Self {
        self.on_step("fail", |step, path, findings| step.fail.extend(answer(event, None, path, findings)))
    }

    /// An event that means failure if the condition holds.
    #[must_use]
    pub fn fail_when(self, event: &str, condition: &str) -> Self {
        self.on_step("fail", |step, path, findings| {
            step.fail.extend(answer(event, Some(condition), path, findings));
        })
    }

    /// What undoes the step.
    #[must_use]
    pub fn undo(self, action: Do) -> Self {
        self.on_step("undo", |step, path, findings| {
            let (asked, action) = action.placed(path, findings);
            let Do { ok, fail, timeout, retry, in_doubt, .. } = action;
            step.undo = asked.map(|action| Undo { action, ok, fail, timeout, retry, in_doubt });
        })
    }

    /// The point of no return: once the step is done, nothing done so far is undone any more.
    #[must_use]
    pub fn pivot(self) -> Self {
        self.on_step("pivot", |step, _, _| step.pivot = true)
    }

    /// The time allowed for the step's answer.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.on_step("timeout", |step, _, _| step.timeout = Some(timeout))
    }

    /// A template over the step's answer, whose value the instance remembers.
    #[must_use]
    pub fn save(self, name: &str, template: Value) -> Self {
        self.on_step("save", |step, _, _| drop(step.save.insert(name.to_owned(), template)))
    }

    /// How often a command is asked for; for effects and jobs hints for attempts.
    #[must_use]
    pub fn retry(self, retry: Retry) -> Self {
        self.on_step("retry", |step, _, _| step.retry = Some(retry))
    }

    /// What happens when nobody knows whether an effect or a job was done; without this the upstream says so.
    #[must_use]
    pub fn in_doubt(self, in_doubt: InDoubt) -> Self {
        self.on_step("in_doubt", |step, _, _| step.in_doubt = Some(in_doubt))
    }

    fn on_step(self, field: &str, change: impl FnOnce(&mut Step, &str, &mut Vec<Finding>)) -> Self {
        self.change(|definition, findings| {
            let index = definition.steps.len().saturating_sub(1);
            let path = format!("steps[{index}].{field}");
            match definition.steps.last_mut() {
                Some(step) => change(step, &path, findings),
                None => findings.push(Finding::new(path, format!("`{field}` comes before the first step"))),
            }
        })
    }
}

fn new_step(id: Name, action: Action) -> Step {
    Step {
        id,
        after: None,
        when: None,
        foreach: None,
        pivot: false,
        action,
        ok: Vec::new(),
        fail: Vec::new(),
        undo: None,
        timeout: None,
        save: Map::new(),
        retry: None,
        in_doubt: None,
    }
}
