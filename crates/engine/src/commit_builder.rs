//! From a transition to a commit: the new snapshot, ids, timers, history.

use std::time::Duration;

use orlog_model::{
    ArmedTimer, Commit, Control, End, Ended, Failure, Input, Instance, OpenWork, Origin, Parent, Record,
    Status, Timer, TimerChange, Transition, Work, WorkItem, WorkKind, WorkflowCommand, WorkflowOrder,
    derived_id,
};
use serde_json::Value;

use crate::context::{Cause, Subject, cleared, marker};
use crate::{early_buffer, task_updates};

/// The commit of a transition.
pub(crate) fn applied(subject: &Subject<'_>, cause: &Cause<'_>, transition: Transition) -> Commit {
    let mut commit = cleared(subject.key, cause.input, subject.now);
    let mut timers = subject.instance.map_or_else(Vec::new, |i| i.timers.clone());
    forget_fired(&mut timers, cause.input);
    change_timers(&mut timers, &mut commit, &transition, cause.version);
    let mut open = subject.instance.map_or_else(Vec::new, |i| i.open.clone());
    if let Some(done) = cause.input.answers() {
        open.retain(|work| work.id != done);
    }
    let end = end(subject, &transition);
    for (index, work) in transition.work.into_iter().chain(end).enumerate() {
        let item = item(subject, cause, index, work);
        keep_open(&mut open, &item);
        commit.work.push(item);
    }
    if transition.status.is_final() {
        open.retain(|work| matches!(work.kind, WorkKind::Effect | WorkKind::Saga));
    }
    if subject.instance.is_none() {
        commit.disarm.extend(early_buffer::timer(subject.early));
    }
    let tasks = task_updates::after(subject, cause, transition.tasks, transition.status, &mut commit);
    commit.applied = marker(cause.input);
    commit.history = Some(Record {
        version: cause.version,
        at: subject.now,
        input: cause.id.clone(),
        label: cause.input.label().to_owned(),
        note: audited(cause.input, transition.note),
        status: transition.status,
        work: commit.work.iter().map(|item| (item.work.label(), item.id)).collect(),
        origin: Origin::of(cause.input, subject.node, subject.now),
    });
    commit.instance = Some(Instance {
        program: subject.program.reference().clone(),
        version: cause.version,
        status: transition.status,
        paused: subject.instance.is_some_and(|i| i.paused),
        state: transition.state,
        waits: transition.waits,
        timers,
        open,
        reference: transition.reference.or_else(|| subject.instance.and_then(|i| i.reference.clone())),
        last_input: cause.id.clone(),
        last_error: transition.failure.or_else(|| subject.instance.and_then(|i| i.last_error.clone())),
        node: subject.node.to_owned(),
        trace: subject.instance.map_or_else(|| cause.input.trace().cloned(), |i| i.trace.clone()),
        created_at: subject.instance.map_or(subject.now, |i| i.created_at),
        updated_at: subject.now,
        tasks,
        parent: subject.instance.map_or_else(|| parent(cause.input), |i| i.parent.clone()),
    });
    commit
}

/// A timer that fired is armed no more; its row goes with [`cleared`].
fn forget_fired(timers: &mut Vec<ArmedTimer>, input: &Input) {
    if let Input::Timer(fired) = input {
        timers.retain(|t| !(t.name == fired.name && t.token == fired.token));
    }
}

/// Arms and cancels in order; an instance that has ended keeps no timer.
fn change_timers(timers: &mut Vec<ArmedTimer>, commit: &mut Commit, transition: &Transition, token: u64) {
    for change in &transition.timers {
        let (TimerChange::Arm { name, .. } | TimerChange::Cancel { name }) = change;
        disarm(timers, commit, |t| t.name == *name);
        if let TimerChange::Arm { name, due } = change {
            timers.push(ArmedTimer { name: name.clone(), token, due: *due, trace: None });
            commit.arm.push(Timer { due: *due, name: name.clone(), token });
        }
    }
    if ended(transition.status) {
        disarm(timers, commit, |_| true);
    }
}

fn ended(status: Status) -> bool {
    status.is_final() || status == Status::Stuck
}

fn disarm(timers: &mut Vec<ArmedTimer>, commit: &mut Commit, chosen: impl Fn(&ArmedTimer) -> bool) {
    for timer in timers.extract_if(.., |t| chosen(t)) {
        let row = Timer { due: timer.due, name: timer.name, token: timer.token };
        match commit.arm.iter().position(|armed| *armed == row) {
            Some(index) => drop(commit.arm.remove(index)),
            None => commit.disarm.push(row),
        }
    }
}

/// The work item of one piece of work. Its id depends on the instance, the version, the index and the input, but not on
/// when it is decided.
fn item(subject: &Subject<'_>, cause: &Cause<'_>, index: usize, work: Work) -> WorkItem {
    let key = subject.key;
    let id = derived_id(
        cause.input.at(),
        &[
            key.tenant.as_str().as_bytes(),
            key.saga.as_str().as_bytes(),
            key.correlation.as_str().as_bytes(),
            &cause.version.to_le_bytes(),
            &(index as u64).to_le_bytes(),
        ],
    );
    WorkItem {
        id,
        instance: key.clone(),
        deadline: work.timeout().map(|timeout: Duration| subject.now.after(timeout)),
        work,
        causation: cause.id.clone(),
        trace: cause.input.trace().cloned().or_else(|| subject.instance.and_then(|i| i.trace.clone())),
        created_at: subject.now,
    }
}

/// Notes work whose outcome can come back. Work under the same tag replaces what was open under it, so that the list is
/// never longer than the program has tags; of an instance that has ended, only late effects and sagas can still matter.
fn keep_open(open: &mut Vec<OpenWork>, item: &WorkItem) {
    if let Some(tag) = item.work.tag() {
        open.retain(|work| work.tag != *tag);
        open.push(OpenWork { id: item.id, kind: item.work.kind(), tag: tag.clone() });
    }
}

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

/// The longest note, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;

/// A note that is not too long: a program, an upstream and a person can each write much into it.
pub(crate) fn brief(mut note: String) -> String {
    if note.len() > MAX_NOTE_BYTES {
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        note.push('…');
    }
    note
}

/// What happened, and before it, where somebody gave an instruction and a name or a reason with it, who and why.
pub(crate) fn audited(input: &Input, note: String) -> String {
    brief(match input {
        Input::Control(control) if control.by.is_some() || control.reason.is_some() => {
            let told = signed(input.label(), control);
            if note == input.label() { told } else { format!("{told}; {note}") }
        }
        Input::Control(_)
        | Input::Event(_)
        | Input::Outcome(_)
        | Input::Timer(_)
        | Input::Workflow(_)
        | Input::Early(_) => note,
    })
}

/// `skip by alice: refunded by hand`.
pub(crate) fn signed(what: &str, control: &Control) -> String {
    let by = control.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = control.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{what}{by}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_letters_and_says_so() {
        assert_eq!(brief("short".to_owned()), "short");
        let cut = brief(format!("a{}", "ß".repeat(2_000)));
        assert!(cut.len() <= MAX_NOTE_BYTES + 3 && cut.ends_with("ß…"), "{}", cut.len());
    }
}
