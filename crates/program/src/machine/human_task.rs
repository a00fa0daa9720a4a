//! Tasks for people: what is asked, of whom, and to whom it goes when nobody has done it.

use orlog_model::{Name, TaskChange, TaskForm, Timestamp};
use serde_json::Value;

use super::compiled::{Call, Human, Task};
use super::execution::{Run, Unchanged};
use super::values::{payload, wrong};
use crate::contract::Fault;
use crate::expression::{Bindings, EvalError, kind_of};
use crate::template::Template;

/// A task that is opened, and when it goes to others.
pub(super) struct Opened {
    pub(super) form: TaskForm,
    pub(super) escalates: Option<Timestamp>,
}

impl Run<'_> {
    pub(super) fn open(
        &self,
        human: &Human,
        task: &Task,
        tag: &Name,
        bindings: &Bindings<'_>,
    ) -> Result<Opened, EvalError> {
        let due = human.due.as_ref().map(|due| due.due(self.context.now, bindings)).transpose()?;
        let mut outcomes = Vec::new();
        for answer in task.ok.iter().chain(&task.fail) {
            if !outcomes.contains(&answer.event) {
                outcomes.push(answer.event.clone());
            }
        }
        let form = TaskForm {
            tag: tag.clone(),
            title: title(&human.title.evaluate(bindings)?)?,
            roles: roles(&human.roles, bindings)?,
            assignee: person(human.assignee.as_ref(), bindings)?,
            due,
            outcomes,
            data: payload(&human.data, tag, bindings)?,
        };
        let escalates = human
            .escalate
            .as_ref()
            .and_then(|escalation| escalation.after.map_or(due, |after| Some(self.context.now.after(after))));
        Ok(Opened { form, escalates })
    }

    /// Nobody has done the task of that tag: it goes to others.
    pub(super) fn escalate(&mut self, tag: &str) -> Result<(), Unchanged> {
        let stale = Unchanged::Ignored("the timer is stale");
        let known =
            self.state.extra.as_ref().is_some_and(|e| e.escalations.iter().any(|(of, _)| of.as_str() == tag));
        let Some((at, undo)) = self.place(tag).filter(|_| known) else { return Err(stale) };
        let Call::Human(human) = &self.task(at, undo).call else { return Err(stale) };
        let Some(escalation) = &human.escalate else { return Err(stale) };
        let bindings = self.bindings(at);
        let to = roles(&escalation.roles, &bindings)
            .and_then(|roles| Ok((roles, person(escalation.assignee.as_ref(), &bindings)?)));
        let (roles, assignee) = to.map_err(|error| Fault::Program(format!("{tag}: {error}")))?;
        self.tasks.push(TaskChange::Assign { tag: self.tag(at, undo), roles, assignee });
        self.state.extra_mut().escalations.retain(|(of, _)| of.as_str() != tag);
        self.note(at, "escalated");
        Ok(())
    }
}

fn title(value: &Value) -> Result<String, EvalError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(wrong("title", format!("a title is a text, this is {}", kind_of(other)))),
    }
}

/// Each template is a role, or a list of them.
fn roles(templates: &[Template], bindings: &Bindings<'_>) -> Result<Vec<String>, EvalError> {
    let mut roles = Vec::with_capacity(templates.len());
    for template in templates {
        match template.evaluate(bindings)? {
            Value::String(role) => roles.push(role),
            Value::Array(several) => {
                for role in &several {
                    let role = role.as_str().ok_or_else(|| no_text("a role", role))?;
                    roles.push(role.to_owned());
                }
            }
            other => return Err(no_text("a role", &other)),
        }
    }
    Ok(roles)
}

/// Nobody in particular where the template is null.
fn person(template: Option<&Template>, bindings: &Bindings<'_>) -> Result<Option<String>, EvalError> {
    match template.map(|template| template.evaluate(bindings)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(person)) => Ok(Some(person)),
        Some(other) => Err(no_text("an assignee", &other)),
    }
}

fn no_text(what: &str, value: &Value) -> EvalError {
    wrong(what, format!("{what} is a text, this is {}", kind_of(value)))
}
