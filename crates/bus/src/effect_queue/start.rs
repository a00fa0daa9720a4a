//! Record that the first attempt of a command starts, beside its result:
//! `effect_result.<effect>.<command id>.started`.
//!
//! An attempt whose start is recorded and that has no result is in doubt. The record is in the
//! stream of the results, so that it is retained as long as the result would be.

use bytes::Bytes;
use orlog_model::{Effect, Timestamp, WorkItem};
use serde::Serialize;
use uuid::Uuid;

use super::headers::headers;
use super::result_subject;
use crate::Message;
use crate::subject::start_subject;

/// `ce-type` of a start.
const TYPE: &str = "orlog.effect.started";

#[derive(Serialize)]
struct Envelope<'a> {
    command_id: Uuid,
    /// Distinguishes the executions of a command: the record of an own execution is no reason for
    /// doubt.
    execution: Uuid,
    node: &'a str,
    timestamp: String,
}

/// Encodes the start of the first attempt of an execution on a node.
///
/// # Panics
/// Never: an envelope can always be serialized as JSON.
#[must_use]
pub fn encode(
    item: &WorkItem,
    effect: &Effect,
    execution: Uuid,
    node: &str,
    at: Timestamp,
) -> Message {
    let envelope = Envelope {
        command_id: item.id,
        execution,
        node,
        timestamp: at.to_string(),
    };
    let body = serde_json::to_vec(&envelope).expect("an envelope can be serialized as JSON");
    let id = execution.to_string();

    let headers = headers(
        &item.instance,
        &id,
        item.causation.as_str(),
        item.trace.as_ref(),
        TYPE,
        at,
    );
    Message {
        subject: start_subject(&result_subject(item, &effect.name)),
        // Without a deduplication id: the expectation of an empty subject decides which record is
        // the first.
        id: None,
        headers,
        payload: Bytes::from(body),
    }
}
