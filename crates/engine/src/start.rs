//! Start requests: start of an instance by a request, and signal with start.
//!
//! | instance | `return` | `fail` | `restart` | with a signal |
//! |---|---|---|---|---|
//! | none | start | start | start | start, buffer the signal in the same commit |
//! | active, stuck or paused | ignore | reject | reject | deliver the signal; `fail`: reject |
//! | ended, work or tasks pending | ignore | reject | reject | deliver; `fail`, `restart`: reject |
//! | ended | ignore | reject | start a new run | deliver; `fail`: reject; `restart`: new run |
//!
//! A new run continues the state versions and the history of the instance, so a version never
//! refers to two states. Its run id is new: results of work of the previous run do not concern it.

use orlog_model::{
    ControlAction, ControlRequest, Event, EventId, Input, OnExisting, StartRequest, StartSignal,
};
use orlog_program::{ProgramInput, ProgramOutput};

use crate::commit_builder::build_commit;
use crate::context::{DecisionContext, TransitionCause};
use crate::decision::{Decision, Rejection, ignore};
use crate::run_program::run_program;
use crate::signal::{decide_signal, requires_instance, signal_event};

/// Decides a start request.
pub(crate) fn decide_start(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    start: &StartRequest,
) -> Decision {
    let Some(instance) = context.instance else {
        return if requires_instance(control) {
            Decision::Reject(Rejection::NotFound)
        } else {
            begin(context, input, control, start, 1)
        };
    };

    let reject = |reason: &'static str| {
        Decision::Reject(Rejection::InvalidStatus {
            status: instance.status,
            paused: instance.paused,
            reason: reason.into(),
        })
    };

    match (start.on_existing, &start.signal) {
        (OnExisting::Fail, _) => Decision::Reject(Rejection::Exists {
            status: instance.status,
        }),
        (OnExisting::Restart, _) if instance.is_finished() => {
            // The program starts from nothing; only the state versions continue.
            let next = DecisionContext {
                instance: None,
                ..*context
            };
            begin(&next, input, control, start, instance.version + 1)
        }
        (OnExisting::Restart, _) if instance.status.is_final() => {
            // A late success of the old run must still be compensated, and the new run does not
            // know its step.
            reject("it has ended and still has pending work; retry when it has none")
        }
        (OnExisting::Restart, None) => reject("only an ended instance can be restarted"),
        (OnExisting::Return | OnExisting::Restart, Some(StartSignal { kind, data, due_at })) => {
            let event = signal_event(context.key, control, kind, data);
            decide_signal(context, input, control, &event, *due_at, instance)
        }
        (OnExisting::Return, None) => ignore("the instance exists"),
    }
}

/// Starts a run with this state version. `context` has no instance.
fn begin(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    start: &StartRequest,
    version: u64,
) -> Decision {
    let reject = |reason: String| Decision::Reject(Rejection::StartRejected { reason });
    let saga = &context.key.saga;
    let Some(kind) = context.program.start_event(start.event.as_ref()).cloned() else {
        return reject(match &start.event {
            Some(event) => format!("\"{event}\" is not a start event of saga \"{saga}\""),
            None => format!("saga \"{saga}\" has no start event"),
        });
    };

    let event = start_event(context, control, start, kind);

    match run_program(context, input, &ProgramInput::Event(&event)) {
        Ok(ProgramOutput::Applied(transition)) => {
            let mut commit =
                build_commit(context, TransitionCause::new(input, version), *transition);
            // The same commit stores the signal, so that a crash between both loses nothing.
            commit.buffer = start
                .signal
                .as_ref()
                .map(|signal| Box::new(signal_after(input, control, signal)));
            Decision::Commit(commit)
        }
        Ok(ProgramOutput::Ignored(reason) | ProgramOutput::Rejected(reason)) => {
            reject(reason.into_owned())
        }
        Err(fault) => reject(fault.to_string()),
    }
}

fn start_event(
    context: &DecisionContext<'_>,
    control: &ControlRequest,
    start: &StartRequest,
    kind: orlog_model::EventType,
) -> Event {
    Event {
        id: control.id.clone(),
        tenant: context.key.tenant.clone(),
        kind,
        source: "orlog:start".to_owned(),
        subject: start.subject.clone(),
        time: control.at,
        correlation: Some(context.key.correlation.clone()),
        causation: None,
        trace: control.trace.clone(),
        schema_version: start.schema_version,
        data: start.data.clone(),
        user: control.user.clone(),
        attributes: None,
    }
}

/// Returns the signal that follows a start.
fn signal_after(input: &Input, control: &ControlRequest, signal: &StartSignal) -> Input {
    // A second transition with the id of the start would derive the same timer tokens.
    let id =
        EventId::new(format!("signal:{}", input.identity())).expect("a derived id is short ASCII");
    let StartSignal { kind, data, due_at } = signal.clone();
    let action = ControlAction::Signal { kind, data, due_at };

    // The conditions of the request concerned the instance before its start.
    Input::Control(ControlRequest {
        id,
        action,
        expected_version: None,
        wait_token: None,
        ..control.clone()
    })
}
