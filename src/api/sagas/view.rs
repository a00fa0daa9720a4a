//! Instances as callers see them: times as RFC 3339, the state in its program's words or as JSON where it can be read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::{
    Failure, InputKind, Instance, InstanceKey, Parent, ProgramRef, Record, Task, Wait, WaitKind,
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::work::{AttemptView, Outbox, kind};
use crate::api::tasks::FormView;
use crate::redact::Redact;

/// An instance in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Summary {
    saga: String,
    correlation: String,
    /// What the business calls it.
    reference: Option<String>,
    /// `running`, `compensating`, `completed`, `failed`, `cancelled` or `stuck`.
    status: &'static str,
    /// Inputs are kept, not applied.
    paused: bool,
    /// Grows by one with every transition.
    version: u64,
    /// The definition it is pinned to.
    program: ProgramView,
    /// What it waits for.
    waits: Vec<WaitView>,
    /// What went wrong last.
    last_error: Option<FailureView>,
    /// Time of the first transition.
    created_at: String,
    /// Time of the last transition.
    updated_at: String,
}

/// A definition, exactly.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProgramView {
    /// The author's number for it.
    version: u32,
    /// Its identity, in hexadecimal.
    hash: String,
}

/// Something that must happen first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WaitView {
    /// `event`, `outcome`, `timer`, `operator`, `task` or `saga`.
    kind: &'static str,
    name: String,
    /// Until when, where there is a limit.
    until: Option<String>,
}

/// Why something did not go well.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FailureView {
    /// For programs.
    code: String,
    /// For people.
    message: String,
}

/// Everything about an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Detail {
    tenant: String,
    #[serde(flatten)]
    summary: Summary,
    /// The program's state in the program's own words. Of a definition: `phase`, `steps` (a list of `id`, `state`,
    /// `until`), `vars`, `failure`. Where the program has no words for it or is gone: as JSON where it is, else
    /// `{"base64": …}`.
    state: Value,
    timers: Vec<TimerView>,
    /// Work whose outcome is still to come.
    open: Vec<OpenView>,
    /// Tasks for people that are open.
    tasks: Vec<OpenTask>,
    /// The saga that began it.
    parent: Option<ParentView>,
    outbox: Outbox,
    /// What was tried and did not go well at once, oldest first: the last 50 attempts, as far as this node remembers them since
    /// its start.
    attempts: Vec<AttemptView>,
    /// Inputs that are kept because it is paused.
    held: usize,
    /// The input of the last transition.
    last_input: String,
    /// The node that made the last transition.
    node: String,
    /// The trace that began it.
    trace_id: Option<String>,
    history: History,
}

/// A timer that is armed.
#[derive(Debug, Serialize, ToSchema)]
struct TimerView {
    name: String,
    due: String,
    /// The state version that armed it.
    token: u64,
}

/// Work under way.
#[derive(Debug, Serialize, ToSchema)]
struct OpenView {
    /// The idempotency key.
    id: String,
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// The program's label for it.
    tag: String,
}

/// A task that is open.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OpenTask {
    id: String,
    #[serde(flatten)]
    form: FormView,
}

/// The saga that began an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ParentView {
    saga: String,
    correlation: String,
    /// The work item that asked for it.
    work_id: String,
    /// How many sagas stand above it.
    depth: u16,
}

/// A page of the history, oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct History {
    items: Vec<RecordView>,
    /// The `history_after` of the next page; null after the last one.
    next: Option<u64>,
}

/// A transition.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct RecordView {
    /// The state version after it.
    version: u64,
    at: String,
    /// The id of its input.
    input: String,
    /// What the input is called.
    label: String,
    /// What happened.
    note: String,
    /// Where the instance stood afterwards.
    status: &'static str,
    /// The work that was asked for.
    work: Vec<WorkView>,
    /// `event`, `outcome`, `timer`, `control` or `workflow`; null in records of older releases, and so are the next two.
    kind: Option<&'static str>,
    /// The node that decided.
    node: Option<String>,
    /// How long before that the input happened, in milliseconds; of a timer, how late it fired.
    waited_ms: Option<u64>,
}

/// Work that was asked for.
#[derive(Debug, Serialize, ToSchema)]
struct WorkView {
    label: String,
    id: String,
}

impl Summary {
    pub(in crate::api) fn of(key: &InstanceKey, instance: &Instance) -> Self {
        let program = &instance.program;
        Self {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            reference: instance.reference.clone(),
            status: instance.status.as_str(),
            paused: instance.paused,
            version: instance.version,
            program: ProgramView::of(program),
            waits: instance.waits.iter().map(WaitView::of).collect(),
            last_error: instance.last_error.as_ref().map(FailureView::of),
            created_at: instance.created_at.to_string(),
            updated_at: instance.updated_at.to_string(),
        }
    }
}

impl Detail {
    /// `shown` is the state in the program's words. `history` holds one record more than `limit` where there is a next
    /// page.
    pub(super) fn of(
        key: &InstanceKey,
        instance: &Instance,
        shown: Option<Value>,
        history: &[Record],
        limit: usize,
    ) -> Self {
        let timers = instance.timers.iter().map(|timer| TimerView {
            name: timer.name.to_string(),
            due: timer.due.to_string(),
            token: timer.token,
        });
        let open = instance.open.iter().map(|work| OpenView {
            id: work.id.to_string(),
            kind: kind(work.kind),
            tag: work.tag.to_string(),
        });
        Self {
            tenant: key.tenant.to_string(),
            summary: Summary::of(key, instance),
            state: shown.unwrap_or_else(|| state(&instance.state)),
            timers: timers.collect(),
            open: open.collect(),
            tasks: instance.tasks.iter().map(OpenTask::of).collect(),
            parent: instance.parent.as_deref().map(ParentView::of),
            outbox: Outbox::default(),
            attempts: Vec::new(),
            held: 0,
            last_input: instance.last_input.to_string(),
            node: instance.node.clone(),
            trace_id: instance.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
            history: History::of(history, limit),
        }
    }

    pub(super) fn with_redacted(mut self, redact: &Redact) -> Self {
        self.state = redact.shown(self.state);
        self
    }

    pub(super) fn with_held(mut self, held: usize) -> Self {
        self.held = held;
        self
    }

    pub(super) fn with_attempts(mut self, attempts: Vec<AttemptView>) -> Self {
        self.attempts = attempts;
        self
    }

    pub(super) fn with_outbox(mut self, outbox: Outbox) -> Self {
        self.outbox = outbox;
        self
    }
}

impl History {
    fn of(records: &[Record], limit: usize) -> Self {
        let shown = &records[..records.len().min(limit)];
        let next = shown.last().filter(|_| records.len() > limit).map(|record| record.version);
        Self { items: shown.iter().map(RecordView::of).collect(), next }
    }
}

impl RecordView {
    pub(in crate::api) fn of(record: &Record) -> Self {
        let work =
            record.work.iter().map(|(label, id)| WorkView { label: label.clone(), id: id.to_string() });
        Self {
            version: record.version,
            at: record.at.to_string(),
            input: record.input.to_string(),
            label: record.label.clone(),
            note: record.note.clone(),
            status: record.status.as_str(),
            work: work.collect(),
            kind: record.origin.kind.map(InputKind::as_str),
            node: Some(record.origin.node.clone()).filter(|node| !node.is_empty()),
            waited_ms: record.origin.waited,
        }
    }
}

impl ProgramView {
    pub(super) fn of(program: &ProgramRef) -> Self {
        Self { version: program.version, hash: hex(&program.hash) }
    }
}

impl OpenTask {
    pub(super) fn of(task: &Task) -> Self {
        Self { id: task.id.to_string(), form: FormView::of(task) }
    }
}

impl ParentView {
    pub(in crate::api) fn of(parent: &Parent) -> Self {
        let Parent { key, work_id, depth } = parent;
        Self {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            work_id: work_id.to_string(),
            depth: *depth,
        }
    }
}

impl WaitView {
    pub(super) fn of(wait: &Wait) -> Self {
        let kind = match wait.kind {
            WaitKind::Event => "event",
            WaitKind::Outcome => "outcome",
            WaitKind::Timer => "timer",
            WaitKind::Operator => "operator",
            WaitKind::Task => "task",
            WaitKind::Saga => "saga",
        };
        Self { kind, name: wait.name.to_string(), until: wait.until.map(|at| at.to_string()) }
    }
}

impl FailureView {
    pub(super) fn of(failure: &Failure) -> Self {
        Self { code: failure.code.clone(), message: failure.message.clone() }
    }
}

/// A state that no program puts into words. A reader that stops before the end has read something else.
pub(in crate::api) fn state(bytes: &[u8]) -> Value {
    let packed = || {
        let mut rest = bytes;
        rmp_serde::from_read::<_, Value>(&mut rest).ok().filter(|_| rest.is_empty())
    };
    let readable = serde_json::from_slice(bytes).ok().or_else(packed);
    readable.unwrap_or_else(|| json!({ "base64": STANDARD.encode(bytes) }))
}

/// Bytes in hexadecimal.
pub(in crate::api) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_shown_as_json_where_it_can_be_read() {
        assert_eq!(state(br#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(state(&rmp_serde::to_vec(&json!(["x", 1, null])).unwrap()), json!(["x", 1, null]));
        assert_eq!(state(b"{\xff"), json!({"base64": "e/8="}));
        assert_eq!(state(b""), json!({"base64": ""}));
    }

    #[test]
    fn bytes_are_shown_in_hexadecimal() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }
}
