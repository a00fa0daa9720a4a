//! The `paused` flag: set and cleared by an operator, and set when a program crashes.

use std::sync::Arc;

use orlog_model::{
    ArmedTimer, Commit, Failure, HistoryEntry, Input, InputOrigin, Instance, InstanceFailure,
};

use crate::commit_builder::{truncate_note, user_note};
use crate::context::{DecisionContext, timer_row};
use crate::last_error::last_error;
use crate::record;

/// Failure code of a crashed program.
const PROGRAM_CRASHED: &str = "program_crashed";

/// Pauses the instance, if it exists, in the commit that dead-letters the input.
pub(crate) fn pause_after_crash(
    context: &DecisionContext<'_>,
    input: &Input,
    message: &str,
    commit: &mut Commit,
) {
    let failure = Failure {
        code: PROGRAM_CRASHED.to_owned(),
        message: message.to_owned(),
    };

    // The transition that the program intended is unknown, so state, timers and pending work stay,
    // and no later input is applied to them.
    let paused_instance = context
        .instance
        .map(|instance| with_paused_flag(context, instance, true));
    commit.instance = paused_instance.map(|next| {
        Arc::new(Instance {
            last_error: crash_error(&next, input, &failure),
            ..next
        })
    });

    commit.history = history_entry(
        context,
        input,
        commit,
        format!("paused: {message}"),
        Some(&failure),
    );
}

fn crash_error(next: &Instance, input: &Input, failure: &Failure) -> Option<Box<InstanceFailure>> {
    last_error(
        Some(next),
        input,
        Some(failure.clone().into()),
        next.status,
        next.updated_at,
    )
}

/// Sets or clears the `paused` flag without running the program.
pub(crate) fn set_paused(context: &DecisionContext<'_>, input: &Input, paused: bool) -> Commit {
    let mut commit = Commit::empty(context.key.clone(), context.now);

    let updated = context
        .instance
        .map(|instance| with_paused_flag(context, instance, paused));
    commit.instance = updated.map(|mut instance| {
        if !paused {
            rearm_timers(&mut instance, input, &mut commit);
        }
        Arc::new(Instance {
            last_input: input.id(),
            ..instance
        })
    });

    // A repeated request has no second effect.
    commit.dedupe_key = input.dedupe_key();
    commit.history = history_entry(context, input, &commit, flag_note(input, paused), None);
    commit
}

/// Arms the timers of the program again: those that fired during the pause have no row any more. They
/// fire after the buffered inputs, which the instance applies first.
fn rearm_timers(instance: &mut Instance, input: &Input, commit: &mut Commit) {
    let identity = input.identity();
    let of_program = |timer: &&mut ArmedTimer| timer.signal.is_none();
    for timer in instance.timers.iter_mut().filter(of_program) {
        commit.disarm.push(timer_row(timer));
        // The rows of the store never repeat.
        timer.token = identity.hash_with(timer.name.as_str().as_bytes());
        commit.arm.push(timer_row(timer));
    }
}

/// Returns the next version of the snapshot with the flag changed.
fn with_paused_flag(context: &DecisionContext<'_>, instance: &Instance, paused: bool) -> Instance {
    Instance {
        version: instance.version + 1,
        paused,
        updated_at: context.now,
        node: context.node.into(),
        ..instance.clone()
    }
}

fn history_entry(
    context: &DecisionContext<'_>,
    input: &Input,
    commit: &Commit,
    note: String,
    failure: Option<&Failure>,
) -> Option<HistoryEntry> {
    let instance = commit.instance.as_ref()?;
    Some(HistoryEntry {
        version: instance.version,
        at: context.now,
        input_id: input.id(),
        input_label: input.label().into(),
        note: truncate_note(note),
        status: instance.status,
        work: Vec::new(),
        origin: InputOrigin::new(input, context.node, context.now),
        payloads: record::payloads(input, &[], &[], context.history_payload_bytes),
        failure: record::failure(input, failure),
        input: None,
    })
}

fn flag_note(input: &Input, paused: bool) -> String {
    let label = if paused { "paused" } else { "resumed" };

    match input {
        Input::Control(control) => user_note(label, control),
        Input::Event(_)
        | Input::WorkResult(_)
        | Input::Timer(_)
        | Input::Workflow(_)
        | Input::Early(_) => label.to_owned(),
    }
}
