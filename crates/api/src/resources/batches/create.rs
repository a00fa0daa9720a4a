//! `POST /v1/batches`: creates a batch, or reports what it would do.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use orlog_model::{EventType, InstanceKey, SagaName, Status, TenantId, Timestamp};
use orlog_program::document::did_you_mean;
use orlog_program::is_built_in;
use orlog_sagas::batch::{self, BatchAction, BatchSpec, MAX_CANARY, MAX_RATE, Selection};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::dry_run::{self, DryRunView};
use super::view::BatchView;
use super::{Batch, check_signals, permit};
use crate::resources::definitions::migrate::target;
use crate::resources::sagas::built_in;
use crate::resources::sagas::control::{ControlBody, send_control};
use crate::resources::sagas::resource;
use crate::server::body::{self, CheckedBody};
use crate::server::errors::invalid_parameter;
use crate::server::extract::{Tenant, time};
use crate::server::forward;
use crate::server::parts::access::Access;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::auth::Caller;
use orlog_node::batches;
use orlog_node::sagas::search::compile_filter;

/// Default number of instances per second.
const DEFAULT_RATE: u32 = 50;

/// Instances, instruction and speed of a batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchBody {
    /// Saga.
    #[schema(value_type = String, example = "order")]
    saga: SagaName,
    /// Statuses. Default: all.
    #[serde(default)]
    #[schema(value_type = Vec<String>, example = json!(["stuck"]))]
    status: Option<Vec<Status>>,
    /// Prefix of the correlation id.
    prefix: Option<String>,
    /// Updated at or after this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>, format = "date-time")]
    updated_from: Option<Timestamp>,
    /// Updated before this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>, format = "date-time")]
    updated_until: Option<Timestamp>,
    /// Started at or after this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>, format = "date-time")]
    created_from: Option<Timestamp>,
    /// Started before this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>, format = "date-time")]
    created_until: Option<Timestamp>,
    /// CEL condition; docs/queries.md describes the variables.
    filter: Option<String>,
    /// Instruction.
    action: ActionBody,
    /// Number of instances per second, at most 1000. Default: 50.
    rate: Option<u32>,
    /// Wait for an approval after this number of instances, at most 100. Default: no canary.
    canary: Option<u32>,
    /// Report what the batch would do, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// Id of the batch and idempotency key of the request. Default: the header `Idempotency-Key`.
    id: Option<String>,
    /// User name recorded in the history of the instances.
    user: Option<String>,
    /// Reason recorded in the history of the instances.
    reason: Option<String>,
}

/// Instruction to each instance. A variant without fields has braces, so that unknown fields are
/// rejected.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ActionBody {
    /// Cancel and compensate the completed steps.
    Cancel {},
    /// Buffer inputs without applying them.
    Pause {},
    /// Apply the buffered inputs and continue.
    Resume {},
    /// Retry the failed action of a stuck instance.
    Retry {},
    /// Skip the failed compensation of a stuck instance.
    Skip {},
    /// End a stuck instance without further steps or compensations.
    ForceComplete {},
    /// Send an event.
    Signal {
        /// Event type.
        #[schema(value_type = String)]
        signal: EventType,
        /// Payload. Default: `null`.
        #[serde(default)]
        data: Value,
    },
    /// Move to another definition. Requires the right to administer.
    Migrate {
        /// Target definition: version or hash prefix. Default: the active one.
        to: Option<String>,
    },
}

/// Create a batch
///
/// Sends an instruction to all instances that match, in the background; the response follows when
/// the batch is durable. The header `Idempotency-Key` is the id of the batch: a repetition has no
/// effect. With `dry_run`, nothing changes.
#[utoipa::path(
    post,
    path = "/v1/batches",
    tag = "batches",
    params(("idempotency-key" = Option<String>, Header, description = "Id of the batch. Default: a \
                                                                       new id")),
    request_body = BatchBody,
    responses(
        (status = 200, description = "Result of a dry run", body = DryRunView),
        (
            status = 202,
            description = "The batch is durable; `Location` is its path",
            body = BatchView
        )
    )
)]
#[expect(clippy::too_many_arguments, reason = "one argument per extractor")]
pub(crate) async fn create(
    instances: Instances,
    State(definitions): State<Definitions>,
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    uri: Uri,
    mut headers: HeaderMap,
    CheckedBody(bytes): CheckedBody,
) -> Result<Response, Problem> {
    let api = &instances.request;
    let body: BatchBody = api.bodies().parse(&bytes, body::parse).await?;
    let dry_run = body.dry_run;
    let id = body.id.clone();
    let user = caller.check_user(body.user.clone())?;
    let spec = spec(&definitions, &instances.cluster, body, user, &tenant)?;
    permit(&caller, &spec.action)?;
    if dry_run {
        return Ok(dry_run::respond(&instances, tenant, spec)
            .await?
            .into_response());
    }

    check_signals(&access, &caller, &tenant, &spec.action)?;
    let key = built_in::identified(id, &mut headers, |id| batches::key(tenant.clone(), id))?;
    if let Some(response) =
        forward::to_owner(&instances.cluster, &key, &uri, None, &headers, &bytes).await?
    {
        return Ok(response);
    }

    let provided = ControlBody {
        id: None,
        user: spec.user.clone(),
        reason: spec.reason.clone(),
        expected_version: None,
        wait_token: None,
    };
    let created = send_control(
        &instances,
        &caller,
        &key,
        provided,
        built_in::signal(batch::CREATE, json!(spec)),
    )
    .await;

    drop(created.map_err(|problem| {
        if problem.code() == Code::InvalidStatus {
            exists(&key)
        } else {
            problem
        }
    })?);

    let location = orlog_node::url_path::path(&["v1", "batches", key.correlation.as_str()]);
    let location = HeaderValue::from_str(&location).expect("an escaped path is a valid header");
    Ok((
        StatusCode::ACCEPTED,
        [(header::LOCATION, location)],
        resource::show::<Batch>(api, key).await?,
    )
        .into_response())
}

fn exists(key: &InstanceKey) -> Problem {
    let detail = format!(
        "a batch \"{}\" with another content exists; use another Idempotency-Key",
        key.correlation
    );
    Problem::new(Code::BatchExists, detail)
}

/// Returns the specification of a batch.
///
/// # Errors
/// If a field is invalid; the problem names it.
fn spec(
    definitions: &Definitions,
    cluster: &Cluster,
    body: BatchBody,
    user: Option<String>,
    tenant: &TenantId,
) -> Result<BatchSpec, Problem> {
    check_saga(definitions, tenant, &body.saga)?;
    let invalid = |field: &str, detail: String| {
        let pointer = ProblemDetail {
            pointer: format!("/{field}"),
            detail: detail.clone(),
        };
        Problem::new(Code::InvalidBody, detail).with(vec![pointer])
    };
    let rate = body.rate.unwrap_or(DEFAULT_RATE);
    if !(1..=MAX_RATE).contains(&rate) {
        return Err(invalid(
            "rate",
            format!("rate is {rate}; it must be 1 to {MAX_RATE} instances per second"),
        ));
    }
    if let Some(canary) = body
        .canary
        .filter(|canary| !(1..=MAX_CANARY).contains(canary))
    {
        return Err(invalid(
            "canary",
            format!("canary is {canary}; set 1 to {MAX_CANARY}, or omit it"),
        ));
    }

    // No filter would reach all instances of the saga, and an empty one is more likely an unset
    // variable than an intent.
    if body.status.as_ref().is_some_and(Vec::is_empty) {
        let detail = "status is empty; state statuses, or omit it to select all instances";
        return Err(invalid("status", detail.to_owned()));
    }
    if body.prefix.as_deref() == Some("") {
        let detail = "prefix is empty; state a prefix, or omit it to select all instances";
        return Err(invalid("prefix", detail.to_owned()));
    }
    if let Some(filter) = &body.filter {
        compile_filter(filter)?;
    }

    let action = match body.action {
        ActionBody::Cancel {} => BatchAction::Cancel,
        ActionBody::Pause {} => BatchAction::Pause,
        ActionBody::Resume {} => BatchAction::Resume,
        ActionBody::Retry {} => BatchAction::Retry,
        ActionBody::Skip {} => BatchAction::Skip,
        ActionBody::ForceComplete {} => BatchAction::ForceComplete,
        ActionBody::Signal { signal, data } => BatchAction::Signal { signal, data },
        ActionBody::Migrate { to } => {
            let program = target(definitions, tenant, &body.saga, to.as_deref())?;
            let definition = program.definition_ref();
            BatchAction::Migrate {
                version: definition.version,
                hash: definition.hash,
            }
        }
    };

    let selection = Selection {
        saga: body.saga,
        statuses: body.status.unwrap_or_default(),
        prefix: body.prefix,
        updated_from: body.updated_from,
        updated_until: body.updated_until,
        created_from: body.created_from,
        created_until: body.created_until,
        filter: body.filter,
    };

    let reason = body.reason.filter(|reason| !reason.is_empty());
    Ok(BatchSpec {
        selection,
        action,
        rate,
        canary: body.canary,
        user,
        reason,
        shards: cluster.slots_of_shards(tenant),
    })
}

fn check_saga(
    definitions: &Definitions,
    tenant: &TenantId,
    saga: &SagaName,
) -> Result<(), Problem> {
    if is_built_in(saga.as_str()) {
        let detail = format!("{saga} is a built-in saga; use its own routes");
        return Err(invalid_parameter("saga", detail));
    }

    let programs = definitions.programs().usable(tenant);
    let known = || {
        programs
            .iter()
            .map(|program| program.definition_ref().saga.as_str())
    };
    if known().any(|known| known == saga.as_str()) {
        return Ok(());
    }

    let advice = did_you_mean(saga.as_str(), known().filter(|known| !is_built_in(known)));
    let advice = advice
        .map(|advice| format!("; {advice}"))
        .unwrap_or_default();
    Err(Problem::new(
        Code::DefinitionNotFound,
        format!("saga \"{saga}\" has no definition{advice}"),
    ))
}
