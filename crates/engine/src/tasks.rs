//! Tasks for people: who may do what about them.

use orlog_model::{
    Commit, Control, EventType, Input, Instance, Origin, Record, Task, TaskForm, TaskOrder, TaskStep, Verdict,
};
use orlog_program::Stimulus;
use uuid::Uuid;

use crate::commit_builder::signed;
use crate::context::Subject;
use crate::decision::{Decision, Refusal, ignore};
use crate::execute::react;
use crate::task_updates::{entry, take_step};

/// A person does something about a task. Only completing it is the program's business.
pub(crate) fn decide_task(
    subject: &Subject<'_>,
    input: &Input,
    (control, instance): (&Control, &Instance),
    (id, order, roles): (Uuid, &TaskOrder, &[String]),
) -> Decision {
    let Some(task) = instance.tasks.iter().find(|task| task.id == id) else {
        return Decision::Refuse(Refusal::NoTask { id });
    };
    let Some(by) = control.by.as_deref() else { return refuse("nobody is named who does it".to_owned()) };
    let admitted = match order {
        TaskOrder::Claim | TaskOrder::Complete { .. } => admitted(task, by, roles),
        TaskOrder::Release => held_by(task, by),
        TaskOrder::Assign { .. } => Ok(()),
    };
    if let Err(why) = admitted {
        return refuse(why);
    }
    match order {
        TaskOrder::Complete { outcome, data } => match chosen(&task.form, outcome.as_ref()) {
            Err(why) => refuse(why),
            Ok(()) if instance.paused => {
                refuse("its instance is paused: resume it before the task is completed".to_owned())
            }
            Ok(()) => {
                let verdict = Verdict::Succeeded { event: outcome.clone(), payload: data.clone() };
                let stimulus = Stimulus::Outcome { tag: task.form.tag.as_str(), verdict: &verdict };
                react(subject, input, &stimulus)
            }
        },
        TaskOrder::Claim if task.claimed_by.is_some() => ignore("it is claimed already, by the same person"),
        TaskOrder::Release if task.claimed_by.is_none() => ignore("nobody has claimed it"),
        TaskOrder::Claim => handed(subject, input, (control, instance), id, &TaskStep::Claimed),
        TaskOrder::Release => handed(subject, input, (control, instance), id, &TaskStep::Released),
        TaskOrder::Assign { assignee, roles } => {
            let roles = roles.clone().unwrap_or_else(|| task.form.roles.clone());
            let step = TaskStep::Reassigned { roles, assignee: assignee.clone() };
            handed(subject, input, (control, instance), id, &step)
        }
    }
}

fn refuse(why: String) -> Decision {
    Decision::Refuse(Refusal::Task { why })
}

/// Whether this person may take the task, or answer it.
fn admitted(task: &Task, by: &str, roles: &[String]) -> Result<(), String> {
    held_by(task, by)?;
    let form = &task.form;
    if let Some(assignee) = form.assignee.as_ref().filter(|assignee| *assignee != by) {
        return Err(format!("the task is assigned to {assignee}"));
    }
    if form.roles.is_empty() || form.roles.iter().any(|role| roles.contains(role)) {
        return Ok(());
    }
    Err(format!("the task is for the roles {}, and {by} has none of them", form.roles.join(", ")))
}

fn held_by(task: &Task, by: &str) -> Result<(), String> {
    match &task.claimed_by {
        Some(other) if other != by => Err(format!("the task is claimed by {other}")),
        Some(_) | None => Ok(()),
    }
}

fn chosen(form: &TaskForm, outcome: Option<&EventType>) -> Result<(), String> {
    let choices = || form.outcomes.iter().map(EventType::as_str).collect::<Vec<_>>().join(", ");
    match outcome {
        None if form.outcomes.is_empty() => Ok(()),
        None => Err(format!("an outcome must be chosen: {}", choices())),
        Some(outcome) if form.outcomes.contains(outcome) => Ok(()),
        Some(outcome) if form.outcomes.is_empty() => {
            Err(format!("the task has no outcomes to choose from, so {outcome} is none"))
        }
        Some(outcome) => Err(format!("{outcome} is no outcome of the task; there are {}", choices())),
    }
}

/// A task changes hands; the program is not asked.
fn handed(
    subject: &Subject<'_>,
    input: &Input,
    (control, instance): (&Control, &Instance),
    id: Uuid,
    step: &TaskStep,
) -> Decision {
    let mut commit = Commit::empty(subject.key.clone(), subject.now);
    let mut next = instance.clone();
    next.version += 1;
    next.last_input = control.id.clone();
    next.updated_at = subject.now;
    subject.node.clone_into(&mut next.node);
    let mut note = String::new();
    for task in next.tasks.iter_mut().filter(|task| task.id == id) {
        note = signed(&format!("{}: {}", task.form.tag, step.as_str()), control);
        take_step(task, step, control.by.as_deref());
        commit.tasks.push(entry(subject, task, step.clone(), Some(control)));
    }
    commit.history = Some(Record {
        version: next.version,
        at: subject.now,
        input: control.id.clone(),
        label: input.label().to_owned(),
        note,
        status: next.status,
        work: Vec::new(),
        origin: Origin::of(input, subject.node, subject.now),
    });
    commit.applied = Some(control.id.clone());
    commit.instance = Some(next);
    Decision::Commit(Box::new(commit))
}
