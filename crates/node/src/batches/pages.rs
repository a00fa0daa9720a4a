//! Pages of batches: counts, selects or instructs instances in the shard of the requesting
//! instance.

use std::sync::Arc;

use futures::StreamExt as _;
use orlog_actors::{ALREADY_APPLIED, ControlError, ControlResult, LocalShards, ProgramRegistry};
use orlog_effect::{FunctionCall, ProviderError};
use orlog_engine::Rejection;
use orlog_model::{Clock, ControlRequest, CorrelationId, EventId, InstanceKey, TraceParent};
use orlog_sagas::batch::{
    BatchAction, InstanceReason, PageOutcome, PageRequest, PageTask, Selection, batch_of,
};

use super::selection::{self, Part};
use crate::coded_error::CodedError;
use crate::component_config;
use crate::config::Config;
use crate::definitions::change::DefinitionLocks;
use crate::reads::Reads;
use crate::sagas::state::stored_hidden_values;

/// Maximum number of concurrent control requests: enough to fill a group commit.
const MAX_CONCURRENT: usize = 64;
/// Maximum number of instances with a reason in an outcome.
const MAX_REASONS: usize = 20;

/// Executes the pages of the batches of this process.
pub(crate) struct BatchPages {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: LocalShards,
    pub(crate) reads: Arc<Reads>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) locks: Arc<DefinitionLocks>,
}

/// Reason why a page has no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The request is not one of a batch; contains the reason.
    #[error("{0}")]
    InvalidPayload(String),
    /// Another saga requests the page.
    #[error("only a batch can request this effect")]
    NotPermitted,
    /// The definition to which the batch moves its instances was dropped.
    #[error("the target definition, version {0}, is not loaded on this node")]
    DefinitionMissing(u32),
    /// The shard of an instance does not accept control requests now.
    #[error("{}", ControlError::Unavailable)]
    InstanceUnavailable,
    /// The stores cannot be read, or the selection is invalid.
    #[error(transparent)]
    Read(#[from] CodedError),
}

impl From<PageError> for ProviderError {
    fn from(error: PageError) -> Self {
        let reason = error.to_string();
        match error {
            PageError::InvalidPayload(_) => Self::permanent("invalid_payload", reason),
            PageError::NotPermitted => Self::permanent("not_permitted", reason),
            PageError::DefinitionMissing(_) => Self::permanent("definition_missing", reason),
            // The instances that applied the instruction ignore its repetition.
            PageError::InstanceUnavailable => Self::unavailable("unavailable", reason),
            PageError::Read(error) => error.into(),
        }
    }
}

impl BatchPages {
    /// Executes the page that a batch requests.
    ///
    /// # Errors
    /// See [`PageError`].
    pub(crate) async fn execute(&self, call: FunctionCall) -> Result<PageOutcome, PageError> {
        let own = call.instance;
        let PageRequest { selection, task } = serde_json::from_value(call.payload)
            .map_err(|error| PageError::InvalidPayload(error.to_string()))?;
        let batch = self.batch(own.clone()).await?;

        match task {
            PageTask::Count { cursor } => self.search(own, selection, cursor, 0).await,
            PageTask::Select { cursor, limit } => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX).max(1);
                self.search(own, selection, cursor, limit).await
            }
            PageTask::Apply {
                action,
                user,
                reason,
                instances,
            } => {
                let reason = reason.map_or_else(
                    || format!("batch {batch}"),
                    |reason| format!("batch {batch}: {reason}"),
                );
                let id = EventId::new(format!("batch:{batch}"))
                    .map_err(|error| PageError::InvalidPayload(error.to_string()))?;
                let instruction = Instruction {
                    id,
                    action,
                    user,
                    reason,
                    trace: call.trace,
                };

                let saga = selection.saga;
                let keys = instances.into_iter().map(|correlation| InstanceKey {
                    tenant: own.tenant.clone(),
                    saga: saga.clone(),
                    correlation,
                });

                self.apply(&instruction, keys.collect()).await
            }
        }
    }

    /// Returns the id of the batch that requests a page.
    ///
    /// # Errors
    /// If another saga requests it: a definition can name any effect, and a batch has the rights of
    /// the user who created it.
    async fn batch(&self, own: InstanceKey) -> Result<CorrelationId, PageError> {
        let found = self.reads.run(None, move |scope| -> Result<_, CodedError> {
            let instance = scope
                .reader(&own)
                .ok_or(ControlError::Unavailable)?
                .instance(&own)?;
            let parent = instance
                .and_then(|instance| instance.parent)
                .map(|parent| parent.key);
            Ok(batch_of(&own, parent.as_ref()).map(|batch| batch.correlation.clone()))
        });

        found.await?.ok_or(PageError::NotPermitted)
    }

    /// Returns the next part of the selection in the shard of the requesting instance.
    async fn search(
        &self,
        own: InstanceKey,
        selection: Selection,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<PageOutcome, PageError> {
        let shard = Some(component_config::shard_of_instance(&self.config, &own));
        let found = self.reads.run(None, move |scope| -> Result<_, CodedError> {
            if scope.reader(&own).is_none() {
                return Err(ControlError::Unavailable.into());
            }

            let part = Part {
                cursor: cursor.as_deref(),
                limit,
                shard,
            };
            Ok(selection::next(&scope, &own.tenant, &selection, &part)?)
        });

        let found = found.await?;
        let instances = found.items.into_iter();
        Ok(PageOutcome {
            cursor: found.next,
            matched: found.matches,
            filter_errors: found.filter_errors,
            first_filter_error: found.first_filter_error,
            instances: instances
                .map(|located| located.found.key.correlation)
                .collect(),
            ..PageOutcome::default()
        })
    }

    /// Sends the instruction to each instance.
    async fn apply(
        &self,
        instruction: &Instruction,
        keys: Vec<InstanceKey>,
    ) -> Result<PageOutcome, PageError> {
        // Prevents a garbage collection in between, which could drop the target definition.
        let _alone = match &instruction.action {
            BatchAction::Migrate { version, hash } => {
                let guard = self.locks.deploying.lock().await;
                if self.programs.by_hash(hash).is_none() {
                    return Err(PageError::DefinitionMissing(*version));
                }
                Some(guard)
            }
            _ => None,
        };

        let requests = keys.into_iter().map(|key| async {
            let request = instruction.request(self.clock.as_ref());
            let result = self.shards.control(&key, request).await;
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
                Classified::Unavailable => return Err(PageError::InstanceUnavailable),
            }
        }

        outcome.skips = self.reasons(skips).await?;
        outcome.failures = self.reasons(failures).await?;
        Ok(outcome)
    }

    /// Returns the first reasons, without values of the instances that are not displayed.
    async fn reasons(
        &self,
        mut found: Vec<(InstanceKey, String)>,
    ) -> Result<Vec<InstanceReason>, PageError> {
        found.truncate(MAX_REASONS);
        if found.is_empty() {
            return Ok(Vec::new());
        }

        let reasons = self.reads.run(None, move |scope| -> Result<_, CodedError> {
            let mut reasons = Vec::with_capacity(found.len());
            for (key, reason) in found {
                let reason = stored_hidden_values(&scope, &key).remove_from(&reason);
                reasons.push(InstanceReason {
                    correlation: key.correlation,
                    reason,
                });
            }
            Ok(reasons)
        });

        Ok(reasons.await?)
    }
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

impl Instruction {
    fn request(&self, clock: &dyn Clock) -> ControlRequest {
        ControlRequest {
            id: self.id.clone(),
            action: self.action.control(Some(&self.reason)),
            expected_version: None,
            at: clock.now(),
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
    Unavailable,
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
        Err(ControlError::Unavailable) => Classified::Unavailable,
        Err(
            error @ (ControlError::Rejected(
                Rejection::MigrationBlocked { .. } | Rejection::Quarantined { .. },
            )
            | ControlError::DeadLettered(_)),
        ) => Classified::Failed(error.to_string()),
        Err(error @ ControlError::Rejected(_)) => Classified::Skipped(error.to_string()),
    }
}
