//! Pages of shadows: record new instances and compare recorded ones, in the shard of the requesting
//! instance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use orlog_actors::{ControlError, EventSource, ProgramRegistry, Recording};
use orlog_effect::{FunctionCall, ProviderError};
use orlog_model::{Clock, InstanceKey, TenantId, Timestamp};
use orlog_program::{Program, SagaState as _};
use orlog_sagas::shadow::{PageOutcome, PageRequest, PageTask, ShadowSpec, ShadowState, shadow_of};

use super::candidate;
use super::cases::{self, Cases};
use super::counts::Comparator;
use super::events::{AdditionalEvents, additional_events, additional_types};
use crate::blocking::run_blocking;
use crate::coded_error::CodedError;
use crate::config::Config;
use crate::error_code::Code;
use crate::reads::Reads;

/// Executes the pages of the shadows of this process.
pub(crate) struct ShadowPages {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) programs: Arc<ProgramRegistry>,
    /// Streams that the shards of this node read.
    pub(crate) sources: Vec<EventSource>,
}

/// Reason why a page has no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The request is not one of a shadow; contains the reason.
    #[error("{0}")]
    InvalidPayload(String),
    /// Another saga requests the page.
    #[error("only a shadow can request this effect")]
    NotPermitted,
    /// Another error, with its code: what is compared is missing or cannot be read.
    #[error(transparent)]
    Read(#[from] CodedError),
}

impl From<PageError> for ProviderError {
    fn from(error: PageError) -> Self {
        let reason = error.to_string();
        match error {
            PageError::InvalidPayload(_) => Self::permanent("invalid_payload", reason),
            PageError::NotPermitted => Self::permanent("not_permitted", reason),
            PageError::Read(error) => error.into(),
        }
    }
}

impl ShadowPages {
    /// Executes the page that a shadow requests.
    ///
    /// # Errors
    /// See [`PageError`].
    pub(crate) async fn execute(&self, call: FunctionCall) -> Result<PageOutcome, PageError> {
        let own = call.instance;
        let PageRequest { spec, task } = serde_json::from_value(call.payload)
            .map_err(|error| PageError::InvalidPayload(error.to_string()))?;
        let spec = Arc::new(self.specification(own.clone(), spec).await?);
        let recordings = self.programs.recordings();
        if task == PageTask::End {
            recordings.end(&own.tenant, &spec.saga);
            return Ok(PageOutcome::default());
        }

        recordings.start(Recording {
            tenant: own.tenant.clone(),
            saga: spec.saga.clone(),
            definition: spec.live.hash,
            sample: spec.sample,
            from: spec.from,
            until: spec.until,
        });

        self.compare(own, spec, task).await
    }

    /// Returns the specification of the shadow that requests a page.
    ///
    /// # Errors
    /// If another saga requests it: a definition can name any effect.
    async fn specification(
        &self,
        own: InstanceKey,
        sent: Option<ShadowSpec>,
    ) -> Result<ShadowSpec, PageError> {
        let found = self.reads.run(None, move |scope| -> Result<_, CodedError> {
            let reader = scope.reader(&own).ok_or(ControlError::Unavailable)?;
            let Some(instance) = reader.instance(&own)? else {
                return Ok(None);
            };

            let parent = instance.parent.as_ref().map(|parent| &parent.key);
            match (shadow_of(&own, parent), sent) {
                (Some(shadow), _) if *shadow == own => {
                    let state = ShadowState::decode(&instance.state)
                        .map_err(|error| CodedError::new(Code::StoreError, error.to_string()))?;
                    Ok(Some(state.spec))
                }
                (Some(_), sent) => Ok(sent),
                (None, _) => Ok(None),
            }
        });

        found.await?.ok_or(PageError::NotPermitted)
    }

    async fn compare(
        &self,
        own: InstanceKey,
        spec: Arc<ShadowSpec>,
        task: PageTask,
    ) -> Result<PageOutcome, PageError> {
        let started = Instant::now();
        let read_at = self.clock.now();
        let is_ended = matches!(task, PageTask::Ended { .. });
        let found = self.cases(own.clone(), Arc::clone(&spec), task).await?;

        let active = self
            .programs
            .active(&own.tenant, &spec.saga)
            .map(|program| program.definition_ref().hash);
        let base = PageOutcome {
            read_at,
            active,
            ..PageOutcome::default()
        };
        if found.found.is_empty() {
            return Ok(PageOutcome {
                position: found.end,
                has_more: found.has_more,
                elapsed_ms: elapsed_ms(started),
                ..base
            });
        }

        let live = self.programs.by_hash(&spec.live.hash);
        let live = live.ok_or_else(|| {
            let detail = format!("the live definition of {} is not loaded", spec.saga);
            CodedError::new(Code::DefinitionNotFound, detail)
        })?;
        let candidate = {
            let spec = Arc::clone(&spec);
            run_blocking(move || {
                candidate::compile(&spec.source).map_err(|reason| {
                    let detail = format!("the candidate: {reason}");
                    CodedError::new(Code::InvalidDefinitions, detail)
                })
            })
            .await?
        };

        let events = self.events(&own.tenant, read_at, &live, &candidate, &found);
        let events = events.await?;
        let config = Arc::clone(&self.config);
        let outcome = run_blocking(move || -> Result<_, CodedError> {
            let comparator = Comparator {
                live: live.as_ref(),
                candidate: candidate.as_ref(),
                redact: &config.redact,
            };
            Ok(if is_ended {
                comparator.ended(found, &events)
            } else {
                comparator.unfinished(&found, &events)
            })
        });

        Ok(PageOutcome {
            read_at,
            active,
            elapsed_ms: elapsed_ms(started),
            ..outcome.await?
        })
    }

    /// Reads the instances of a page.
    async fn cases(
        &self,
        own: InstanceKey,
        spec: Arc<ShadowSpec>,
        task: PageTask,
    ) -> Result<Cases, CodedError> {
        self.reads
            .run(None, move |scope| {
                let reader = scope.reader(&own).ok_or(ControlError::Unavailable)?;
                let tenant = &own.tenant;
                let now = scope.now();
                let found = match &task {
                    PageTask::Ended { after, until } => {
                        cases::ended(&reader, tenant, &spec, after.as_ref(), *until, now)?
                    }
                    PageTask::Unfinished | PageTask::End => {
                        cases::unfinished(&reader, tenant, &spec, now)?
                    }
                };

                found.ok_or_else(|| {
                    let detail = "the index of the instances is being built";
                    CodedError::new(Code::Unavailable, detail)
                })
            })
            .await
    }

    /// Reads the events of the instances that only the candidate consumes.
    async fn events(
        &self,
        tenant: &TenantId,
        read_at: Timestamp,
        live: &Arc<dyn Program>,
        candidate: &Arc<dyn Program>,
        found: &Cases,
    ) -> Result<AdditionalEvents, CodedError> {
        let types = additional_types(live.as_ref(), candidate.as_ref());
        if types.is_empty() {
            return Ok(AdditionalEvents::default());
        }

        let times = found.found.iter().filter_map(|case| {
            let inputs = case.inputs.as_ref().ok()?;
            let end = if case.instance.status.is_final() {
                inputs.last()?.0
            } else {
                read_at
            };
            Some((case.key.clone(), (inputs.first()?.0, end)))
        });
        let times: BTreeMap<_, _> = times.collect();

        let sources = &self.sources;
        Ok(additional_events(sources, tenant, &types, candidate.as_ref(), &times).await?)
    }
}

fn elapsed_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}
