//! Origins of waits: what distinguishes a wait from an earlier one for the same condition.

use orlog_model::{
    ControlAction, ControlRequest, DedupeKey, EventType, Input, Instance, Timestamp, Wait, WaitKind,
};

/// Sets the origins of the waits of an instance after a transition. `before` is the instance before
/// it, in the same run.
pub(crate) fn set_origins(
    instance: &mut Instance,
    before: Option<&Instance>,
    input: &Input,
    identity: DedupeKey,
) {
    let mut waits = std::mem::take(&mut instance.waits);
    for wait in &mut waits {
        let is_new = std::mem::take(&mut wait.is_new);

        // Work, timers and tasks identify their waits themselves.
        let Some(before) = before.filter(|_| instance.subject_of(wait).is_none()) else {
            wait.origin = 0;
            continue;
        };

        // A wait lasts if the instance waited for the same before, unless the input ended that wait
        // or the program began it again.
        let lasts = !is_new && !ends(input, wait, before);
        let earlier = before
            .waits
            .iter()
            .find(|earlier| lasts && earlier.is_like(wait));
        wait.origin = earlier.map_or_else(|| hash(input, identity, wait), |earlier| earlier.origin);
    }

    instance.waits = waits;
}

/// Returns the origin of a wait that begins with an input. It is not 0.
fn hash(input: &Input, identity: DedupeKey, wait: &Wait) -> u32 {
    // Work that may have been executed is requested again under its id, and its results have one
    // identity: the time of the request tells them apart.
    let request = requested_at(input).map_or(0, |time| {
        identity.hash_with(&time.as_millis().to_le_bytes())
    });
    let low = (identity.hash_with(wait.name.as_str().as_bytes()) ^ request) & u64::from(u32::MAX);
    // The value 0 is reserved for waits with which the run started.
    u32::try_from(low).unwrap_or_default().max(1)
}

/// Returns the time at which the work of a result was requested.
fn requested_at(input: &Input) -> Option<Timestamp> {
    match input {
        Input::WorkResult(result) => Some(result.requested_at),
        Input::Early(early) => requested_at(&early.input),
        Input::Event(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => None,
    }
}

/// Returns whether an applied input ended the wait of this kind and name.
fn ends(input: &Input, wait: &Wait, before: &Instance) -> bool {
    match wait.kind {
        WaitKind::Event => {
            applied_event(input, before).is_some_and(|kind| kind.as_str() == wait.name.as_str())
        }
        WaitKind::Operator => matches!(
            input,
            Input::Control(ControlRequest {
                action: ControlAction::Retry | ControlAction::Skip | ControlAction::ForceComplete,
                ..
            })
        ),
        WaitKind::WorkResult | WaitKind::Timer | WaitKind::Task | WaitKind::Saga => false,
    }
}

/// Returns the type of the event that an input applies.
fn applied_event<'a>(input: &'a Input, before: &'a Instance) -> Option<&'a EventType> {
    match input {
        Input::Event(event) => Some(&event.kind),
        Input::Timer(fired) => before
            .scheduled_signal(fired)
            .map(|signal| &signal.event.kind),
        Input::Early(early) => applied_event(&early.input, before),
        Input::Control(control) => match &control.action {
            ControlAction::Signal { kind, .. } => Some(kind),
            ControlAction::Deliver { event, .. } => Some(&event.kind),
            ControlAction::Start(start) => start.signal.as_ref().map(|signal| &signal.kind),
            ControlAction::Cancel { .. }
            | ControlAction::Pause
            | ControlAction::Resume
            | ControlAction::Retry
            | ControlAction::Skip
            | ControlAction::ForceComplete
            | ControlAction::Drop
            | ControlAction::Task { .. }
            | ControlAction::Replay
            | ControlAction::Migrate { .. } => None,
        },
        Input::WorkResult(_) | Input::Workflow(_) => None,
    }
}
