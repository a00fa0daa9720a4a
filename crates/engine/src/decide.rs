//! What an input means for an instance, by kind of input and status.
//!
//! | input | no instance | paused | final or stuck | otherwise |
//! |---|---|---|---|---|
//! | event that starts | apply | hold | apply (program ignores or undoes) | apply |
//! | other event that it takes | keep for it, `early` long | hold | apply (program ignores or undoes) | apply |
//! | any other event | ignore | hold | apply (program ignores) | apply (program ignores) |
//! | outcome of open work | ignore | hold | apply (a late success is undone) | apply |
//! | outcome of other work | ignore, settle | ignore, settle | ignore, settle | ignore, settle |
//! | armed timer | ignore, forget | hold | cannot be: none is armed | apply |
//! | stale timer | ignore, forget | ignore, forget | ignore, forget | ignore, forget |
//! | timer `early` | drop what was kept long enough | ignore, forget | ignore, forget | ignore, forget |
//! | cancel | refuse | refuse | refuse when final | apply |
//! | retry | refuse | refuse | apply when stuck | refuse by the program |
//! | skip, force-complete | refuse | refuse | apply when stuck | refuse |
//! | pause | refuse | refuse | refuse when final | set the flag |
//! | resume | refuse | clear the flag | refuse | refuse |
//! | signal | refuse | hold | apply | apply |
//! | claim, release, assign a task | refuse | change the task | as otherwise when stuck; refuse: none is open | change the task |
//! | complete a task | refuse | refuse | apply when stuck; refuse: none is open | apply |
//! | migrate | refuse | move | move when stuck; refuse | move, unless blocked |
//! | start, by another saga | apply, or tell it why not | tell it that it exists | tell it that it exists | tell it that it exists |
//! | stop, by the saga that began it | keep it | hold | apply when stuck; ignore | apply |
//! | end of a saga that is open work | ignore | hold | apply (a late success is undone) | apply |
//! | end of any other saga | ignore | ignore | ignore | ignore |
//!
//! What an outcome tells besides (facts) goes out with whatever commit is made of it.
//!
//! A start of this very order, again, is ignored. Instructions carry who gave them and why into the history.
//!
//! To apply is to ask the program. An input that it cannot apply is set aside as a dead letter; when the program broke down
//! over it, the instance is paused with the same commit.

use orlog_model::{
    Action, Commit, Control, Event, EventId, EventType, Fact, Input, InstanceKey, Outcome, Status,
    TimerFired, Timestamp, TraceParent, Work, WorkItem, derived_id,
};
use orlog_program::{Program, Stimulus};
use serde_json::Value;

use crate::context::Subject;
use crate::decision::{Decision, Refusal, ignore_and_clear};
use crate::early_buffer::Kept;
use crate::execute::{hold, react};
use crate::pause::flag;
use crate::{child_saga, early_input, tasks};

/// Decides one input. See the table above.
#[must_use]
pub fn decide(subject: &Subject<'_>, input: &Input) -> Decision {
    match input {
        Input::Event(event) => decide_event(subject, input, event),
        Input::Outcome(outcome) if outcome.facts.is_empty() => decide_outcome(subject, input, outcome),
        Input::Outcome(outcome) => {
            let bare = bare(outcome);
            let decision = decide_outcome(subject, &Input::Outcome(bare.clone()), &bare);
            told(subject, outcome, decision)
        }
        Input::Timer(timer) => decide_timer(subject, input, timer),
        Input::Control(control) => decide_control(subject, input, control),
        Input::Workflow(command) => child_saga::decide_workflow(subject, input, command),
        Input::Early(early) => decide(subject, &early.input),
    }
}

/// Decides an input for an instance that does not exist, of a saga that no definition describes. `None`: nothing can be said
/// about it.
#[must_use]
pub fn decide_undefined(
    key: &InstanceKey,
    early: &[Kept],
    input: &Input,
    now: Timestamp,
) -> Option<Decision> {
    match input {
        Input::Timer(fired) => Some(early_input::expire(key, early, (input, fired), now)),
        Input::Workflow(command) => Some(child_saga::no_such_saga(key, command, now)),
        Input::Event(_) | Input::Outcome(_) | Input::Control(_) | Input::Early(_) => None,
    }
}

fn decide_event(subject: &Subject<'_>, input: &Input, event: &Event) -> Decision {
    match subject.instance {
        None if !starts(subject.program, event) => early_input::keep_event(subject, input, event),
        Some(instance) if instance.paused => hold(subject, input),
        None | Some(_) => react(subject, input, &Stimulus::Event(event)),
    }
}

fn starts(program: &dyn Program, event: &Event) -> bool {
    program.manifest().triggers.iter().any(|t| t.starts && t.kind == event.kind)
}

fn decide_outcome(subject: &Subject<'_>, input: &Input, outcome: &Outcome) -> Decision {
    let open = subject.instance.and_then(|i| i.open.iter().find(|o| o.id == outcome.work_id));
    match (subject.instance, open) {
        (Some(instance), Some(_)) if instance.paused => hold(subject, input),
        (Some(_), Some(open)) => {
            let stimulus = Stimulus::Outcome { tag: open.tag.as_str(), verdict: &outcome.verdict };
            react(subject, input, &stimulus)
        }
        (_, None) | (None, _) => ignore_and_clear(subject.key, input, subject.now, "the work is not open"),
    }
}

fn decide_timer(subject: &Subject<'_>, input: &Input, fired: &TimerFired) -> Decision {
    let armed = subject.instance.is_some_and(|instance| {
        instance.timers.iter().any(|t| t.name == fired.name && t.token == fired.token)
    });
    match subject.instance {
        Some(instance) if armed && instance.paused => hold(subject, input),
        Some(_) if armed => react(subject, input, &Stimulus::Timer { name: fired.name.as_str() }),
        Some(_) => ignore_and_clear(subject.key, input, subject.now, "the timer is stale"),
        None => early_input::expire(subject.key, subject.early, (input, fired), subject.now),
    }
}

fn decide_control(subject: &Subject<'_>, input: &Input, control: &Control) -> Decision {
    let Some(instance) = subject.instance else { return Decision::Refuse(Refusal::NotFound) };
    if let Some(expected) = control.expected_version.filter(|v| *v != instance.version) {
        return Decision::Refuse(Refusal::Version { expected, actual: instance.version });
    }
    let refuse = |why: &'static str| {
        Decision::Refuse(Refusal::Status {
            status: instance.status,
            paused: instance.paused,
            why: why.into(),
        })
    };
    match &control.action {
        Action::Resume if instance.paused => Decision::Commit(Box::new(flag(subject, input, false))),
        Action::Resume => refuse("only a paused instance can be resumed"),
        Action::Signal { .. } if instance.paused => hold(subject, input),
        Action::Signal { kind, data } => {
            let event = signal_event(subject.key, control, kind, data);
            react(subject, input, &Stimulus::Event(&event))
        }
        Action::Task { id, order, roles } => {
            tasks::decide_task(subject, input, (control, instance), (*id, order, roles))
        }
        Action::Replay => refuse("what it is to stand as did not come along"),
        Action::Migrate { .. } => Decision::Refuse(Refusal::Blocked {
            reasons: vec!["there is no definition with this hash".to_owned()],
        }),
        Action::Pause | Action::Cancel { .. } | Action::Retry | Action::Skip | Action::ForceComplete
            if instance.paused =>
        {
            refuse("resume it first")
        }
        Action::Pause | Action::Cancel { .. } if instance.status.is_final() => refuse("it has ended"),
        Action::Pause => Decision::Commit(Box::new(flag(subject, input, true))),
        Action::Cancel { reason } => react(subject, input, &Stimulus::Cancel { reason }),
        Action::Retry if instance.status == Status::Stuck => react(subject, input, &Stimulus::Retry),
        Action::Retry => refuse("only a stuck instance can be retried"),
        Action::Skip if instance.status == Status::Stuck => react(subject, input, &Stimulus::Skip),
        Action::Skip => refuse("only what made an instance stuck can be skipped"),
        Action::ForceComplete if instance.status == Status::Stuck => {
            react(subject, input, &Stimulus::ForceComplete)
        }
        Action::ForceComplete => refuse("only a stuck instance can be completed by force"),
    }
}

/// A signal is an event that is addressed to one instance.
fn signal_event(key: &InstanceKey, control: &Control, kind: &EventType, data: &Value) -> Event {
    Event {
        id: control.id.clone(),
        tenant: key.tenant.clone(),
        kind: kind.clone(),
        source: "orlog:signal".to_owned(),
        subject: None,
        time: control.at,
        correlation: Some(key.correlation.clone()),
        causation: None,
        trace: control.trace.clone(),
        schema_version: 1,
        data: data.clone(),
    }
}

/// The outcome as if it told nothing besides. What a commit keeps of it (held, set aside) is this, so that facts go out once.
pub(crate) fn bare(outcome: &Outcome) -> Outcome {
    Outcome { facts: Vec::new(), ..outcome.clone() }
}

/// Puts the facts into the commit that was made of the bare outcome.
pub(crate) fn told(subject: &Subject<'_>, outcome: &Outcome, mut decision: Decision) -> Decision {
    match &mut decision {
        Decision::Commit(commit) | Decision::Ignore { clear: Some(commit), .. } => {
            tell(subject, outcome, commit);
        }
        Decision::Ignore { clear: None, .. } | Decision::Refuse(_) => {}
    }
    decision
}

fn tell(subject: &Subject<'_>, outcome: &Outcome, commit: &mut Commit) {
    let causation = Input::Outcome(bare(outcome)).id();
    let own = || subject.instance.and_then(|instance| instance.trace.as_ref());
    let trace = outcome.trace.as_ref().or_else(own);
    for (index, fact) in outcome.facts.iter().enumerate() {
        let item = item(subject, outcome, (index, fact), (&causation, trace));
        if let Some(record) = &mut commit.history {
            record.work.push((item.work.label(), item.id));
        }
        commit.work.push(item);
    }
}

/// Its id depends on the work that told it, not on the state of the instance: a second delivery makes the same.
fn item(
    subject: &Subject<'_>,
    outcome: &Outcome,
    (index, fact): (usize, &Fact),
    (causation, trace): (&EventId, Option<&TraceParent>),
) -> WorkItem {
    WorkItem {
        id: derived_id(outcome.at, &[outcome.work_id.as_bytes(), b"fact", &(index as u64).to_le_bytes()]),
        instance: subject.key.clone(),
        work: Work::Fact(fact.clone()),
        deadline: None,
        causation: causation.clone(),
        trace: trace.cloned(),
        created_at: subject.now,
    }
}
