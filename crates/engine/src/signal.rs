//! Signals: events that are delivered to one instance only.

use orlog_model::{ControlRequest, Event, EventType, Input, Instance, InstanceKey};
use orlog_program::ProgramInput;
use serde_json::Value;

use crate::context::DecisionContext;
use crate::decision::Decision;
use crate::run_program::{buffer_input, decide_with_program};

/// Decides a signal to an instance that exists.
pub(crate) fn decide_signal(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    (kind, data): (&EventType, &Value),
    instance: &Instance,
) -> Decision {
    if instance.paused {
        return buffer_input(context, input);
    }
    let event = signal_event(context.key, control, kind, data);
    decide_with_program(context, input, &ProgramInput::Event(&event))
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
    }
}
