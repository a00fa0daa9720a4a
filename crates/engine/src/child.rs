//! What a saga that another began knows of it: who that is, and what to tell it at the end.

use orlog_model::{
    End, Ended, Failure, Input, Parent, Status, Transition, Work, WorkflowCommand, WorkflowOrder,
};
use serde_json::Value;

use crate::context::Subject;

/// Who began the instance that this input begins.
pub(crate) fn parent(input: &Input) -> Option<Box<Parent>> {
    match input {
        Input::Workflow(WorkflowCommand { order: WorkflowOrder::Start { parent, .. }, .. }) => {
            Some(Box::new(parent.clone()))
        }
        Input::Workflow(_)
        | Input::Event(_)
        | Input::Outcome(_)
        | Input::Timer(_)
        | Input::Control(_)
        | Input::Early(_) => None,
    }
}

/// What an instance that ends with this transition tells the one that began it.
pub(crate) fn end(subject: &Subject<'_>, transition: &Transition) -> Option<Work> {
    let instance = subject.instance?;
    let parent = instance.parent.as_ref()?;
    if instance.status.is_final() || !transition.status.is_final() {
        return None;
    }
    let fact = transition.work.iter().rev().find_map(|work| match work {
        Work::Fact(fact) => Some(fact),
        _ => None,
    });
    let failure = transition.failure.as_ref().or(instance.last_error.as_ref());
    let ended = Ended {
        work_id: parent.work_id,
        failure: match transition.status {
            Status::Completed => None,
            status => Some(Failure {
                code: format!("child_{status}"),
                message: failure.map_or_else(
                    || format!("{} is {status}", subject.key),
                    |failure| format!("{} is {status}: {failure}", subject.key),
                ),
            }),
        },
        event: fact.map(|fact| fact.kind.clone()),
        data: fact.map_or(Value::Null, |fact| fact.data.clone()),
    };
    Some(Work::End(End { to: parent.key.clone(), ended }))
}
