//! From a transition to a commit: the new snapshot, ids, timers, history.

use std::time::Duration;

use orlog_model::{
    ArmedTimer, Commit, Input, Instance, OpenWork, Origin, Record, Status, Timer, TimerChange, Transition,
    Work, WorkItem, WorkKind, derived_id,
};

use crate::context::{Cause, Subject, cleared, marker};
use crate::note::audited;
use crate::{child, early_buffer, task_updates};

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
    let end = child::end(subject, &transition);
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
        parent: subject.instance.map_or_else(|| child::parent(cause.input), |i| i.parent.clone()),
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
