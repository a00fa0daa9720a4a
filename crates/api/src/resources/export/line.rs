//! Lines of the export: instances, tasks, task events and history entries in the format of the API.

use orlog_model::{Instance, InstanceKey, TenantId};
use orlog_store::{FeedEntity, FeedItem};
use serde::Serialize;
use serde_json::{Value, json};

use super::cursor::ExportCursor;
use crate::resources::sagas::{
    HistoryEntryView, InstanceSummary, ParentView, displayed_state, hidden_values,
    stored_hidden_values,
};
use crate::resources::tasks::{TaskEventView, TaskView};
use crate::server::read_scope::ReadScope;

/// State of one entity.
#[derive(Debug, Serialize)]
struct ExportLine<'a> {
    kind: &'static str,
    op: &'static str,
    shard: u16,
    position: u64,
    tenant: &'a str,
    key: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

/// Instance without its in-flight work, which changes without a commit of the instance.
#[derive(Debug, Serialize)]
struct ExportedInstance {
    #[serde(flatten)]
    summary: InstanceSummary,
    state: Value,
    parent: Option<ParentView>,
    last_input_id: String,
    node: String,
    trace_id: Option<String>,
}

/// Last line of a response.
#[derive(Debug, Serialize)]
struct EndLine {
    kind: &'static str,
    cursor: String,
    has_more: bool,
    snapshotting: bool,
}

/// Returns the tenant of an entity.
pub(super) fn tenant(touched: &FeedItem) -> &TenantId {
    match &touched.entity {
        FeedEntity::Instance(key, _) | FeedEntity::HistoryEntry(key, ..) => &key.tenant,
        FeedEntity::Task(tenant, ..) | FeedEntity::TaskEvent(tenant, ..) => tenant,
    }
}

/// Returns the line of a changed entity.
pub(crate) fn entity_line(scope: &ReadScope, shard: u16, touched: &FeedItem) -> String {
    let (kind, tenant, key, value) = match &touched.entity {
        FeedEntity::Instance(key, now) => (
            "instance",
            &key.tenant,
            named(key),
            now.as_deref().map(|now| instance(scope, key, now)),
        ),
        FeedEntity::Task(tenant, id, now) => (
            "task",
            tenant,
            json!({ "id": id }),
            now.as_deref()
                .map(|now| to_json(&TaskView::of(now, scope.redact()))),
        ),
        FeedEntity::TaskEvent(tenant, task, sequence, now) => {
            let key = json!({ "task": task, "sequence": sequence });
            (
                "task_event",
                tenant,
                key,
                now.as_deref().map(|now| to_json(&TaskEventView::of(now))),
            )
        }
        FeedEntity::HistoryEntry(of, version, now) => {
            let mut key = named(of);
            key["version"] = json!(version);
            (
                "history",
                &of.tenant,
                key,
                now.as_deref().map(|now| {
                    // Texts of an entry can quote values of the state, which the entry itself does
                    // not contain.
                    let hidden = stored_hidden_values(scope.stores(), of);
                    to_json(&HistoryEntryView::of(now, &hidden, scope.redact()))
                }),
            )
        }
    };

    // The feed contains keys, and the row is read now: a key without a row was deleted.
    let op = if value.is_some() { "put" } else { "delete" };
    line(&ExportLine {
        kind,
        op,
        shard,
        position: touched.position,
        tenant: tenant.as_str(),
        key,
        value,
    })
}

/// Returns the first line of a snapshot: the client must discard its existing copy.
pub(crate) fn reset_line() -> String {
    line(&json!({ "kind": "reset" }))
}

/// Returns the last line of a response.
pub(crate) fn end_line(cursor: &ExportCursor, more: bool) -> String {
    let is_scanning = cursor.is_scanning();
    let cursor = cursor.text();
    line(&EndLine {
        kind: "cursor",
        cursor,
        has_more: more || is_scanning,
        snapshotting: is_scanning,
    })
}

fn line(of: &impl Serialize) -> String {
    let mut text = serde_json::to_string(of).expect("a line serializes to JSON");
    text.push('\n');
    text
}

fn named(key: &InstanceKey) -> Value {
    json!({ "saga": key.saga, "correlation": key.correlation })
}

fn instance(scope: &ReadScope, key: &InstanceKey, instance: &Instance) -> Value {
    to_json(&ExportedInstance {
        summary: InstanceSummary::of(key, instance, &hidden_values(scope.stores(), instance)),
        state: scope
            .redact()
            .redact(displayed_state(scope.stores(), instance)),
        parent: instance.parent.as_deref().map(ParentView::of),
        last_input_id: instance.last_input.to_string(),
        node: instance.node.clone().into(),
        trace_id: instance
            .trace
            .as_ref()
            .map(|trace| trace.trace_id().to_owned()),
    })
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("an API view serializes to JSON")
}
