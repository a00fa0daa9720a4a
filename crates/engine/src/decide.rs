//! What an input means for an instance, by kind of input and status.
//!
//! | input | no instance | paused | final or stuck | otherwise |
//! |---|---|---|---|---|
//! | event that starts | apply | hold | apply (program ignores or undoes) | apply |
//! | other event | ignore | hold | apply (program ignores or undoes) | apply |
//! | outcome of open work | ignore | hold | apply (a late success is undone) | apply |
//! | outcome of other work | ignore, settle | ignore, settle | ignore, settle | ignore, settle |
//! | armed timer | ignore, forget | hold | cannot be: none is armed | apply |
//! | stale timer | ignore, forget | ignore, forget | ignore, forget | ignore, forget |
//! | cancel | refuse | refuse | refuse when final | apply |
//! | retry | refuse | refuse | apply when stuck | refuse by the program |
//! | pause | refuse | refuse | refuse when final | set the flag |
//! | resume | refuse | clear the flag | refuse | refuse |
//! | signal | refuse | hold | apply | apply |

use orlog_model::{
    Action, Commit, Control, DeadLetterReason, Event, EventType, Input, InstanceKey, Outcome, Record, Status,
    TimerFired,
};
use orlog_program::{Context, Fault, Program, Reaction, Stimulus};
use serde_json::Value;

use crate::apply::{Cause, applied};
use crate::set_aside::{Grounds, set_aside};
use crate::subject::{Subject, cleared, marker};

/// What is to be done about an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Store this; the instance changed, or the input was kept or set aside.
    Commit(Box<Commit>),
    /// Nothing changes for the instance. The commit, where there is one, only clears away rows of the input.
    Ignore {
        /// Why, for the log.
        why: &'static str,
        /// What to clear away.
        clear: Option<Box<Commit>>,
    },
    /// An instruction that the status forbids. Nothing changes.
    Refuse(Refusal),
}

/// Why an instruction is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such instance.
    #[error("there is no such saga instance")]
    NotFound,
    /// The instance has moved on since the caller looked.
    #[error("the instance stands at version {actual}, not {expected}")]
    Version {
        /// What the caller expected.
        expected: u64,
        /// Where it stands.
        actual: u64,
    },
    /// The status forbids it.
    #[error("the instance is {status}{}: {why}", if *.paused { " and paused" } else { "" })]
    Status {
        /// Where it stands.
        status: Status,
        /// Whether it is paused.
        paused: bool,
        /// Why that forbids it.
        why: &'static str,
    },
}

/// Decides one input. See the table above.
#[must_use]
pub fn decide(subject: &Subject<'_>, input: &Input) -> Decision {
    match input {
        Input::Event(event) => decide_event(subject, input, event),
        Input::Outcome(outcome) => decide_outcome(subject, input, outcome),
        Input::Timer(timer) => decide_timer(subject, input, timer),
        Input::Control(control) => decide_control(subject, input, control),
    }
}

fn decide_event(subject: &Subject<'_>, input: &Input, event: &Event) -> Decision {
    match subject.instance {
        None if !starts(subject.program, event) => ignore("no instance waits for this event"),
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
        (_, None) | (None, _) => ignore_and_clear(subject, input, "the work is not open"),
    }
}

fn decide_timer(subject: &Subject<'_>, input: &Input, fired: &TimerFired) -> Decision {
    let armed = subject.instance.is_some_and(|instance| {
        instance.timers.iter().any(|t| t.name == fired.name && t.token == fired.token)
    });
    match subject.instance {
        Some(instance) if armed && instance.paused => hold(subject, input),
        Some(_) if armed => react(subject, input, &Stimulus::Timer { name: fired.name.as_str() }),
        Some(_) | None => ignore_and_clear(subject, input, "the timer is stale"),
    }
}

fn decide_control(subject: &Subject<'_>, input: &Input, control: &Control) -> Decision {
    let Some(instance) = subject.instance else { return Decision::Refuse(Refusal::NotFound) };
    if let Some(expected) = control.expected_version.filter(|v| *v != instance.version) {
        return Decision::Refuse(Refusal::Version { expected, actual: instance.version });
    }
    let refuse =
        |why| Decision::Refuse(Refusal::Status { status: instance.status, paused: instance.paused, why });
    match &control.action {
        Action::Resume if instance.paused => flag(subject, input, false),
        Action::Resume => refuse("only a paused instance can be resumed"),
        Action::Signal { .. } if instance.paused => hold(subject, input),
        Action::Signal { kind, data } => {
            let event = signal_event(subject.key, control, kind, data);
            react(subject, input, &Stimulus::Event(&event))
        }
        Action::Pause | Action::Cancel { .. } | Action::Retry if instance.paused => refuse("resume it first"),
        Action::Pause | Action::Cancel { .. } if instance.status.is_final() => refuse("it has ended"),
        Action::Pause => flag(subject, input, true),
        Action::Cancel { reason } => react(subject, input, &Stimulus::Cancel { reason }),
        Action::Retry if instance.status == Status::Stuck => react(subject, input, &Stimulus::Retry),
        Action::Retry => refuse("only a stuck instance can be retried"),
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
        trace: None,
        schema_version: 1,
        data: data.clone(),
    }
}

/// Shows the stimulus to the program and turns its answer into a decision.
fn react(subject: &Subject<'_>, input: &Input, stimulus: &Stimulus<'_>) -> Decision {
    let context = Context {
        key: subject.key,
        version: subject.instance.map_or(0, |i| i.version) + 1,
        now: subject.now,
    };
    let state = subject.instance.map(|i| i.state.as_slice());
    match subject.program.apply(state, stimulus, &context) {
        Ok(Reaction::Applied(transition)) => {
            let cause = Cause { input, id: input.id(), version: context.version };
            Decision::Commit(Box::new(applied(subject, &cause, *transition)))
        }
        Ok(Reaction::Ignored(why)) => ignore_and_clear(subject, input, why),
        Ok(Reaction::Refused(why)) => Decision::Refuse(Refusal::Status {
            status: subject.instance.map_or(Status::Running, |i| i.status),
            paused: subject.instance.is_some_and(|i| i.paused),
            why,
        }),
        Err(fault) => Decision::Commit(Box::new(fault_commit(subject, input, &fault))),
    }
}

fn fault_commit(subject: &Subject<'_>, input: &Input, fault: &Fault) -> Commit {
    let reason = match fault {
        Fault::Schema(_) => DeadLetterReason::SchemaMismatch,
        Fault::Program(_) => DeadLetterReason::ProgramError,
        Fault::State(_) => DeadLetterReason::SnapshotInconsistent,
    };
    set_aside(
        subject.key,
        input,
        Grounds { reason, message: fault.to_string(), attempts: 1 },
        subject.now,
        subject.node,
    )
}

/// Sets or clears the `paused` flag; the program is not asked.
fn flag(subject: &Subject<'_>, input: &Input, paused: bool) -> Decision {
    let mut commit = Commit::empty(subject.key.clone(), subject.now);
    commit.instance = subject.instance.cloned().map(|mut instance| {
        instance.version += 1;
        instance.paused = paused;
        instance.last_input = input.id();
        instance.updated_at = subject.now;
        subject.node.clone_into(&mut instance.node);
        instance
    });
    commit.applied = Some(input.id());
    commit.history = commit.instance.as_ref().map(|instance| Record {
        version: instance.version,
        at: subject.now,
        input: input.id(),
        label: input.label().to_owned(),
        note: if paused { "paused" } else { "resumed" }.to_owned(),
        status: instance.status,
        work: Vec::new(),
    });
    Decision::Commit(Box::new(commit))
}

/// Keeps the input until the instance is resumed.
fn hold(subject: &Subject<'_>, input: &Input) -> Decision {
    let mut commit = cleared(subject.key, input, subject.now);
    commit.hold = Some(input.clone());
    commit.applied = marker(input);
    Decision::Commit(Box::new(commit))
}

fn ignore(why: &'static str) -> Decision {
    Decision::Ignore { why, clear: None }
}

fn ignore_and_clear(subject: &Subject<'_>, input: &Input, why: &'static str) -> Decision {
    let commit = cleared(subject.key, input, subject.now);
    let clears = commit.settles.is_some() || !commit.disarm.is_empty();
    Decision::Ignore { why, clear: clears.then(|| Box::new(commit)) }
}
