//! Batches in responses.

use orlog_model::{Instance, InstanceKey, Timestamp};
use orlog_program::SagaState as _;
use orlog_sagas::batch::{BatchAction, BatchState, InstanceReason, Selection};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::resources::sagas::built_in::{ListedView, UNREADABLE};
use crate::server::page::BuiltPage;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::redact::Redaction;
use orlog_node::url_path::path;

/// Page of batches.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchPage {
    /// Batches.
    items: Vec<BatchView>,
    /// Cursor of the next page; `null` at the end.
    next_cursor: Option<String>,
}

impl BatchPage {
    /// Creates the response of a list.
    pub(super) fn of(page: BuiltPage<BatchView>) -> Self {
        Self {
            items: page.entries,
            next_cursor: page.next,
        }
    }
}

/// Batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchView {
    /// Id.
    id: String,
    /// `running`, `paused`, `awaiting_approval` (the canary is done), `stopping` (a page is in
    /// flight), `stopped`, `completed`, `failed` or `unreadable`.
    status: &'static str,
    /// Instances.
    selection: SelectionView,
    /// Instruction.
    action: ActionView,
    /// Number of instances per second.
    rate: u32,
    /// Number of instances after which the batch waits for an approval.
    canary: Option<u32>,
    /// User, in the history of the instances.
    user: Option<String>,
    /// Reason, in the history of the instances.
    reason: Option<String>,
    /// Number of instances that match, counted before the first instruction.
    matched: u64,
    /// The count is complete.
    counted: bool,
    /// Number of instances that applied the instruction.
    done: u64,
    /// Number of instances to which the instruction did not apply.
    skipped: u64,
    /// Number of instances that failed.
    failed: u64,
    /// Number of instances for which the filter failed.
    filter_errors: u64,
    /// Reason of the first filter error.
    first_filter_error: Option<String>,
    /// Instances of the canary.
    canary_instances: Vec<String>,
    /// First instances to which the instruction did not apply, at most 20.
    skips: Vec<InstanceReasonView>,
    /// First instances that failed, at most 20.
    failures: Vec<InstanceReasonView>,
    /// Reason of the status `failed` or `unreadable`.
    error: Option<String>,
    /// Time of the creation.
    #[schema(format = "date-time")]
    created_at: String,
    /// Time of the last change.
    #[schema(format = "date-time")]
    updated_at: String,
    /// Path of the instance of the batch, with its history.
    instance: String,
}

/// Selection of instances of one saga. All conditions apply.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct SelectionView {
    /// Saga.
    saga: String,
    /// Statuses; empty: all.
    status: Vec<&'static str>,
    /// Prefix of the correlation id.
    prefix: Option<String>,
    /// Updated at or after this time.
    #[schema(format = "date-time")]
    updated_from: Option<String>,
    /// Updated before this time.
    #[schema(format = "date-time")]
    updated_until: Option<String>,
    /// Started at or after this time.
    #[schema(format = "date-time")]
    created_from: Option<String>,
    /// Started before this time.
    #[schema(format = "date-time")]
    created_until: Option<String>,
    /// CEL condition.
    filter: Option<String>,
}

/// Instruction of a batch.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ActionView {
    /// `cancel`, `pause`, `resume`, `retry`, `skip`, `force_complete`, `signal` or `migrate`; empty
    /// if the batch is `unreadable`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Event type of a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// Payload of a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    /// Version of the target definition of a migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// Hash of the target definition of a migration, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

/// Instance that did not apply the instruction.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstanceReasonView {
    /// Correlation id.
    correlation: String,
    /// Path of the instance.
    instance: String,
    /// Reason.
    reason: String,
}

/// Decodes the state of a batch.
pub(super) fn decoded(key: &InstanceKey, instance: &Instance) -> Result<BatchState, Problem> {
    BatchState::decode(&instance.state).map_err(|error| {
        Problem::new(
            Code::StoreError,
            format!("the state of {key} cannot be read: {error}"),
        )
    })
}

impl BatchView {
    /// Returns the view of a stored batch.
    pub(super) fn read(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self>, Problem> {
        let state = decoded(key, instance)?;
        Ok(Some(Self::of(key, instance, state, scope.redact())))
    }

    fn of(key: &InstanceKey, instance: &Instance, state: BatchState, redact: &Redaction) -> Self {
        let saga = state.spec.selection.saga.to_string();
        let reasons = |reasons: Vec<InstanceReason>| {
            reasons
                .into_iter()
                .map(|reason| InstanceReasonView::of(&saga, reason))
                .collect()
        };

        Self {
            id: key.correlation.to_string(),
            status: state.status.as_str(),
            rate: state.spec.rate,
            canary: state.spec.canary,
            matched: state.matched,
            counted: state.is_counted,
            done: state.done,
            skipped: state.skipped,
            failed: state.failed,
            filter_errors: state.filter_errors,
            first_filter_error: state.first_filter_error,
            canary_instances: state.canary.iter().map(ToString::to_string).collect(),
            skips: reasons(state.skips),
            failures: reasons(state.failures),
            error: state.error,
            created_at: instance.created_at.to_string(),
            updated_at: instance.updated_at.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
            selection: SelectionView::of(state.spec.selection),
            action: ActionView::of(state.spec.action, redact),
            user: state.spec.user,
            reason: state.spec.reason,
        }
    }
}

impl ListedView for BatchView {
    fn unreadable(key: &InstanceKey, instance: &Instance, error: String) -> Self {
        Self {
            id: key.correlation.to_string(),
            status: UNREADABLE,
            selection: SelectionView::default(),
            action: ActionView::default(),
            rate: 0,
            canary: None,
            user: None,
            reason: None,
            matched: 0,
            counted: false,
            done: 0,
            skipped: 0,
            failed: 0,
            filter_errors: 0,
            first_filter_error: None,
            canary_instances: Vec::new(),
            skips: Vec::new(),
            failures: Vec::new(),
            error: Some(error),
            created_at: instance.created_at.to_string(),
            updated_at: instance.updated_at.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
        }
    }
}

impl SelectionView {
    fn of(selection: Selection) -> Self {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        Self {
            saga: selection.saga.to_string(),
            status: selection
                .statuses
                .iter()
                .map(|status| status.as_str())
                .collect(),
            prefix: selection.prefix,
            updated_from: time(selection.updated_from),
            updated_until: time(selection.updated_until),
            created_from: time(selection.created_from),
            created_until: time(selection.created_until),
            filter: selection.filter,
        }
    }
}

impl ActionView {
    fn of(action: BatchAction, redact: &Redaction) -> Self {
        let kind = action.name();
        let mut signal = None;
        let mut data = None;
        let mut target = None;

        match action {
            BatchAction::Signal {
                signal: name,
                data: payload,
            } => {
                (signal, data) = (Some(name.to_string()), Some(redact.redact(payload)));
            }
            BatchAction::Migrate { version, hash } => target = Some((version, hex::encode(hash))),
            BatchAction::Cancel
            | BatchAction::Pause
            | BatchAction::Resume
            | BatchAction::Retry
            | BatchAction::Skip
            | BatchAction::ForceComplete => {}
        }

        let (version, hash) = target.unzip();
        Self {
            kind,
            signal,
            data,
            version,
            hash,
        }
    }
}

impl InstanceReasonView {
    fn of(
        saga: &str,
        InstanceReason {
            correlation,
            reason,
        }: InstanceReason,
    ) -> Self {
        let instance = path(&["v1", "sagas", saga, correlation.as_str()]);
        Self {
            correlation: correlation.to_string(),
            instance,
            reason,
        }
    }
}
