//! Signals: events that are delivered to one instance only, at once or at a time.
//!
//! A signal for a later time is a timer of the instance that carries the event. It survives
//! migrations, and the end of the instance cancels it. Its conditions are checked when it is
//! accepted; the token of its wait also when it is due.

use std::sync::Arc;

use orlog_model::{
    ArmedTimer, ControlRequest, Event, EventType, Input, Instance, InstanceKey, Name,
    ScheduledSignal, Timestamp, json_length,
};
use orlog_program::ProgramInput;
use serde_json::Value;

use crate::context::{DecisionContext, timer_row};
use crate::decision::{Decision, Rejection, ignore};
use crate::early_input;
use crate::run_program::{buffer_input, commit_unchanged, decide_with_program};

/// Maximum number of signals that wait for their time, for each instance.
const MAX_SCHEDULED: usize = 100;
/// Maximum size of their data in JSON, in bytes. It is a part of the snapshot.
const MAX_SCHEDULED_BYTES: usize = 64 << 10;
/// Prefix of the names of their timers; the id of the signal follows.
const TIMER_PREFIX: &str = "signal:";

/// Decides a signal to an instance that exists.
pub(crate) fn decide_signal(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    event: &Event,
    due_at: Option<Timestamp>,
    instance: &Instance,
) -> Decision {
    // A buffered signal is applied after the resume, which has a version of its own.
    if instance.paused && control.expected_version.is_some() {
        return reject(
            instance,
            "resume it first: it buffers no signal with an expected version",
        );
    }

    if instance.paused {
        return buffer_input(context, input);
    }

    // The time can pass while the signal is buffered. It then means at once.
    match due_at.filter(|due| *due > context.now) {
        Some(due) => schedule(context, input, control, event, due, instance),
        None => decide_with_program(context, input, &ProgramInput::Event(event)),
    }
}

/// Decides a signal of the bus to an instance that does not exist.
pub(crate) fn decide_early_signal(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    event: &Event,
    due_at: Option<Timestamp>,
) -> Decision {
    let starts = context.program.start_event(Some(&event.kind)).is_some();
    let is_late = due_at.is_some_and(|due| due > context.now);

    // A timer needs an instance to belong to, so a signal for a later time cannot start one.
    if requires_instance(control) || starts && is_late {
        return Decision::Reject(Rejection::NotFound);
    }

    if starts {
        return decide_with_program(context, input, &ProgramInput::Event(event));
    }
    early_input::buffer_event(context, input, event)
}

/// Returns whether the conditions of a request hold for no instance that does not exist. It has
/// version 0.
pub(crate) fn requires_instance(control: &ControlRequest) -> bool {
    control.wait_token.is_some() || control.expected_version.is_some_and(|version| version > 0)
}

/// Returns why a request is stale; `None` if its conditions hold.
pub(crate) fn staleness(instance: &Instance, control: &ControlRequest) -> Option<Rejection> {
    let actual = instance.version;
    if let Some(expected) = control.expected_version.filter(|it| *it != actual) {
        return Some(Rejection::VersionMismatch { expected, actual });
    }
    control
        .wait_token
        .filter(|token| !instance.waits_under(*token))
        .map(|token| Rejection::WaitEnded { token })
}

/// Arms the timer of a signal.
fn schedule(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    event: &Event,
    due: Timestamp,
    instance: &Instance,
) -> Decision {
    if instance.status.is_final() {
        return ignore("the instance has ended");
    }

    let scheduled = || {
        instance
            .timers
            .iter()
            .filter_map(|timer| timer.signal.as_deref())
    };

    // The dedupe key of the input can expire before the time of the signal.
    if scheduled().any(|signal| signal.event.dedupe_key() == event.dedupe_key()) {
        return ignore("the signal is already scheduled");
    }

    // The snapshot contains the signals, and each transition writes it.
    let bytes: usize = scheduled()
        .map(|signal| &signal.event)
        .chain([event])
        .map(|event| json_length(&event.data))
        .sum();
    if scheduled().count() >= MAX_SCHEDULED || bytes > MAX_SCHEDULED_BYTES {
        return reject(
            instance,
            "at most 100 signals with 64 KiB of data can wait for their time; send it later",
        );
    }

    let name = Name::new(format!("{TIMER_PREFIX}{}", event.id))
        .expect("an event id is shorter than a name");
    // The token is a hash of the input, as that of every timer.
    let token = input.identity().hash_with(name.as_str().as_bytes());
    let signal = ScheduledSignal {
        event: event.clone(),
        wait_token: control.wait_token,
    };
    let timer = ArmedTimer {
        name,
        token,
        due,
        trace: None,
        signal: Some(Box::new(signal)),
    };

    let note = format!("{}: scheduled for {due}", event.kind);
    let mut commit = commit_unchanged(context, input, instance, note);
    commit.arm.push(timer_row(&timer));
    if let Some(next) = &mut commit.instance {
        Arc::make_mut(next).timers.push(timer);
    }

    Decision::Commit(commit)
}

fn reject(instance: &Instance, reason: &'static str) -> Decision {
    Decision::Reject(Rejection::InvalidStatus {
        status: instance.status,
        paused: instance.paused,
        reason: reason.into(),
    })
}

/// Decides the timer of a signal: delivers the signal unless its wait has ended.
pub(crate) fn deliver_scheduled(
    context: &DecisionContext<'_>,
    input: &Input,
    instance: &Instance,
    signal: &ScheduledSignal,
) -> Decision {
    let kind = &signal.event.kind;
    let skip = |reason: &str| {
        Decision::Commit(commit_unchanged(
            context,
            input,
            instance,
            format!("{kind}: {reason}"),
        ))
    };

    // The wait can end between the request and the time of the signal.
    if signal
        .wait_token
        .is_some_and(|token| !instance.waits_under(token))
    {
        return skip("stale signal, its wait has ended");
    }

    // The timer has fired and its row must go, so an ignored signal is a commit, too.
    match decide_with_program(context, input, &ProgramInput::Event(&signal.event)) {
        Decision::Ignore { reason, .. } => skip(&format!("ignored, {reason}")),
        Decision::Reject(rejection) => skip(&format!("ignored, {rejection}")),
        commit @ Decision::Commit(_) => commit,
    }
}

/// Returns the event of a signal: an event that is delivered to one instance only.
pub(crate) fn signal_event(
    key: &InstanceKey,
    control: &ControlRequest,
    kind: &EventType,
    data: &Value,
) -> Event {
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
        user: control.user.clone(),
        attributes: None,
    }
}
