//! Pages of batches: counts, selects or instructs instances in the shard of the requesting
//! instance.

use axum::extract::FromRef;
use futures::StreamExt as _;
use orlog_actors::{ALREADY_APPLIED, ControlError, ControlResult};
use orlog_effect::{FunctionCall, ProviderError};
use orlog_engine::Rejection;
use orlog_model::{ControlRequest, CorrelationId, EventId, InstanceKey, TraceParent};
use orlog_sagas::batch::{
    BatchAction, InstanceReason, PageOutcome, PageRequest, PageTask, Selection, batch_of,
};

use crate::resources::sagas::stored_hidden_values;
use crate::server::context::{ApiState, RequestContext};
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::Problem;
use orlog_node::app::App;
use orlog_node::batches::selection::{self, Part};

/// Maximum number of concurrent control requests: enough to fill a group commit.
const MAX_CONCURRENT: usize = 64;
/// Maximum number of instances with a reason in an outcome.
const MAX_REASONS: usize = 20;

/// Connects the pages of this node to its API, without keeping the node.
pub(crate) fn connect(app: &App, api: &ApiState) {
    let api_of_node = api.downgrade();
    app.pages.batches.connect(move |call| {
        let api = api_of_node.upgrade();
        Box::pin(async move { execute(&api?, call).await })
    });
}

async fn execute(api: &ApiState, call: FunctionCall) -> Result<PageOutcome, ProviderError> {
    let instances = Instances::detached(api);
    let own = call.instance;
    let PageRequest { selection, task } = serde_json::from_value(call.payload)
        .map_err(|error| ProviderError::permanent("invalid_payload", error.to_string()))?;
    let batch = batch(&instances.request, own.clone()).await?;

    match task {
        PageTask::Count { cursor } => search(&instances, own, selection, cursor, 0).await,
        PageTask::Select { cursor, limit } => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX).max(1);
            search(&instances, own, selection, cursor, limit).await
        }
        PageTask::Apply {
            action,
            user,
            reason,
            instances: page,
        } => {
            let reason = reason.map_or_else(
                || format!("batch {batch}"),
                |reason| format!("batch {batch}: {reason}"),
            );
            let id = EventId::new(format!("batch:{batch}"));
            let id =
                id.map_err(|error| ProviderError::permanent("invalid_payload", error.to_string()))?;
            let instruction = Instruction {
                id,
                action,
                user,
                reason,
                trace: call.trace,
            };

            let saga = selection.saga;
            let keys = page.into_iter().map(|correlation| InstanceKey {
                tenant: own.tenant.clone(),
                saga: saga.clone(),
                correlation,
            });

            apply(
                &instances,
                &Definitions::from_ref(api),
                &instruction,
                keys.collect(),
            )
            .await
        }
    }
}

/// Returns the id of the batch that requests a page.
///
/// # Errors
/// If another saga requests it: a definition can name any effect, and a batch has the rights of the
/// user who created it.
async fn batch(api: &RequestContext, own: InstanceKey) -> Result<CorrelationId, ProviderError> {
    let found = api.read(move |scope| {
        let instance = scope
            .reader(&own)
            .ok_or(ControlError::Unavailable)?
            .instance(&own)?;
        let parent = instance
            .and_then(|instance| instance.parent)
            .map(|parent| parent.key);
        Ok(batch_of(&own, parent.as_ref()).map(|batch| batch.correlation.clone()))
    });

    let not_permitted =
        || ProviderError::permanent("not_permitted", "only a batch can request this effect");
    found
        .await
        .map_err(|problem| failed(&problem))?
        .ok_or_else(not_permitted)
}

async fn search(
    instances: &Instances,
    own: InstanceKey,
    selection: Selection,
    cursor: Option<String>,
    limit: usize,
) -> Result<PageOutcome, ProviderError> {
    let shard = Some(instances.cluster.shard_of(&own));
    let found = instances.request.read(move |scope| {
        if scope.reader(&own).is_none() {
            return Err(ControlError::Unavailable.into());
        }

        let part = Part {
            cursor: cursor.as_deref(),
            limit,
            shard,
        };

        Ok(selection::next(
            scope.stores(),
            &own.tenant,
            &selection,
            &part,
        )?)
    });
    let found = found.await.map_err(|problem| failed(&problem))?;
    Ok(PageOutcome {
        cursor: found.next,
        matched: found.matches,
        filter_errors: found.filter_errors,
        first_filter_error: found.first_filter_error,
        instances: found
            .items
            .into_iter()
            .map(|located| located.found.key.correlation)
            .collect(),
        ..PageOutcome::default()
    })
}

/// Control request for each instance of a page. Its id is equal for all instances and all
/// repetitions.
struct Instruction {
    id: EventId,
    action: BatchAction,
    user: Option<String>,
    reason: String,
    trace: Option<TraceParent>,
}

async fn apply(
    instances: &Instances,
    definitions: &Definitions,
    instruction: &Instruction,
    keys: Vec<InstanceKey>,
) -> Result<PageOutcome, ProviderError> {
    // Prevents a garbage collection in between, which could drop the target definition.
    let _alone = match &instruction.action {
        BatchAction::Migrate { version, hash } => {
            let guard = definitions.lock().await;
            if definitions.programs().by_hash(hash).is_none() {
                let message =
                    format!("the target definition, version {version}, is not loaded on this node");
                return Err(ProviderError::permanent("definition_missing", message));
            }
            Some(guard)
        }
        _ => None,
    };

    let requests = keys.into_iter().map(|key| async {
        let result = instances
            .control(&key, instruction.request(&instances.request))
            .await;
        (key, result)
    });
    let results: Vec<_> = futures::stream::iter(requests)
        .buffered(MAX_CONCURRENT)
        .collect()
        .await;

    let mut outcome = PageOutcome::default();
    let mut skips = Vec::new();
    let mut failures = Vec::new();
    for (key, result) in results {
        match classified(result) {
            Classified::Done => outcome.done += 1,
            Classified::Skipped(reason) => {
                outcome.skipped += 1;
                skips.push((key, reason));
            }
            Classified::Failed(reason) => {
                outcome.failed += 1;
                failures.push((key, reason));
            }
            // The instances that applied the instruction ignore its repetition.
            Classified::Unavailable(reason) => {
                return Err(ProviderError::unavailable("unavailable", reason));
            }
        }
    }

    outcome.skips = reasons(&instances.request, skips).await?;
    outcome.failures = reasons(&instances.request, failures).await?;
    Ok(outcome)
}

impl Instruction {
    fn request(&self, api: &RequestContext) -> ControlRequest {
        ControlRequest {
            id: self.id.clone(),
            action: self.action.control(Some(&self.reason)),
            expected_version: None,
            at: api.now(),
            user: self.user.clone(),
            reason: Some(self.reason.clone()),
            trace: self.trace.clone(),
            wait_token: None,
        }
    }
}

/// Result of the instruction for one instance.
enum Classified {
    Done,
    Skipped(String),
    Failed(String),
    Unavailable(String),
}

fn classified(result: Result<ControlResult, ControlError>) -> Classified {
    match result {
        Ok(ControlResult { applied: true, .. }) => Classified::Done,
        Ok(ControlResult { reason, .. }) if reason.as_deref() == Some(ALREADY_APPLIED) => {
            Classified::Done
        }
        Ok(ControlResult { reason, .. }) => {
            Classified::Skipped(reason.unwrap_or_default().into_owned())
        }
        Err(error @ ControlError::Unavailable) => Classified::Unavailable(error.to_string()),
        Err(
            error @ (ControlError::Rejected(
                Rejection::MigrationBlocked { .. } | Rejection::Quarantined { .. },
            )
            | ControlError::DeadLettered(_)),
        ) => Classified::Failed(error.to_string()),
        Err(error @ ControlError::Rejected(_)) => Classified::Skipped(error.to_string()),
    }
}

/// Returns the first reasons, without values of the instances that are not displayed.
async fn reasons(
    api: &RequestContext,
    mut found: Vec<(InstanceKey, String)>,
) -> Result<Vec<InstanceReason>, ProviderError> {
    found.truncate(MAX_REASONS);
    if found.is_empty() {
        return Ok(Vec::new());
    }

    let reasons = api.read(move |scope| {
        let reason = |(key, reason): (InstanceKey, String)| {
            let reason = stored_hidden_values(scope.stores(), &key).remove_from(&reason);
            InstanceReason {
                correlation: key.correlation,
                reason,
            }
        };
        Ok(found.into_iter().map(reason).collect())
    });

    reasons.await.map_err(|problem| failed(&problem))
}

fn failed(problem: &Problem) -> ProviderError {
    if problem.is_transient() {
        ProviderError::unavailable(problem.code(), problem.detail())
    } else {
        ProviderError::permanent(problem.code(), problem.detail())
    }
}
