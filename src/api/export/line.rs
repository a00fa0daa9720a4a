//! What a line says: instances, tasks and what happened to them as the rest of the API shows them.

use orlog_model::{Instance, InstanceKey};
use orlog_store::{Entity, Touched};
use serde::Serialize;
use serde_json::{Value, json};

use super::cursor::Cursor;
use crate::api::sagas::{ParentView, RecordView, Summary, state};
use crate::api::tasks::{TaskEventView, TaskView};
use crate::app::App;

/// One thing as it stands.
#[derive(Debug, Serialize)]
struct Line<'a> {
    kind: &'static str,
    op: &'static str,
    shard: u16,
    position: u64,
    tenant: &'a str,
    key: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

/// An instance; what is under way in it changes without a word and is not in it.
#[derive(Debug, Serialize)]
struct InstanceView {
    #[serde(flatten)]
    summary: Summary,
    state: Value,
    parent: Option<ParentView>,
    last_input: String,
    node: String,
    trace_id: Option<String>,
}

/// The last line.
#[derive(Debug, Serialize)]
struct Last {
    kind: &'static str,
    cursor: String,
    more: bool,
    scanning: bool,
}

/// The line of something that was touched.
pub(super) fn of(app: &App, shard: u16, touched: &Touched) -> String {
    let (kind, tenant, key, value) = match &touched.entity {
        Entity::Instance(key, now) => {
            ("instance", &key.tenant, named(key), now.as_deref().map(|now| instance(app, key, now)))
        }
        Entity::Task(tenant, id, now) => {
            ("task", tenant, json!({ "id": id }), now.as_deref().map(|now| plain(&TaskView::of(now))))
        }
        Entity::TaskEvent(tenant, task, number, now) => {
            let key = json!({ "task": task, "number": number });
            ("task_event", tenant, key, now.as_deref().map(|now| plain(&TaskEventView::of(now))))
        }
        Entity::Record(of, version, now) => {
            let mut key = named(of);
            key["version"] = json!(version);
            ("history", &of.tenant, key, now.as_deref().map(|now| plain(&RecordView::of(now))))
        }
    };
    let op = if value.is_some() { "put" } else { "delete" };
    line(&Line { kind, op, shard, position: touched.position, tenant: tenant.as_str(), key, value })
}

/// The line that begins the first answer of all: whoever has something has it no more.
pub(super) fn first() -> String {
    line(&json!({ "kind": "begin" }))
}

/// The line that ends an answer.
pub(super) fn last(cursor: &Cursor, more: bool) -> String {
    let (is_scanning, cursor) = (cursor.is_scanning(), cursor.text());
    line(&Last { kind: "cursor", cursor, more: more || is_scanning, scanning: is_scanning })
}

fn line(of: &impl Serialize) -> String {
    let mut text = serde_json::to_string(of).expect("a line is plain data");
    text.push('\n');
    text
}

fn named(key: &InstanceKey) -> Value {
    json!({ "saga": key.saga, "correlation": key.correlation })
}

fn instance(app: &App, key: &InstanceKey, instance: &Instance) -> Value {
    let program = app.programs.pinned(&instance.program.hash);
    let shown = program.and_then(|program| program.show(&instance.state));
    plain(&InstanceView {
        summary: Summary::of(key, instance),
        state: app.config.redact.shown(shown.unwrap_or_else(|| state(&instance.state))),
        parent: instance.parent.as_deref().map(ParentView::of),
        last_input: instance.last_input.to_string(),
        node: instance.node.clone(),
        trace_id: instance.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
    })
}

fn plain(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("what callers see is plain data")
}
