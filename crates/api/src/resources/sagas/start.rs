//! `POST /v1/sagas/{saga}`: starts an instance, and waits for its result if requested.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use orlog_actors::ControlResult;
use orlog_model::{
    ControlAction, ControlRequest, CorrelationId, Event, EventId, EventType, InstanceKey,
    OnExisting, SagaName, StartRequest, StartSignal, TenantId, Timestamp, derive_id,
    is_direction_control,
};
use orlog_program::Program;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::request_key::{FingerprintedRequest, KEY_PREFIX, StartKey, idempotency_key};
use super::result::{ResultView, await_end, wait};
use crate::resources::access::check_signed;
use crate::resources::events::takes_work;
use crate::server::body::{self, CheckedBody};
use crate::server::errors::invalid_parameter;
use crate::server::extract::{PathParams, QueryParams, Tenant};
use crate::server::forward;
use crate::server::parts::access::Access;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::{Caller, Right};

/// Maximum length of the subject of an event, in bytes.
const MAX_SUBJECT_BYTES: usize = 512;

/// Options of a start.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StartQuery {
    /// Correlation id. Default: the correlation id in the data, by the rule of the definition; a
    /// new id if the definition has no rule for the start event.
    #[param(value_type = Option<String>)]
    correlation: Option<CorrelationId>,
    /// Start event. Default: the first start event of the definition.
    #[param(value_type = Option<String>)]
    event: Option<EventType>,
    /// Maximum wait for the end of the instance, for example `30s`; at most `60s`. Requires the
    /// right to read. Default: the response follows as soon as the start is durable.
    #[param(format = "duration")]
    wait: Option<String>,
    /// Policy if the instance exists: `return` (default) joins it, `fail` rejects the request,
    /// `restart` starts a new run if the instance has ended.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    on_existing: OnExisting,
    /// Subject of the start event.
    subject: Option<String>,
    /// Schema version of the data. Default: 1.
    dataversion: Option<u32>,
}

/// Start of the instance of a signal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody {
    /// Start event. Default: the first start event of the definition.
    #[schema(value_type = Option<String>)]
    event: Option<EventType>,
    /// Data of the start event. Default: `{}`.
    #[serde(default = "empty_data")]
    data: Value,
    /// Subject of the start event.
    subject: Option<String>,
    /// Schema version of the data. Default: 1.
    dataversion: Option<u32>,
    /// Policy if the instance has ended: `return` (default) delivers the signal to it, `restart`
    /// starts a new run.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    on_existing: OnExisting,
}

fn empty_data() -> Value {
    json!({})
}

/// Start an instance
///
/// The body is the data of the start event. The response follows when the start is durable, or with
/// `wait` when the instance has ended. Send the header `Idempotency-Key` to repeat a request whose
/// outcome is unknown.
#[utoipa::path(
    post,
    path = "/v1/sagas/{saga}",
    tag = "sagas",
    params(
        ("saga" = String, Path, description = "Saga name"),
        StartQuery,
        ("idempotency-key" = Option<String>, Header, description = "Identifies the request; a \
                                                                    repetition has no effect")
    ),
    request_body(content = Option<Value>, description = "Data of the start event; `{}` if empty"),
    responses(
        (status = 200, description = "The instance has ended within `wait`", body = ResultView),
        (
            status = 202,
            description = "The start is durable; `Location` is the result",
            body = ResultView
        )
    )
)]
#[expect(clippy::too_many_arguments, reason = "one argument per extractor")]
pub(crate) async fn start(
    instances: Instances,
    State(definitions): State<Definitions>,
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    PathParams(saga): PathParams<String>,
    QueryParams(query): QueryParams<StartQuery>,
    uri: Uri,
    headers: HeaderMap,
    CheckedBody(body): CheckedBody,
) -> Result<Response, Problem> {
    let api = &instances.request;
    takes_work(api)?;
    check_signed(&access, &caller, &tenant)?;
    let wait = wait(query.wait.as_deref())?;
    // A publisher may start instances; with `wait` it would read their results without the right
    // to.
    if wait.is_some() && !caller.roles.allow(Right::Read) {
        let detail =
            "wait returns the result of an instance and requires the right to read; omit it";
        return Err(Problem::new(Code::Forbidden, detail));
    }

    let saga = SagaName::new(saga).map_err(|error| invalid_parameter("saga", error.to_string()))?;
    // The definition of this pod decides about start event and correlation id, before the owner is
    // determined.
    let program = active(&definitions, &tenant, &saga)?;
    let id = idempotency_key(&headers)?;
    // A start event without data needs no body at all.
    let data = if body.trim_ascii().is_empty() {
        empty_data()
    } else {
        api.bodies().parse(&body, body::parse).await?
    };
    let request = StartRequest {
        event: Some(start_event(program.as_ref(), query.event.as_ref())?),
        data,
        schema_version: schema_version(query.dataversion)?,
        subject: subject(query.subject)?,
        on_existing: query.on_existing,
        signal: None,
    };

    let (correlation, is_new) = correlation(
        program.as_ref(),
        &tenant,
        query.correlation,
        &request,
        || new_correlation(&tenant, &saga, id.as_ref()),
    )?;
    let key = InstanceKey {
        tenant,
        saga,
        correlation,
    };

    // The owner repeats this handler with the same body. It would generate another id, and the id
    // determines the shard.
    let generated = is_new.then_some(&key.correlation);
    if let Some(response) =
        forward::to_owner(&instances.cluster, &key, &uri, generated, &headers, &body).await?
    {
        return Ok(response);
    }

    let start_key = id.as_ref().map(|id| {
        let request = FingerprintedRequest {
            correlation: &key.correlation,
            event: query.event.as_ref().map(EventType::as_str),
            data: &request.data,
            schema_version: request.schema_version,
            subject: request.subject.as_deref(),
        };
        StartKey::new(&key, id, &request)
    });

    let control = ControlRequest {
        id: id.unwrap_or_else(new_id),
        action: ControlAction::Start(Box::new(request)),
        expected_version: None,
        at: api.now(),
        user: caller.check_user(None)?,
        reason: None,
        trace: api.scope.trace.clone(),
        wait_token: None,
    };

    // A deadline of its own, before the wait: its problem says how to repeat the start.
    let started = async {
        match &start_key {
            Some(start_key) => {
                let record = start_key.record();
                let started = instances.control_once(&key, control, record).await;
                started.map_err(|error| start_key.named(error.into()))
            }
            None => Ok(instances.control(&key, control).await?),
        }
    };
    let Ok(started) = tokio::time::timeout(api.http().request_timeout, started).await else {
        let detail = "the start is not durable within http.request_timeout; its outcome is \
                      unknown: repeat the request with the same Idempotency-Key or correlation id";
        return Err(Problem::new(Code::Unavailable, detail));
    };

    let ControlResult {
        applied,
        version,
        status,
        paused,
        ..
    } = started?;

    // The result of an ended instance needs no wait, only the right to read it.
    let waits = wait.is_some();
    let reads_end = status.is_final() && caller.roles.allow(Right::Read);
    if let Some(wait) = wait.or(reads_end.then_some(Duration::ZERO)) {
        // An interrupted wait is no failure of the start: the caller asks for the result elsewhere.
        match await_end(&instances, &key, wait).await {
            Ok((true, view)) if !waits => {
                return Ok(view.existing(!applied).accepted());
            }
            Ok((true, view)) => return Ok(Json(view.existing(!applied)).into_response()),
            Ok((false, view)) => return Ok(view.existing(!applied).accepted()),
            // A lasting error is no interruption: a request elsewhere has the same result.
            Err(problem) if !problem.is_transient() => return Err(problem),
            Err(_) => {}
        }
    }

    Ok(ResultView::of_status(&key, status, paused, version)
        .existing(!applied)
        .accepted())
}

/// Returns the start request of a signal that starts its instance if there is none.
pub(super) fn with_signal(
    definitions: &Definitions,
    key: &InstanceKey,
    start: StartBody,
    signal: StartSignal,
) -> Result<StartRequest, Problem> {
    let StartBody {
        event,
        data,
        subject: event_subject,
        dataversion,
        on_existing,
    } = start;
    if on_existing == OnExisting::Fail {
        let detail =
            "start.on_existing: a signal goes to an existing instance; use return or restart";
        return Err(Problem::new(Code::InvalidBody, detail));
    }

    let program = active(definitions, &key.tenant, &key.saga)?;
    let request = StartRequest {
        event: Some(start_event(program.as_ref(), event.as_ref())?),
        data,
        schema_version: schema_version(dataversion)?,
        subject: subject(event_subject)?,
        on_existing,
        signal: Some(signal),
    };
    // Only the check is needed: the data must not name another instance than the path.
    let stated = || key.correlation.clone();
    correlation(
        program.as_ref(),
        &key.tenant,
        Some(stated()),
        &request,
        stated,
    )?;

    Ok(request)
}

/// Returns the program of new instances of a saga of a tenant.
fn active(
    definitions: &Definitions,
    tenant: &TenantId,
    saga: &SagaName,
) -> Result<Arc<dyn Program>, Problem> {
    let program = definitions.programs().active(tenant, saga);
    program.ok_or_else(|| {
        let detail = format!("no definition of saga {saga:?} is active");
        Problem::new(Code::DefinitionNotFound, detail)
    })
}

/// Returns the named start event, or the first one.
fn start_event(program: &dyn Program, named: Option<&EventType>) -> Result<EventType, Problem> {
    program.start_event(named).cloned().ok_or_else(|| {
        let starts = program
            .manifest()
            .subscriptions
            .iter()
            .filter(|event| event.starts);
        let known: Vec<&str> = starts.map(|event| event.kind.as_str()).collect();
        let name = named.map(ToString::to_string).unwrap_or_default();
        let saga = &program.definition_ref().saga;
        let detail = format!(
            "{name:?} is not a start event of saga {saga:?}; start events: {}",
            known.join(", ")
        );

        invalid_parameter("event", detail)
    })
}

/// Returns the correlation id of a start, and whether it is new.
///
/// # Errors
/// If the data has no correlation id and the definition requires one there, or if the stated one
/// differs: later events would go to another instance.
fn correlation(
    program: &dyn Program,
    tenant: &TenantId,
    stated: Option<CorrelationId>,
    request: &StartRequest,
    new: impl FnOnce() -> CorrelationId,
) -> Result<(CorrelationId, bool), Problem> {
    let stated = stated
        .map(|id| CorrelationId::for_path(id.as_str()))
        .transpose();
    let stated = stated.map_err(|error| invalid_parameter("correlation", error.to_string()))?;
    let kind = request
        .event
        .clone()
        .ok_or_else(|| Problem::new(Code::BadParameter, "no start event"))?;
    // A rule over the data finds the id itself; only a definition without a rule needs a new one.
    let is_new = stated.is_none() && program.correlates_by_envelope(&kind);

    let candidate = if is_new { Some(new()) } else { stated };
    // An event for the rule of the definition only; the engine creates the one that is applied.
    let event = Event {
        id: new_id(),
        tenant: tenant.clone(),
        kind,
        source: "orlog:start".to_owned(),
        subject: request.subject.clone(),
        // Constant, because the owner evaluates the rule again and must find the same id.
        time: Timestamp::from_millis(0),
        correlation: candidate.clone(),
        causation: None,
        trace: None,
        schema_version: request.schema_version,
        data: request.data.clone(),
        user: None,
        attributes: None,
    };

    let found = program.correlate(&event).map_err(|error| {
        Problem::new(
            Code::InvalidEvent,
            format!("{error}; add it to the data, or state the correlation id"),
        )
    })?;

    match candidate {
        Some(stated) if !is_new && stated != found => {
            let detail = format!(
                "the correlation id of the request is {stated:?}, and the data has {found:?}; \
                 state one of them"
            );
            Err(Problem::new(Code::InvalidEvent, detail))
        }
        // If the rule derives another id from the new one, the owner derives it again and needs no
        // parameter.
        Some(candidate) => Ok((found.clone(), is_new && found == candidate)),
        None => Ok((found, false)),
    }
}

/// Returns a new correlation id; with an idempotency key, that of the earlier request with the key.
fn new_correlation(tenant: &TenantId, saga: &SagaName, key: Option<&EventId>) -> CorrelationId {
    // Derived from the key, so that a repetition reaches the same instance, on whichever pod it
    // arrives.
    let id = key.map_or_else(Uuid::now_v7, |key| {
        let parts = [
            b"start",
            tenant.as_str().as_bytes(),
            saga.as_str().as_bytes(),
            key.as_str().as_bytes(),
        ];
        derive_id(Timestamp::from_millis(0), &parts)
    });
    CorrelationId::new(id.to_string()).expect("a UUID is a valid correlation id")
}

fn new_id() -> EventId {
    EventId::new(format!("{KEY_PREFIX}{}", Uuid::now_v7()))
        .expect("an id in this format is short ASCII")
}

fn schema_version(stated: Option<u32>) -> Result<u32, Problem> {
    match stated {
        Some(0) => Err(invalid_parameter(
            "dataversion",
            "0 is no schema version; the first one is 1",
        )),
        stated => Ok(stated.unwrap_or(1)),
    }
}

/// Checks the subject of a start event by the rule of all events.
fn subject(stated: Option<String>) -> Result<Option<String>, Problem> {
    if stated.as_deref().is_none_or(is_valid_subject) {
        return Ok(stated);
    }

    let detail =
        format!("subject must have 1 to {MAX_SUBJECT_BYTES} bytes and no control characters");
    Err(invalid_parameter("subject", detail))
}

fn is_valid_subject(text: &str) -> bool {
    (1..=MAX_SUBJECT_BYTES).contains(&text.len())
        && !text
            .chars()
            .any(|it| it.is_control() || is_direction_control(it))
}
