//! Shadows in responses.

use std::collections::BTreeMap;

use orlog_model::{Instance, InstanceKey};
use orlog_program::SagaState as _;
use orlog_sagas::shadow::{DefinitionId, DifferenceKind, ShadowState};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::resources::sagas::built_in::{ListedView, UNREADABLE};
use crate::server::page::BuiltPage;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::url_path::path;

/// Page of shadows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShadowPage {
    /// Shadows.
    items: Vec<ShadowView>,
    /// Cursor of the next page; `null` at the end.
    next_cursor: Option<String>,
}

impl ShadowPage {
    /// Creates the response of a list.
    pub(super) fn of(page: BuiltPage<ShadowView>) -> Self {
        Self {
            items: page.entries,
            next_cursor: page.next,
        }
    }
}

/// Shadow and its report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShadowView {
    /// Saga.
    saga: String,
    /// `running`, `ending` (compares the remaining instances), `completed`, `stopped`, `promoted`,
    /// `superseded` (another definition was deployed), `failed` or `unreadable`.
    status: &'static str,
    /// Whether the inputs of new instances are recorded in all shards.
    recording: bool,
    /// Active definition at the start.
    live: ShadowDefinitionView,
    /// Definition that is compared with it.
    candidate: ShadowDefinitionView,
    /// File of the candidate.
    file: String,
    /// Sample of the new instances.
    #[schema(example = "10%")]
    sample: String,
    /// Instances that started earlier are not compared.
    #[schema(format = "date-time")]
    from: String,
    /// End, if no limit is reached before.
    #[schema(format = "date-time")]
    until: String,
    /// Number of compared instances after which the shadow ends.
    max_instances: u64,
    /// User who started it.
    user: Option<String>,
    /// Reason.
    reason: Option<String>,
    /// Number of compared instances: equal and different ones.
    compared: u64,
    /// Number of equal instances.
    equal: u64,
    /// Number of different instances.
    different: u64,
    /// Number of compared instances that had not ended.
    unfinished: u64,
    /// Number of instances that were not compared, by reason.
    skipped: BTreeMap<String, u64>,
    /// Kinds of differences, at most 32, in the order of their first instances.
    differences: Vec<DifferenceView>,
    /// Number of differences of further kinds.
    other_differences: u64,
    /// Reason of the status `failed` or `unreadable`.
    error: Option<String>,
    /// Time of the last change.
    #[schema(format = "date-time")]
    updated_at: String,
    /// Path of the instance of the shadow, with its history.
    instance: String,
}

/// Definition.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ShadowDefinitionView {
    /// Version, assigned by the author.
    version: u32,
    /// Content hash, in hexadecimal.
    hash: String,
}

/// Kind of a difference.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DifferenceView {
    /// Kind.
    #[schema(example = "step charge: payload of payments.charge differs at .amount")]
    kind: String,
    /// Number of instances.
    count: u64,
    /// Value of the first instance; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Value>,
    /// Value of the candidate for this instance; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<Value>,
    /// Paths of the first instances, at most 5.
    instances: Vec<String>,
}

/// Decodes the state of a shadow.
pub(super) fn decoded(key: &InstanceKey, instance: &Instance) -> Result<ShadowState, Problem> {
    ShadowState::decode(&instance.state).map_err(|error| {
        Problem::new(
            Code::StoreError,
            format!("the state of {key} cannot be read: {error}"),
        )
    })
}

impl ShadowView {
    /// Returns the view of a stored shadow.
    pub(super) fn read(
        _: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self>, Problem> {
        let state = decoded(key, instance)?;
        let compared = state.compared();
        let ShadowState {
            spec,
            status,
            equal,
            different,
            unfinished,
            skipped,
            kinds,
            ..
        } = state;

        let ShadowState {
            other_differences,
            is_recording,
            error,
            ..
        } = state;
        let saga = spec.saga.to_string();
        let differences = kinds
            .into_iter()
            .map(|kind| DifferenceView::of(&saga, kind))
            .collect();

        Ok(Some(Self {
            status: status.as_str(),
            recording: is_recording && !status.is_final(),
            live: ShadowDefinitionView::of(&spec.live),
            candidate: ShadowDefinitionView::of(&spec.candidate),
            file: spec.source.name,
            sample: spec.sample.to_string(),
            from: spec.from.to_string(),
            until: spec.until.to_string(),
            max_instances: spec.max_instances,
            user: spec.user,
            reason: spec.reason,
            compared,
            equal,
            different,
            unfinished,
            skipped,
            differences,
            other_differences,
            error,
            updated_at: instance.updated_at.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
            saga,
        }))
    }
}

impl ListedView for ShadowView {
    fn unreadable(key: &InstanceKey, instance: &Instance, error: String) -> Self {
        Self {
            saga: key.correlation.to_string(),
            status: UNREADABLE,
            recording: false,
            live: ShadowDefinitionView::default(),
            candidate: ShadowDefinitionView::default(),
            file: String::new(),
            sample: String::new(),
            // The other times are part of the state.
            from: instance.created_at.to_string(),
            until: instance.updated_at.to_string(),
            max_instances: 0,
            user: None,
            reason: None,
            compared: 0,
            equal: 0,
            different: 0,
            unfinished: 0,
            skipped: BTreeMap::new(),
            differences: Vec::new(),
            other_differences: 0,
            error: Some(error),
            updated_at: instance.updated_at.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
        }
    }
}

impl ShadowDefinitionView {
    fn of(id: &DefinitionId) -> Self {
        Self {
            version: id.version,
            hash: hex::encode(id.hash),
        }
    }
}

impl DifferenceView {
    fn of(saga: &str, kind: DifferenceKind) -> Self {
        let DifferenceKind {
            kind,
            count,
            instances,
            live,
            candidate,
        } = kind;
        let instances = instances
            .iter()
            .map(|id| path(&["v1", "sagas", saga, id.as_str()]))
            .collect();

        Self {
            kind,
            count,
            live,
            candidate,
            instances,
        }
    }
}
