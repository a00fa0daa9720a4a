//! Builds the commit of a transition: snapshot, ids, timers, history.

use std::sync::Arc;

use orlog_model::{
    ArmedTimer, ChildResult, Commit, Confirmation, ControlRequest, DedupeKey, EventType, Fact,
    Failure, HistoryEntry, Input, InputOrigin, Instance, InstanceKey, InstanceUsers, Name,
    NotifyParent, ParentEndPolicy, ParentRef, PendingWork, SagaResult, Status, Timer, TimerChange,
    Transition, Work, WorkItem, WorkflowAction, WorkflowCommand, derive_child_id, derive_id,
};
use orlog_program::Program;
use serde_json::Value;
use uuid::Uuid;

use crate::context::{DecisionContext, TransitionCause, cleanup_commit, expiry_timer, timer_row};
use crate::last_error::last_error;
use crate::wait_origin::set_origins;
use crate::{abandoned_work, excluded_users, record, task_updates};

/// Returns the commit of a transition.
pub(crate) fn build_commit(
    context: &DecisionContext<'_>,
    cause: TransitionCause<'_>,
    mut transition: Transition,
) -> Box<Commit> {
    let mut commit = Box::new(cleanup_commit(context.key, cause.input, context.now));

    let mut timers = context.instance.map_or_else(Vec::new, |i| i.timers.clone());
    // The fired timer is removed first: its row is already deleted above, and a new timer of its
    // name must not delete it again.
    remove_fired_timer(&mut timers, cause.input);
    change_timers(&mut timers, &mut commit, &transition, cause.identity);

    // Work that a transition requests before it begins a new run belongs to the old one.
    let new_run = transition.run.begins_at;
    let id_of_new_run = || run_id(context.key, &cause);
    let run_id = context.instance.map_or_else(id_of_new_run, |i| i.run_id);
    let run_id_after = if new_run.is_some() {
        id_of_new_run()
    } else {
        run_id
    };

    // The new run does not await the work of the old one: a restart waits until none of it
    // survives.
    let same_run = context.instance.filter(|_| new_run.is_none());
    let mut open = same_run.map_or_else(Vec::new, |i| i.pending_work.clone());
    if let Some(completed) = cause.input.completed_work_id() {
        open.retain(|work| work.id != completed);
    }

    // The end is the last work item, after the final fact that it reports.
    let end = parent_notification(context, &transition);
    commit
        .work
        .reserve_exact(transition.work.len() + usize::from(end.is_some()));
    let first_of_run = new_run.unwrap_or_default();
    for (index, work) in std::mem::take(&mut transition.work)
        .into_iter()
        .chain(end)
        .enumerate()
    {
        let of_run = if index < first_of_run {
            run_id
        } else {
            run_id_after
        };
        let item = item(context, &cause, work_id(of_run, &cause, index, &work), work);
        if index >= first_of_run {
            track_pending(&mut open, &item, context.program);
        }
        commit.work.push(item);
    }

    abandoned_work::mark(
        &mut open,
        same_run.map_or(&[], |instance| &instance.waits),
        &transition.waits,
    );

    if transition.status.is_final() {
        // An ended instance with pending work is neither purged nor restarted. Only work whose late
        // success must be compensated stays.
        let ended_before = context
            .instance
            .is_some_and(|instance| instance.status.is_final());
        open.retain(|work| is_awaited_after_end(work, ended_before));
    }

    // The first transition applies the early inputs itself, so they no longer expire.
    if context.instance.is_none() {
        commit.disarm.extend(expiry_timer(context.buffered));
    }

    let status = transition.status;
    let result = result_after(same_run, status, &commit);
    let task_changes = std::mem::take(&mut transition.tasks);
    let tasks = task_updates::updates_after(
        context,
        cause.input,
        task_changes,
        run_id_after,
        status,
        &mut commit,
    );

    // One commit stores the key and the transition, so a second delivery after a crash finds both
    // or neither.
    commit.dedupe_key = cause.input.has_dedupe_key().then_some(cause.identity);

    // A run deletes the entries of earlier runs one by one, so that the store needs no ranges.
    commit.forgets = transition
        .run
        .forgets
        .or_else(|| forgotten_version(context, cause.version));
    commit.history = Some(history_entry(
        context,
        &cause,
        &mut transition,
        &commit.work,
    ));

    let mut next = Instance {
        definition: context.program.definition_ref().clone(),
        run_id: run_id_after,
        version: cause.version,
        status: transition.status,
        paused: context.instance.is_some_and(|i| i.paused),
        state: transition.state,
        waits: transition.waits,
        timers,
        pending_work: open,
        reference: transition
            .reference
            .or_else(|| same_run.and_then(|i| i.reference.clone())),
        last_input: cause.id,
        last_error: last_error(
            same_run,
            cause.input,
            transition.failure,
            status,
            context.now,
        ),
        node: context.node.into(),
        trace: context
            .instance
            .map_or_else(|| cause.input.trace().cloned(), |i| i.trace.clone()),
        created_at: same_run.map_or(context.now, |i| i.created_at),
        updated_at: context.now,
        tasks,
        parent: context
            .instance
            .map_or_else(|| parent_of_start(cause.input), |i| i.parent.clone()),
        users: users_after(context, cause.input, result.is_some()),
        result,
    };

    set_origins(&mut next, same_run, cause.input, cause.identity);
    commit.instance = Some(Arc::new(next));
    commit
}

fn history_entry(
    context: &DecisionContext<'_>,
    cause: &TransitionCause<'_>,
    transition: &mut Transition,
    work: &[WorkItem],
) -> HistoryEntry {
    let variables = std::mem::take(&mut transition.variables);

    HistoryEntry {
        version: cause.version,
        at: context.now,
        input_id: cause.id.clone(),
        input_label: cause.input.label().into(),
        note: with_user(cause.input, std::mem::take(&mut transition.note)),
        status: transition.status,
        work: work
            .iter()
            .map(|item| (item.work.label(), item.id))
            .collect(),
        origin: InputOrigin::new(cause.input, context.node, context.now),
        payloads: record::payloads(cause.input, &variables, work, context.history_payload_bytes),
        failure: record::failure(
            cause.input,
            transition
                .failure
                .as_ref()
                .map(|reported| &reported.failure),
        ),
        input: None,
    }
}

/// Removes a fired timer from the armed timers; [`cleanup_commit`] deletes its row.
fn remove_fired_timer(timers: &mut Vec<ArmedTimer>, input: &Input) {
    if let Input::Timer(fired) = input {
        timers.retain(|timer| !timer.is(fired));
    }
}

/// Arms and cancels the timers of the program in order.
fn change_timers(
    timers: &mut Vec<ArmedTimer>,
    commit: &mut Commit,
    transition: &Transition,
    cause: DedupeKey,
) {
    for change in &transition.timers {
        let (TimerChange::Arm { name, .. } | TimerChange::Cancel { name }) = change;

        // Arming a name again replaces its timer. The timers of signals belong to the engine,
        // whatever name the program uses.
        disarm(timers, commit, |t| t.signal.is_none() && t.name == *name);

        if let TimerChange::Arm { name, due } = change {
            // The token is that of the input, not of a version: a decision that is repeated arms
            // the same timer (ADR 0015).
            let token = cause.hash_with(name.as_str().as_bytes());
            timers.push(ArmedTimer {
                name: name.clone(),
                token,
                due: *due,
                trace: None,
                signal: None,
            });
            commit.arm.push(Timer {
                due: *due,
                name: name.clone(),
                token,
            });
        }
    }

    // An ended instance has no timers; a stuck one has only those of signals.
    let status = transition.status;
    if status.is_final() || status == Status::Stuck {
        disarm(timers, commit, |timer| {
            timer.signal.is_none() || status.is_final()
        });
    }
}

fn disarm(timers: &mut Vec<ArmedTimer>, commit: &mut Commit, chosen: impl Fn(&ArmedTimer) -> bool) {
    for timer in timers.extract_if(.., |t| chosen(t)) {
        let row = timer_row(&timer);
        // A timer that this commit arms has no row yet.
        match commit.arm.iter().position(|armed| *armed == row) {
            Some(index) => drop(commit.arm.remove(index)),
            None => commit.disarm.push(row),
        }
    }
}

/// Returns the id of the run that the input starts.
fn run_id(key: &InstanceKey, cause: &TransitionCause<'_>) -> Uuid {
    let parts: [&[u8]; 5] = [
        b"run",
        key.tenant.as_str().as_bytes(),
        key.saga.as_str().as_bytes(),
        key.correlation.as_str().as_bytes(),
        cause.identity.as_uuid().as_bytes(),
    ];

    // The time of a start command is that of a decision, which differs if the parent decides again
    // on an older state. The work item that requested the child is the same.
    match parent_of_start(cause.input) {
        Some(parent) => derive_child_id(parent.work_id, &parts),
        None => derive_id(cause.input.at(), &parts),
    }
}

/// Returns the id of one piece of work. See [`WorkItem::id`].
fn work_id(run_id: Uuid, cause: &TransitionCause<'_>, index: usize, work: &Work) -> Uuid {
    // The state version is no part of the id: a decision that is repeated on an older state
    // requests the same work under the same key, in whatever order parallel results arrive (ADR
    // 0015).
    let of_tag = |tag: &Name, round: u64| {
        derive_child_id(
            run_id,
            &[b"work", tag.as_str().as_bytes(), &round.to_le_bytes()],
        )
    };

    let identity = cause.identity.as_uuid().as_bytes();

    match work {
        Work::Command(command) => of_tag(&command.tag, command.round),
        Work::Effect(effect) => of_tag(&effect.tag, effect.round),
        Work::StartChild(start) => of_tag(&start.tag, start.round),
        Work::Fact(Fact {
            kind,
            key: Some(key),
            ..
        }) => derive_child_id(run_id, &[b"fact", kind.as_str().as_bytes(), key.as_bytes()]),
        Work::Fact(_) => derive_child_id(
            // A fact without a key has no other identity than its place in the transition.
            run_id,
            &[b"caused_fact", identity, &(index as u64).to_le_bytes()],
        ),
        Work::CancelChild(cancel) => {
            let target = [cancel.saga.as_str(), cancel.correlation.as_str()];
            let [saga, correlation] = target.map(str::as_bytes);
            derive_child_id(run_id, &[b"cancel_child", saga, correlation, identity])
        }
        Work::NotifyParent(notify) => {
            derive_child_id(run_id, &[b"notify_parent", notify.ended.work_id.as_bytes()])
        }
        Work::PublishResult(result) => result.id(),
    }
}

fn item(
    context: &DecisionContext<'_>,
    cause: &TransitionCause<'_>,
    id: Uuid,
    work: Work,
) -> WorkItem {
    WorkItem {
        id,
        instance: context.key.clone(),
        deadline: work.deadline(context.now),
        priority: work.priority(),
        work,
        causation: cause.id.clone(),
        trace: cause
            .input
            .trace()
            .cloned()
            .or_else(|| context.instance.and_then(|i| i.trace.clone())),
        created_at: context.now,
    }
}

/// Records work that can return a result.
fn track_pending(open: &mut Vec<PendingWork>, item: &WorkItem, program: &dyn Program) {
    if let Some(tag) = item.work.tag() {
        // Work replaces the pending work with the same tag, so the list has one entry for each tag.
        open.retain(|work| work.tag != *tag);
        open.push(PendingWork {
            id: item.id,
            kind: item.work.kind(),
            tag: tag.clone(),
            requested_at: item.created_at,
            survives_end: survives_end(&item.work) && awaits_result(program, tag),
            dead_letter: None,
            abandoned: false,
        });
    }
}

/// Returns whether an ended instance awaits the result of the work.
fn is_awaited_after_end(work: &PendingWork, ended_before: bool) -> bool {
    // The program ended although it saw that earlier results are dead letters. A later one waits
    // for a redrive, because its late success must be compensated.
    work.survives_end && (ended_before || work.dead_letter.is_none())
}

/// Returns whether a success of the work after the end of its instance must be compensated.
fn survives_end(work: &Work) -> bool {
    match work {
        Work::Command(command) => command.confirmation == Confirmation::Acceptance,
        Work::Effect(_) => true,
        Work::StartChild(start) => start.on_parent_end != ParentEndPolicy::Abandon,
        Work::Fact(_) | Work::CancelChild(_) | Work::NotifyParent(_) | Work::PublishResult(_) => {
            false
        }
    }
}

/// Returns whether a program awaits the result of work with this tag.
fn awaits_result(program: &dyn Program, tag: &Name) -> bool {
    program
        .as_compiled()
        .is_none_or(|definition| definition.awaits_result(tag))
}

/// Returns the transition of a result that changes nothing except that its work is no longer
/// pending.
pub(crate) fn unchanged(instance: &Instance, note: String) -> Transition {
    Transition {
        run: orlog_model::RunChange::default(),
        state: instance.state.clone(),
        status: instance.status,
        waits: instance.waits.clone(),
        reference: None,
        work: Vec::new(),
        timers: Vec::new(),
        tasks: Vec::new(),
        variables: Vec::new(),
        failure: None,
        note,
    }
}

/// Returns the parent of the instance that this input starts.
pub(crate) fn parent_of_start(input: &Input) -> Option<Box<ParentRef>> {
    match input {
        Input::Workflow(WorkflowCommand {
            action: WorkflowAction::Start { parent, .. },
            ..
        }) => Some(Box::new(parent.clone())),
        Input::Workflow(_)
        | Input::Event(_)
        | Input::WorkResult(_)
        | Input::Timer(_)
        | Input::Control(_)
        | Input::Early(_) => None,
    }
}

/// Returns the work that notifies the parent, if the instance ends with this transition.
pub(crate) fn parent_notification(
    context: &DecisionContext<'_>,
    transition: &Transition,
) -> Option<Work> {
    let instance = context.instance?;
    let parent = instance.parent.as_ref()?;

    // An ended instance that compensates a late success ends only once for its parent.
    if instance.status.is_final() || !transition.status.is_final() {
        return None;
    }

    let fact = end_fact(transition.work.iter());
    let reported = transition
        .failure
        .as_ref()
        .map(|reported| reported.failure.to_string());
    let failure = reported.or_else(|| instance.last_error.as_ref().map(ToString::to_string));
    let fact = fact.map(|fact| (&fact.kind, &fact.data));

    let ended = child_result(
        context.key,
        parent.work_id,
        transition.status,
        fact,
        failure,
    );

    Some(Work::NotifyParent(NotifyParent {
        to: parent.key.clone(),
        ended,
    }))
}

/// Returns the result of a child saga that has ended with this status, for its parent.
pub(crate) fn child_result(
    key: &InstanceKey,
    work_id: Uuid,
    status: Status,
    fact: Option<(&EventType, &Value)>,
    failure: Option<String>,
) -> ChildResult {
    let failure = (status != Status::Completed).then(|| Failure {
        code: format!("child_{status}"),
        message: match failure {
            None => format!("{key} is {status}"),
            Some(failure) => format!("{key} is {status}: {failure}"),
        },
    });

    let (event, data) = fact.map_or((None, Value::Null), |(event, data)| {
        (Some(event.clone()), data.clone())
    });

    ChildResult {
        work_id,
        failure,
        event,
        data,
    }
}

/// Returns the users of the instance after an input.
fn users_after(
    context: &DecisionContext<'_>,
    input: &Input,
    has_result: bool,
) -> Option<InstanceUsers> {
    // The row of an instance with a result requires users, although no task excludes them any more.
    excluded_users::users_after(context, input).or_else(|| has_result.then(InstanceUsers::default))
}

/// Returns the version of the history entry that this version replaces, if the program limits its
/// history.
fn forgotten_version(context: &DecisionContext<'_>, version: u64) -> Option<u64> {
    let kept = context.program.manifest().history_limit?;
    version.checked_sub(kept).filter(|version| *version > 0)
}

/// Returns the result of the instance after a commit: the last fact of the transition that ended
/// it.
fn result_after(
    before: Option<&Instance>,
    status: Status,
    commit: &Commit,
) -> Option<Box<SagaResult>> {
    let earlier = || before.and_then(|instance| instance.result.clone());

    if !status.is_final() || before.is_some_and(|instance| instance.status.is_final()) {
        return earlier();
    }

    // An instance that ends again, after it compensated a late success, keeps its result unless it
    // emits another fact.
    let Some(fact) = end_fact(commit.work.iter().map(|item| &item.work)) else {
        return earlier();
    };
    Some(Box::new(SagaResult {
        event: fact.kind.clone(),
        data: fact.data.clone(),
    }))
}

/// Returns the last fact of the work of a transition.
fn end_fact<'a>(work: impl DoubleEndedIterator<Item = &'a Work>) -> Option<&'a Fact> {
    work.rev().find_map(|work| match work {
        Work::Fact(fact) => Some(fact),
        _ => None,
    })
}

/// Maximum length of a note, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;

/// Truncates a note, because a program, an upstream and a user can each write long text into it.
pub(crate) fn truncate_note(mut note: String) -> String {
    if note.len() > MAX_NOTE_BYTES {
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        note.push('…');
    }
    note
}

/// Prefixes the note with the user and the reason, if the control request has them.
pub(crate) fn with_user(input: &Input, note: String) -> String {
    truncate_note(match input {
        Input::Control(control) if control.user.is_some() || control.reason.is_some() => {
            let prefix = user_note(input.label(), control);

            // The history already has the label; a note that only repeats it is left out.
            if note == input.label() {
                prefix
            } else {
                format!("{prefix}; {note}")
            }
        }
        Input::Control(_)
        | Input::Event(_)
        | Input::WorkResult(_)
        | Input::Timer(_)
        | Input::Workflow(_)
        | Input::Early(_) => note,
    })
}

/// Returns a note such as `skip by alice: refunded by hand`.
pub(crate) fn user_note(label: &str, control: &ControlRequest) -> String {
    let by = control
        .user
        .as_ref()
        .map(|by| format!(" by {by}"))
        .unwrap_or_default();
    let reason = control
        .reason
        .as_ref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    format!("{label}{by}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_note_is_truncated_at_a_char_boundary() {
        assert_eq!(truncate_note("short".to_owned()), "short");
        let cut = truncate_note(format!("a{}", "ß".repeat(2_000)));
        assert!(
            cut.len() <= MAX_NOTE_BYTES + 3 && cut.ends_with("ß…"),
            "{}",
            cut.len()
        );
    }
}
