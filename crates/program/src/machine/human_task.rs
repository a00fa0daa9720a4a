//! Human tasks: data, assignment and escalation.

use orlog_model::{Name, TaskChange, TaskSpec, Timestamp};
use serde_json::Value;

use super::compiled::{CompiledAction, CompiledActionKind, CompiledHumanTask};
use super::transition::{Execution, NoTransition};
use super::values::{eval_error, payload};
use crate::contract::ProgramError;
use crate::expression::{Bindings, EvalError, kind_of};
use crate::template::Template;

/// An opened task, and its escalation time.
pub(super) struct OpenedTask {
    pub(super) spec: TaskSpec,
    pub(super) escalates: Option<Timestamp>,
}

impl Execution<'_> {
    pub(super) fn open_task(
        &self,
        human: &CompiledHumanTask,
        action: &CompiledAction,
        tag: &Name,
        bindings: &Bindings<'_>,
    ) -> Result<OpenedTask, EvalError> {
        let due = human.due.as_ref().map(|due| due.due(self.context.now, bindings)).transpose()?;
        let mut outcomes = Vec::new();
        for matcher in action.ok.iter().chain(&action.fail) {
            if !outcomes.contains(&matcher.event) {
                outcomes.push(matcher.event.clone());
            }
        }
        let spec = TaskSpec {
            tag: tag.clone(),
            round: self.state.round(tag),
            title: title(&human.title.evaluate(bindings)?)?,
            roles: roles(&human.roles, bindings)?,
            assignee: assignee(human.assignee.as_ref(), bindings)?,
            due,
            outcomes,
            data: payload(&human.data, tag, bindings)?,
            not_by: human.not_by.clone(),
            is_in_doubt: false,
        };
        let escalates = human.escalate.as_ref().and_then(|escalation| {
            escalation.after.map_or(due, |after| Some(self.context.now.saturating_add(after)))
        });
        Ok(OpenedTask { spec, escalates })
    }

    /// Escalates the overdue task of this tag.
    pub(super) fn escalate(&mut self, tag: &str) -> Result<(), NoTransition> {
        let stale = NoTransition::Ignored("the timer is stale");
        let known =
            self.state.extra.as_ref().is_some_and(|e| e.escalations.iter().any(|(of, _)| of.as_str() == tag));
        let Some((at, is_compensation)) = self.step_of_tag(tag).filter(|_| known) else { return Err(stale) };
        let CompiledActionKind::Human(human) = &self.action_of(at, is_compensation).kind else {
            return Err(stale);
        };
        let Some(escalation) = &human.escalate else { return Err(stale) };
        let bindings = self.bindings(at);
        let to = roles(&escalation.roles, &bindings)
            .and_then(|roles| Ok((roles, assignee(escalation.assignee.as_ref(), &bindings)?)));
        let (roles, assignee) = to.map_err(|error| ProgramError::Evaluation(format!("{tag}: {error}")))?;
        self.tasks.push(TaskChange::Assign { tag: self.tag_of(at, is_compensation), roles, assignee });
        self.state.extra_mut().escalations.retain(|(of, _)| of.as_str() != tag);
        self.add_step_note(at, "escalated");
        Ok(())
    }
}

fn title(value: &Value) -> Result<String, EvalError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(eval_error("title", format!("a title must be a text, but is {}", kind_of(other)))),
    }
}

/// Evaluates the role templates; each returns a role or a list of roles.
fn roles(templates: &[Template], bindings: &Bindings<'_>) -> Result<Vec<String>, EvalError> {
    let mut roles = Vec::with_capacity(templates.len());
    for template in templates {
        match template.evaluate(bindings)? {
            Value::String(role) => roles.push(role),
            Value::Array(several) => {
                for role in &several {
                    let role = role.as_str().ok_or_else(|| not_a_text("a role", role))?;
                    roles.push(role.to_owned());
                }
            }
            other => return Err(not_a_text("a role", &other)),
        }
    }
    Ok(roles)
}

/// Evaluates the assignee template; null means unassigned.
fn assignee(template: Option<&Template>, bindings: &Bindings<'_>) -> Result<Option<String>, EvalError> {
    match template.map(|template| template.evaluate(bindings)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(assignee)) => Ok(Some(assignee)),
        Some(other) => Err(not_a_text("an assignee", &other)),
    }
}

fn not_a_text(label: &str, value: &Value) -> EvalError {
    eval_error(label, format!("{label} must be a text, but is {}", kind_of(value)))
}
