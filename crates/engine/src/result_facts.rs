//! Facts of a work result: the commit that receives the result publishes them, whatever the
//! decision.
//!
//! A commit that buffers or dead-letters the result stores it without its facts, so that they are
//! published once.

use std::borrow::Cow;

use orlog_model::{
    Commit, EventId, Fact, Input, Instance, InstanceKey, Priority, Timestamp, TraceParent, Work,
    WorkItem, WorkResult, derive_child_id,
};

/// Returns a work result without its facts.
pub(crate) fn without_facts(result: &WorkResult) -> WorkResult {
    WorkResult {
        facts: Vec::new(),
        publishes: false,
        ..result.clone()
    }
}

/// Returns the input as a dead letter contains it: its facts and its result are published by the
/// commit of the dead letter.
#[must_use]
pub fn without_published(input: &Input) -> Cow<'_, Input> {
    match input {
        Input::WorkResult(result) if result.publishes || !result.facts.is_empty() => {
            Cow::Owned(Input::WorkResult(without_facts(result)))
        }
        _ => Cow::Borrowed(input),
    }
}

/// Adds the facts of a work result to a commit that does not contain them.
pub fn emit_facts(
    key: &InstanceKey,
    instance: Option<&Instance>,
    result: &WorkResult,
    now: Timestamp,
    payload_bytes: usize,
    commit: &mut Commit,
) {
    let causation = Input::WorkResult(without_facts(result)).id();
    let trace = result
        .trace
        .as_ref()
        .or_else(|| instance.and_then(|instance| instance.trace.as_ref()));

    for (index, fact) in result.facts.iter().enumerate() {
        let item = item(key, now, result, index, fact, &causation, trace);

        // The entry was built without the facts.
        if let Some(record) = &mut commit.history {
            record.work.push((item.work.label(), item.id));
            let data = item.work.payload().filter(|data| !data.is_null());
            record.payloads.push(data, payload_bytes);
        }
        commit.work.push(item);
    }
}

/// Returns the work item of one fact.
fn item(
    key: &InstanceKey,
    now: Timestamp,
    result: &WorkResult,
    index: usize,
    fact: &Fact,
    causation: &EventId,
    trace: Option<&TraceParent>,
) -> WorkItem {
    WorkItem {
        // The id depends on the emitting work item, not on the state of the instance: a second
        // delivery of the result has the same facts.
        id: derive_child_id(result.work_id, &[b"fact", &(index as u64).to_le_bytes()]),
        instance: key.clone(),
        work: Work::Fact(fact.clone()),
        deadline: None,
        causation: causation.clone(),
        trace: trace.cloned(),
        created_at: now,
        priority: Priority::Normal,
    }
}
