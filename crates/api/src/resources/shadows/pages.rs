//! Pages of shadows: record new instances and compare recorded ones, in the shard of the requesting
//! instance.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRef;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_actors::{ControlError, Recording};
use orlog_effect::{FunctionCall, ProviderError};
use orlog_model::{InstanceKey, TenantId, Timestamp};
use orlog_program::{Program, SagaState as _};
use orlog_sagas::shadow::{
    CandidateSource, PageOutcome, PageRequest, PageTask, ShadowSpec, ShadowState, shadow_of,
};

use crate::server::blocking::run_blocking;
use crate::server::context::{ApiState, RequestContext};
use crate::server::parts::definitions::Definitions;
use crate::server::parts::events::Events;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::app::App;
use orlog_node::definitions::{SourceFile, compile_source};
use orlog_node::shadows::cases::{self, Cases};
use orlog_node::shadows::counts::Comparator;
use orlog_node::shadows::events::{AdditionalEvents, additional_events, additional_types};

/// Connects the pages of this node to its API, without keeping the node.
pub(crate) fn connect(app: &App, api: &ApiState) {
    let api_of_node = api.downgrade();
    app.pages.shadows.connect(move |call| {
        let api = api_of_node.upgrade();
        Box::pin(async move { execute(&api?, call).await })
    });
}

async fn execute(api: &ApiState, call: FunctionCall) -> Result<PageOutcome, ProviderError> {
    let parts = ShadowParts {
        instances: Instances::detached(api),
        definitions: Definitions::from_ref(api),
        events: Events::from_ref(api),
    };
    let own = call.instance;
    let PageRequest { spec, task } = serde_json::from_value(call.payload)
        .map_err(|error| ProviderError::permanent("invalid_payload", error.to_string()))?;
    let spec = Arc::new(specification(&parts.instances.request, own.clone(), spec).await?);
    let recordings = parts.definitions.programs().recordings();
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

    compare(&parts, own, spec, task)
        .await
        .map_err(|problem| failed(&problem))
}

/// Returns the specification of the shadow that requests a page.
///
/// # Errors
/// If another saga requests it: a definition can name any effect.
async fn specification(
    api: &RequestContext,
    own: InstanceKey,
    sent: Option<ShadowSpec>,
) -> Result<ShadowSpec, ProviderError> {
    let found = api.read(move |scope| {
        let reader = scope.reader(&own).ok_or(ControlError::Unavailable)?;
        let Some(instance) = reader.instance(&own)? else {
            return Ok(None);
        };

        let parent = instance.parent.as_ref().map(|parent| &parent.key);
        match (shadow_of(&own, parent), sent) {
            (Some(shadow), _) if *shadow == own => {
                let state = ShadowState::decode(&instance.state);
                let state =
                    state.map_err(|error| Problem::new(Code::StoreError, error.to_string()))?;
                Ok(Some(state.spec))
            }
            (Some(_), sent) => Ok(sent),
            (None, _) => Ok(None),
        }
    });

    let not_permitted =
        || ProviderError::permanent("not_permitted", "only a shadow can request this effect");
    found
        .await
        .map_err(|problem| failed(&problem))?
        .ok_or_else(not_permitted)
}

/// Parts of the node that the pages of shadows use.
struct ShadowParts {
    instances: Instances,
    definitions: Definitions,
    events: Events,
}

async fn compare(
    parts: &ShadowParts,
    own: InstanceKey,
    spec: Arc<ShadowSpec>,
    task: PageTask,
) -> Result<PageOutcome, Problem> {
    let started = Instant::now();
    let read_at = parts.instances.request.now();
    let is_ended = matches!(task, PageTask::Ended { .. });
    let found = {
        let instances = parts.instances.clone();
        let own = own.clone();
        let spec = Arc::clone(&spec);
        run_blocking(move || read(&instances, &own, &spec, &task)).await?
    };

    let programs = parts.definitions.programs();
    let active = programs
        .active(&own.tenant, &spec.saga)
        .map(|program| program.definition_ref().hash);
    let base = PageOutcome {
        read_at,
        active,
        ..PageOutcome::default()
    };
    if found.found.is_empty() {
        let elapsed_ms = elapsed_ms(started);
        return Ok(PageOutcome {
            position: found.end,
            has_more: found.has_more,
            elapsed_ms,
            ..base
        });
    }

    let live = programs.by_hash(&spec.live.hash);
    let missing = || {
        Problem::new(
            Code::DefinitionNotFound,
            format!("the live definition of {} is not loaded", spec.saga),
        )
    };
    let live = live.ok_or_else(missing)?;
    let candidate = {
        let spec = Arc::clone(&spec);
        run_blocking(move || compiled(&spec.source)).await?
    };

    let events = events(
        &parts.events,
        &own.tenant,
        read_at,
        &live,
        &candidate,
        &found,
    )
    .await?;
    let request = parts.instances.request.clone();
    let outcome = run_blocking(move || {
        let comparator = Comparator {
            live: live.as_ref(),
            candidate: candidate.as_ref(),
            redact: request.redact(),
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

fn elapsed_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Reads the instances of a page. Blocks.
fn read(
    instances: &Instances,
    own: &InstanceKey,
    spec: &ShadowSpec,
    task: &PageTask,
) -> Result<Cases, Problem> {
    let reader = instances.reader(own).ok_or(ControlError::Unavailable)?;
    let tenant = &own.tenant;
    let now = instances.request.now();
    let found = match task {
        PageTask::Ended { after, until } => {
            cases::ended(&reader, tenant, spec, after.as_ref(), *until, now)?
        }
        PageTask::Unfinished | PageTask::End => cases::unfinished(&reader, tenant, spec, now)?,
    };

    found.ok_or_else(|| {
        Problem::new(
            Code::Unavailable,
            "the index of the instances is being built",
        )
    })
}

/// Compiles the candidate. Blocks.
fn compiled(source: &CandidateSource) -> Result<Arc<dyn Program>, Problem> {
    let invalid =
        |detail: String| Problem::new(Code::InvalidDefinitions, format!("the candidate: {detail}"));
    let file = source_file(source).map_err(invalid)?;
    let definition = compile_source(&file).map_err(|problems| {
        invalid(
            problems
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
        )
    })?;

    Ok(definition.program)
}

/// Returns the file of a candidate.
pub(super) fn source_file(source: &CandidateSource) -> Result<SourceFile, String> {
    let CandidateSource { name, text, base64 } = source;
    let bytes = match (text, base64) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(text)) => STANDARD
            .decode(text)
            .map_err(|error| format!("{name}: base64: {error}"))?,
        _ => return Err(format!("{name}: set either text or base64")),
    };

    Ok(SourceFile {
        path: PathBuf::from(name),
        bytes: bytes.into(),
    })
}

/// Reads the events of the instances that only the candidate consumes.
async fn events(
    events: &Events,
    tenant: &TenantId,
    read_at: Timestamp,
    live: &Arc<dyn Program>,
    candidate: &Arc<dyn Program>,
    found: &Cases,
) -> Result<AdditionalEvents, Problem> {
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
    let sources = events.sources();

    Ok(additional_events(&sources, tenant, &types, candidate.as_ref(), &times).await?)
}

fn failed(problem: &Problem) -> ProviderError {
    if problem.is_transient() {
        ProviderError::unavailable(problem.code(), problem.detail())
    } else {
        ProviderError::permanent(problem.code(), problem.detail())
    }
}
