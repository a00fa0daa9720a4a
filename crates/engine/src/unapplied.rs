//! Unapplied results: results of pending work that became dead letters.
//!
//! Without its result, an instance waits for ever and shows no reason. The commit of the dead
//! letter therefore marks the pending work and sets the last error. The mark ends when the result
//! is applied after a redrive, or when the program requests the work again or no longer waits for
//! it.

use std::sync::Arc;

use orlog_model::{Commit, Failure, HistoryEntry, Input, InputOrigin, Instance, Timestamp};

use crate::commit_builder::truncate_note;
use crate::last_error::last_error;
use crate::record;

/// Marks the pending work of an input that the commit dead-letters. Changes nothing if the input is
/// no result of pending work.
pub fn mark_unapplied(
    instance: Option<&Instance>,
    input: &Input,
    now: Timestamp,
    node: &str,
    payload_bytes: usize,
    commit: &mut Commit,
) {
    let Some(dead_letter) = &commit.dead_letter else {
        return;
    };
    let Some(work_id) = input.completed_work_id() else {
        return;
    };

    let next = commit.instance.as_deref().or(instance);
    let Some(open) = next.and_then(|instance| {
        instance
            .pending_work
            .iter()
            .position(|work| work.id == work_id)
    }) else {
        return;
    };

    let id = Some(dead_letter.id);

    // The commit already contains the next snapshot: the crash of the program paused the instance.
    if let Some(next) = &mut commit.instance {
        Arc::make_mut(next).pending_work[open].dead_letter = id;
        return;
    }

    // The dead letter alone does not change the instance, so the mark needs a version of its own.
    let Some(instance) = instance else { return };

    let tag = instance.pending_work[open].tag.clone();
    let message = format!(
        "the result of {tag} could not be applied: {}",
        dead_letter.message
    );
    let failure = Failure {
        code: dead_letter.reason.as_str().to_owned(),
        message,
    };

    let mut next = Instance {
        version: instance.version + 1,
        last_error: last_error(
            Some(instance),
            input,
            Some(failure.clone().into()),
            instance.status,
            now,
        ),
        updated_at: now,
        node: node.into(),
        ..instance.clone()
    };
    next.pending_work[open].dead_letter = id;

    commit.history = Some(HistoryEntry {
        version: next.version,
        at: now,
        input_id: input.id(),
        input_label: input.label().into(),
        note: truncate_note(format!("{tag}: result dead-lettered")),
        status: next.status,
        work: Vec::new(),
        origin: InputOrigin::new(input, node, now),
        payloads: record::payloads(input, &[], &[], payload_bytes),
        failure: record::failure(input, Some(&failure)),
        input: None,
    });

    commit.instance = Some(Arc::new(next));
}
