//! `POST /v1/shadows`: starts a shadow of the active definition of a saga.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use orlog_model::{
    ControlAction, InstanceKey, OnExisting, SampleRate, StartRequest, TenantId, parse_duration,
};
use orlog_program::Program;
use orlog_sagas::shadow::{
    CandidateSource, DEFAULT_DURATION, DefinitionId, MAX_DURATION, MAX_INSTANCES, MAX_SOURCE_BYTES,
    ShadowSpec,
};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::Shadow;
use crate::resources::sagas::control::{ControlBody, send_control};
use crate::resources::sagas::resource;
use crate::server::blocking::run_blocking;
use crate::server::body::{self, CheckedBody};
use crate::server::extract::Tenant;
use crate::server::forward;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::auth::Caller;
use orlog_node::definitions::change::DeployError;
use orlog_node::definitions::deploy::{DeployPolicy, DeployRequest};
use orlog_node::definitions::{DefinitionErrors, SourceFile, compile_source, is_definition};
use orlog_node::shadows;
use orlog_node::shadows::candidate::source_file;

/// Default limit of compared instances.
const DEFAULT_INSTANCES: u64 = 10_000;
/// Minimum duration of a shadow.
const MIN_DURATION: Duration = Duration::from_secs(1);

/// Candidate, sample and limits of a shadow.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShadowBody {
    /// Definition file of the candidate, at most 256 KiB.
    file: CandidateFile,
    /// Percentage of the new instances. Default: `100%`.
    #[schema(example = "10%")]
    sample: Option<String>,
    /// Duration, from one second to 30 days. Default: `1h`.
    #[serde(rename = "for")]
    #[schema(example = "1h")]
    duration: Option<String>,
    /// Number of compared instances after which the shadow ends, at most 100000. Default: 10000.
    max_instances: Option<u64>,
    /// User name recorded in the history of the shadow.
    user: Option<String>,
    /// Reason recorded in the history of the shadow.
    reason: Option<String>,
}

/// Definition file, with `text` or `base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CandidateFile {
    /// File name without a directory: `*.saga.yaml` or `*.saga.wasm`.
    name: String,
    /// Content, if it is text.
    text: Option<String>,
    /// Content in base64, if it is binary.
    base64: Option<String>,
}

/// Start a shadow
///
/// Compares a new version of a definition with the active one: the inputs of a sample of the new
/// instances are recorded, and applied to both versions when an instance ends. The candidate
/// performs nothing. A saga has at most one shadow; a new one replaces an ended one.
#[utoipa::path(
    post,
    path = "/v1/shadows",
    tag = "shadows",
    request_body = ShadowBody,
    responses((
        status = 202,
        description = "The shadow is durable; `Location` is its path",
        body = super::view::ShadowView
    ))
)]
pub(crate) async fn start(
    instances: Instances,
    State(definitions): State<Definitions>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    uri: Uri,
    headers: HeaderMap,
    CheckedBody(bytes): CheckedBody,
) -> Result<Response, Problem> {
    let api = &instances.request;
    let body: ShadowBody = api.bodies().parse(&bytes, body::parse).await?;
    let user = caller.check_user(body.user.clone())?;
    let spec = spec(&instances, &definitions, body, user, &tenant).await?;
    let key = shadows::key(tenant, spec.saga.as_str())
        .map_err(|error| Problem::new(Code::ShadowRejected, error))?;
    if let Some(response) =
        forward::to_owner(&instances.cluster, &key, &uri, None, &headers, &bytes).await?
    {
        return Ok(response);
    }

    run(&instances, &caller, &key, spec).await?;
    let location = orlog_node::url_path::path(&["v1", "shadows", key.correlation.as_str()]);
    let location = HeaderValue::from_str(&location).expect("an escaped path is a valid header");
    Ok((
        StatusCode::ACCEPTED,
        [(header::LOCATION, location)],
        resource::show::<Shadow>(api, key).await?,
    )
        .into_response())
}

async fn run(
    instances: &Instances,
    caller: &Caller,
    key: &InstanceKey,
    spec: ShadowSpec,
) -> Result<(), Problem> {
    let provided = ControlBody {
        id: None,
        user: spec.user.clone(),
        reason: spec.reason.clone(),
        expected_version: None,
        wait_token: None,
    };
    let request = StartRequest {
        event: None,
        data: json!(spec),
        schema_version: 1,
        subject: None,
        on_existing: OnExisting::Restart,
        signal: None,
    };

    match send_control(
        instances,
        caller,
        key,
        provided,
        ControlAction::Start(Box::new(request)),
    )
    .await
    {
        Ok(_) => Ok(()),
        Err(problem) if problem.code() == Code::InvalidStatus => {
            let saga = &spec.saga;
            let detail = format!(
                "a shadow of saga \"{saga}\" runs; stop it first: orlog shadow stop {saga}"
            );
            Err(Problem::new(Code::ShadowRejected, detail))
        }
        Err(problem) => Err(problem),
    }
}

fn invalid(field: &str, detail: String) -> Problem {
    let pointer = ProblemDetail {
        pointer: format!("/{field}"),
        detail: detail.clone(),
    };
    Problem::new(Code::InvalidBody, detail).with(vec![pointer])
}

/// Returns the specification of a shadow.
///
/// # Errors
/// If a field is invalid, the candidate cannot be deployed, or nothing can be compared with it.
async fn spec(
    instances: &Instances,
    definitions: &Definitions,
    body: ShadowBody,
    user: Option<String>,
    tenant: &TenantId,
) -> Result<ShadowSpec, Problem> {
    let sample = match body.sample.as_deref() {
        Some(text) => text
            .parse::<SampleRate>()
            .map_err(|error| invalid("sample", error.to_string()))?,
        None => SampleRate::ALL,
    };
    let duration = duration(body.duration.as_deref())?;
    let max_instances = body.max_instances.unwrap_or(DEFAULT_INSTANCES);
    if !(1..=MAX_INSTANCES).contains(&max_instances) {
        let detail = format!("max_instances is {max_instances}; set 1 to {MAX_INSTANCES}");
        return Err(invalid("max_instances", detail));
    }

    let CandidateFile { name, text, base64 } = body.file;
    let source = CandidateSource { name, text, base64 };
    let file = source_file(&source).map_err(|detail| invalid("file", detail))?;
    check_file(&file)?;
    let candidate = validated(definitions, tenant, file).await?;
    let candidate = candidate.definition_ref();
    let live = live(definitions, tenant, candidate)?;
    let now = instances.request.now();

    Ok(ShadowSpec {
        saga: candidate.saga.clone(),
        live,
        candidate: DefinitionId {
            version: candidate.version,
            hash: candidate.hash,
        },
        source,
        sample,
        from: now,
        until: now.saturating_add(duration),
        max_instances,
        user,
        reason: body.reason.filter(|reason| !reason.is_empty()),
        shards: instances.cluster.slots_of_shards(tenant),
    })
}

fn duration(text: Option<&str>) -> Result<Duration, Problem> {
    let Some(text) = text else {
        return Ok(DEFAULT_DURATION);
    };

    let limits = "set 1s to 30d, for example 1h";
    let duration =
        parse_duration(text).map_err(|error| invalid("for", format!("for: {error}; {limits}")))?;
    if !(MIN_DURATION..=MAX_DURATION).contains(&duration) {
        return Err(invalid("for", format!("for is {text:?}; {limits}")));
    }
    Ok(duration)
}

fn check_file(file: &SourceFile) -> Result<(), Problem> {
    let name = file.name();
    let is_plain = Some(name.as_str()) == file.path.to_str() && !name.contains('\\');
    if name.len() > 255 || !is_plain || !is_definition(&name) || name.contains(char::is_control) {
        let shown: String = name.chars().take(64).collect();
        let detail = format!(
            "invalid file name {shown:?}; expected *.saga.yaml or *.saga.wasm without a directory"
        );
        return Err(invalid("file/name", detail));
    }
    if file.bytes.len() > MAX_SOURCE_BYTES {
        let size = file.bytes.len();
        let detail = format!(
            "the candidate has {size} bytes, and a shadow stores at most {MAX_SOURCE_BYTES}; \
             compare it with recorded events instead: orlog simulate"
        );
        return Err(invalid("file", detail));
    }

    Ok(())
}

/// Returns the program of a candidate that a deployment would accept.
async fn validated(
    definitions: &Definitions,
    tenant: &TenantId,
    file: SourceFile,
) -> Result<Arc<dyn Program>, Problem> {
    // The version is checked when the candidate is promoted.
    let policy = DeployPolicy {
        allow_downgrade: true,
        replace_used_version: true,
    };
    let files = vec![file.clone()];
    let compiled = run_blocking(move || {
        compile_source(&file)
            .map_err(|problems| Problem::from(DeployError::from(DefinitionErrors(problems))))
    });

    let candidate = compiled.await?.program;
    let context = definitions
        .active()
        .owner(tenant, &candidate.definition_ref().saga);
    let keep_others = true;
    let dry_run = true;
    let request = DeployRequest {
        context,
        files,
        keep_others,
        dry_run,
        policy,
        ..DeployRequest::default()
    };
    definitions.deployments().deploy(request).await?;

    Ok(candidate)
}

/// Returns the active definition with which the candidate is compared.
fn live(
    definitions: &Definitions,
    tenant: &TenantId,
    candidate: &orlog_model::DefinitionRef,
) -> Result<DefinitionId, Problem> {
    let saga = &candidate.saga;
    let rejected = |detail: String| Problem::new(Code::ShadowRejected, detail);
    let live = definitions.programs().active(tenant, saga).ok_or_else(|| {
        rejected(format!(
            "saga \"{saga}\" has no active definition, so there is nothing to compare with; deploy \
             it"
        ))
    })?;
    let live = live.definition_ref();
    if live.hash == candidate.hash {
        let detail = format!(
            "the candidate is the active definition of saga \"{saga}\", version {}",
            live.version
        );
        return Err(rejected(format!("{detail}; change the file")));
    }

    Ok(DefinitionId {
        version: live.version,
        hash: live.hash,
    })
}
