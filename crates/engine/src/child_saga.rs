//! Sagas that begin others: how a child begins, is stopped, and tells its parent how it ended.
//!
//! What cannot begin is answered at once with a failed end, so that no parent waits for ever. It is decided where the child
//! would live: only there is known whether the instance exists and which definitions there are.

use orlog_model::{
    Commit, End, Ended, Event, EventType, Failure, Input, InstanceKey, MAX_DEPTH, Parent, Timestamp, Verdict,
    Work, WorkItem, WorkflowCommand, WorkflowOrder, derived_id,
};
use orlog_program::{Program, Reaction, Stimulus};
use serde_json::Value;

use crate::context::Subject;
use crate::decision::{Decision, ignore};
use crate::early_input;
use crate::execute::{apply, hold, judge, react};

/// A word from another saga.
pub(crate) fn decide_workflow(subject: &Subject<'_>, input: &Input, command: &WorkflowCommand) -> Decision {
    match &command.order {
        WorkflowOrder::Start { parent, event, data } => {
            start(subject, input, command, (parent, event.as_ref(), data))
        }
        WorkflowOrder::Stop { from, reason } => stop(subject, input, from, reason),
        WorkflowOrder::Ended(ended) => child_ended(subject, input, ended),
    }
}

fn start(
    subject: &Subject<'_>,
    input: &Input,
    command: &WorkflowCommand,
    (parent, event, data): (&Parent, Option<&EventType>, &Value),
) -> Decision {
    let refuse = |code, message| {
        let mut commit = refused(subject.key, command, parent, (code, message), subject.now);
        // So that it is not refused again with each delivery.
        commit.applied = subject.instance.map(|_| command.id.clone());
        Decision::Commit(Box::new(commit))
    };
    if let Some(instance) = subject.instance {
        if instance.parent.as_ref().is_some_and(|own| own.work_id == parent.work_id) {
            return ignore("it was begun by this very order");
        }
        return refuse("already_exists", format!("{} exists already", subject.key));
    }
    if parent.depth > MAX_DEPTH {
        let message = format!("{} sagas stand above it, the limit is {MAX_DEPTH}", parent.depth);
        return refuse("too_deep", message);
    }
    let Some(kind) = start_event(subject.program, event) else {
        let named = event.map_or_else(|| "no event".to_owned(), ToString::to_string);
        return refuse("no_start_event", format!("{named} begins {}", subject.key.saga));
    };
    let event = begin(subject.key, command, parent, kind, data);
    match judge(subject, &Stimulus::Event(&event)) {
        Ok(Reaction::Applied(transition)) => apply(subject, input, *transition),
        Ok(Reaction::Ignored(why) | Reaction::Refused(why)) => refuse("not_begun", why.into_owned()),
        Err(fault) => refuse("not_begun", fault.to_string()),
    }
}

/// The start event that is named, or else the first.
fn start_event(program: &dyn Program, named: Option<&EventType>) -> Option<EventType> {
    let mut starts = program.manifest().triggers.iter().filter(|trigger| trigger.starts);
    starts
        .find(|trigger| named.is_none_or(|named| *named == trigger.kind))
        .map(|trigger| trigger.kind.clone())
}

fn begin(
    key: &InstanceKey,
    command: &WorkflowCommand,
    parent: &Parent,
    kind: EventType,
    data: &Value,
) -> Event {
    Event {
        id: command.id.clone(),
        tenant: key.tenant.clone(),
        kind,
        source: format!("orlog:{}", parent.key.saga),
        subject: Some(parent.key.correlation.to_string()),
        time: command.at,
        correlation: Some(key.correlation.clone()),
        causation: Some(parent.work_id.to_string()),
        trace: command.trace.clone(),
        schema_version: 1,
        data: data.clone(),
    }
}

fn stop(subject: &Subject<'_>, input: &Input, from: &InstanceKey, reason: &str) -> Decision {
    match subject.instance {
        None => early_input::keep_stop(subject, input),
        Some(instance) if instance.parent.as_ref().is_none_or(|parent| parent.key != *from) => {
            ignore("it was not begun by who wants it stopped")
        }
        Some(instance) if instance.status.is_final() => ignore("it has ended"),
        Some(instance) if instance.paused => hold(subject, input),
        Some(_) => react(subject, input, &Stimulus::Cancel { reason }),
    }
}

fn child_ended(subject: &Subject<'_>, input: &Input, ended: &Ended) -> Decision {
    let open = subject.instance.and_then(|i| i.open.iter().find(|open| open.id == ended.work_id));
    match (subject.instance, open) {
        (Some(instance), Some(_)) if instance.paused => hold(subject, input),
        (Some(_), Some(open)) => {
            let verdict = verdict(ended);
            react(subject, input, &Stimulus::Outcome { tag: open.tag.as_str(), verdict: &verdict })
        }
        (_, None) | (None, _) => ignore("nothing waits for the end of this saga"),
    }
}

fn verdict(ended: &Ended) -> Verdict {
    let payload = ended.data.clone();
    match &ended.failure {
        None => Verdict::Succeeded { event: ended.event.clone(), payload },
        Some(failure) => Verdict::Failed { event: None, failure: failure.clone(), payload },
    }
}

/// A word to an instance that does not exist, of a saga of which there is no definition.
pub(crate) fn no_such_saga(key: &InstanceKey, command: &WorkflowCommand, now: Timestamp) -> Decision {
    let WorkflowOrder::Start { parent, .. } = &command.order else {
        return ignore("there is no such saga");
    };
    let message = format!("there is no definition of the saga {}", key.saga);
    Decision::Commit(Box::new(refused(key, command, parent, ("no_such_saga", message), now)))
}

/// The commit that tells a parent that its child did not begin.
fn refused(
    key: &InstanceKey,
    command: &WorkflowCommand,
    parent: &Parent,
    (code, message): (&str, String),
    now: Timestamp,
) -> Commit {
    let failure = Failure { code: code.to_owned(), message };
    let ended = Ended { work_id: parent.work_id, failure: Some(failure), event: None, data: Value::Null };
    let mut commit = Commit::empty(key.clone(), now);
    commit.work.push(WorkItem {
        id: derived_id(command.at, &[parent.work_id.as_bytes(), b"refused"]),
        instance: key.clone(),
        work: Work::End(End { to: parent.key.clone(), ended }),
        deadline: None,
        causation: command.id.clone(),
        trace: command.trace.clone(),
        created_at: now,
    });
    commit
}
