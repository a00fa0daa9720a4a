//! Instances in API responses: times as RFC 3339, the state as rendered by its program, or as JSON
//! if it is readable.

use orlog_model::{
    HistoryEntry, Instance, InstanceKey, OutboxKey, Reference, StatusSnapshot, WorkItem,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::context::{BreakerView, BufferedInputView};
use super::flow::{JobWork, show_claims};
use super::history::HistoryPageView;
use super::ignored_event::IgnoredEventView;
use super::result::SagaResultView;
use super::work::{AttemptView, OutboxView, kind};
use crate::resources::dead_letters::DeadLetterView;
use crate::server::page::PageLimits;
use crate::server::read_scope::ReadScope;
use orlog_node::redact::HiddenValues;
use orlog_node::sagas::state::{displayed_state, task_data};
use orlog_node::sagas::view::{
    DefinitionRefView, LastErrorView, OpenTaskView, ParentView, WaitView, reference_view,
};

/// Instance in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstanceSummary {
    saga: String,
    correlation: String,
    /// Business reference: a text, or an object with its parts.
    #[schema(value_type = Option<Value>)]
    reference: Option<Reference>,
    /// `running`, `compensating`, `completed`, `failed`, `cancelled` or `stuck`.
    status: &'static str,
    /// Inputs are buffered, not applied.
    paused: bool,
    /// Why it requires an operator: `stuck`, `unapplied_result` (a result of its work became a dead
    /// letter) or `paused`; null if it does not.
    attention: Option<&'static str>,
    /// State version; increases by one with every transition.
    version: u64,
    /// Definition to which it is pinned.
    definition: DefinitionRefView,
    /// Inputs that it waits for.
    waits: Vec<WaitView>,
    /// Last error, and the one that caused the compensation.
    last_error: Option<LastErrorView>,
    /// Time of the first transition.
    #[schema(format = "date-time")]
    created_at: String,
    /// Time of the last transition.
    #[schema(format = "date-time")]
    updated_at: String,
}

/// All details of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstanceDetail {
    tenant: String,
    #[serde(flatten)]
    summary: InstanceSummary,
    /// State as rendered by the program. For a definition: `phase`, `steps` (a list of `id`,
    /// `state`, `until`, and `job`, the status of a job), `vars`, `failure`. If the program cannot
    /// render it or is not loaded: the JSON state, else `{"base64": …}`.
    state: Value,
    /// Result of an ended instance: the last fact that it emitted at its end; null before, and if
    /// it emitted none.
    result: Option<SagaResultView>,
    timers: Vec<TimerView>,
    /// Work without a result.
    pending_work: Vec<PendingWorkView>,
    /// Open human tasks.
    tasks: Vec<OpenTaskView>,
    /// Parent saga that started it.
    parent: Option<ParentView>,
    pub(crate) outbox: OutboxView,
    /// Failed attempts, oldest first: the last 50 attempts since the start of this node. The
    /// history has the attempts of completed work.
    pub(crate) attempts: Vec<AttemptView>,
    /// Number of inputs that are stored and not applied yet.
    pub(crate) buffered_inputs: usize,
    /// These inputs, oldest first; at most 100.
    pub(crate) buffered: Vec<BufferedInputView>,
    /// Last events that the instance ignored, oldest first: at most 100, of the last 1,000 of its
    /// shard since it runs on this node. An ignored event has no history entry.
    pub(crate) ignored_events: Vec<IgnoredEventView>,
    /// Dead letters of the instance, oldest first; at most 100.
    pub(crate) dead_letters: Vec<DeadLetterView>,
    /// All dead letters of the tenant were scanned; otherwise there may be more.
    pub(crate) dead_letters_complete: bool,
    /// Upstreams that the instance waits for and whose circuit breaker is not closed.
    pub(crate) breakers: Vec<BreakerView>,
    /// Input of the last transition.
    last_input_id: String,
    /// Node of the last transition.
    node: String,
    /// Trace that started it.
    trace_id: Option<String>,
    history: HistoryPageView,
}

/// Armed timer.
#[derive(Debug, Serialize, ToSchema)]
struct TimerView {
    name: String,
    #[schema(format = "date-time")]
    due: String,
    /// Hash of the input that armed it.
    token: u64,
    /// Event type of the signal that it delivers.
    signal: Option<String>,
}

/// Pending work item.
#[derive(Debug, Serialize, ToSchema)]
struct PendingWorkView {
    /// Idempotency key.
    #[schema(format = "uuid")]
    id: String,
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// Label set by the program.
    tag: String,
    /// Dead letter of its result, if the result could not be applied.
    #[schema(format = "uuid")]
    dead_letter: Option<String>,
}

impl InstanceSummary {
    /// Creates the view. `hidden` are the values that its texts must not quote.
    pub(crate) fn of(key: &InstanceKey, instance: &Instance, hidden: &HiddenValues) -> Self {
        let program = &instance.definition;
        Self {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            reference: reference_view(instance, hidden),
            status: instance.status.as_str(),
            paused: instance.paused,
            attention: StatusSnapshot::from_instance(instance).attention(),
            version: instance.version,
            definition: DefinitionRefView::of(program),
            waits: WaitView::all(instance),
            last_error: LastErrorView::of(instance, hidden),
            created_at: instance.created_at.to_string(),
            updated_at: instance.updated_at.to_string(),
        }
    }
}

impl InstanceDetail {
    /// Creates the view without outbox, attempts and buffered inputs. `history` has one entry more
    /// than the limit if there is a next page. `work` is the work of the instance in the outbox.
    pub(crate) fn of(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
        history: &[HistoryEntry],
        limits: PageLimits,
        work: &[(OutboxKey, WorkItem)],
    ) -> Self {
        let redact = scope.redact();
        let mut state = displayed_state(scope.stores(), instance);
        let pending = work.iter().filter_map(|(_, item)| JobWork::of(item));
        show_claims(scope, key, pending, &mut state);

        // From the displayed state before its redaction, which is what texts of the view can quote.
        let hidden = redact.hidden_values(task_data(instance).chain([&state]));
        let timers = instance.timers.iter().map(|timer| TimerView {
            name: timer.name.to_string(),
            due: timer.due.to_string(),
            token: timer.token,
            signal: timer
                .signal
                .as_ref()
                .map(|signal| signal.event.kind.to_string()),
        });

        let open = instance.pending_work.iter().map(|work| PendingWorkView {
            id: work.id.to_string(),
            kind: kind(work.kind),
            tag: work.tag.to_string(),
            dead_letter: work.dead_letter.map(|id| id.to_string()),
        });

        Self {
            tenant: key.tenant.to_string(),
            summary: InstanceSummary::of(key, instance, &hidden),
            state: redact.redact(state),
            result: instance
                .result
                .as_deref()
                .map(|result| SagaResultView::of(result, redact)),
            timers: timers.collect(),
            pending_work: open.collect(),
            tasks: instance
                .tasks
                .iter()
                .map(|task| OpenTaskView::of(task, redact))
                .collect(),
            parent: instance.parent.as_deref().map(ParentView::of),
            outbox: OutboxView::default(),
            attempts: Vec::new(),
            buffered_inputs: 0,
            buffered: Vec::new(),
            ignored_events: Vec::new(),
            dead_letters: Vec::new(),
            dead_letters_complete: true,
            breakers: Vec::new(),
            last_input_id: instance.last_input.to_string(),
            node: instance.node.clone().into(),
            trace_id: instance
                .trace
                .as_ref()
                .map(|trace| trace.trace_id().to_owned()),
            history: HistoryPageView::of(history, limits, &hidden, redact),
        }
    }
}
