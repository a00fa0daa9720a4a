//! `/admin/deploy`, `/admin/reload`, `/admin/collect`: deployment of shared definitions, and
//! garbage collection of all definitions.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::distribute;
use crate::server::body;
use crate::server::context::RequestContext;
use crate::server::extract::QueryParams;
use crate::server::forward;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::auth::Caller;
use orlog_node::definitions::change::DeployError;
use orlog_node::definitions::deploy::{DeployPolicy, DeployRequest};
use orlog_node::definitions::files::is_deployable;
use orlog_node::definitions::gc::CollectResult;
use orlog_node::definitions::schedules::file::SUFFIX;
use orlog_node::definitions::{DeploymentPlan, SUFFIXES, SourceFile};

/// Maximum body size of a deployment in bytes: all files together, as JSON.
pub(crate) const MAX_DEPLOY_BYTES: u64 = 64 << 20;
/// Maximum number of files of a deployment.
const MAX_FILES: usize = 1000;
/// Maximum length of a file name or user name, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// User name of a deployment if the request names none.
const UNNAMED_USER: &str = "unnamed";

/// Definitions that replace all active definitions of their owner.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeployBody {
    /// User name recorded in the deployment.
    pub(super) user: Option<String>,
    /// Files, each with `text` or `base64`.
    pub(super) files: Vec<DeployFile>,
}

/// Definition file.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeployFile {
    /// File name without a directory: `*.saga.yaml` or `*.saga.wasm`.
    name: String,
    /// Content, if it is text.
    text: Option<String>,
    /// Content in base64, if it is binary.
    base64: Option<String>,
}

/// Options of a deployment.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeployOptions {
    /// Return the plan without deploying.
    #[serde(default)]
    dry_run: bool,
    /// Activate definitions with a lower version than the active ones.
    #[serde(default)]
    allow_downgrade: bool,
    /// Keep the active definitions and the schedules that no file contains.
    #[serde(default)]
    keep_others: bool,
    /// Number of the deployment that a pod repeats; only in requests between pods.
    number: Option<i64>,
    /// Its time, in milliseconds since 1970; only in requests between pods.
    at: Option<i64>,
}

/// Options of a reload.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReloadOptions {
    /// User name recorded in the deployment.
    user: Option<String>,
    /// Activate definitions with a lower version than the active ones.
    #[serde(default)]
    allow_downgrade: bool,
}

/// Result of a garbage collection.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CollectResponse {
    /// Deleted definitions.
    dropped: Vec<DroppedDefinition>,
    /// Number of retired definitions that stay, because instances are pinned to them.
    kept: usize,
}

impl From<CollectResult> for CollectResponse {
    fn from(collected: CollectResult) -> Self {
        let dropped = collected.dropped.iter().map(|program| DroppedDefinition {
            saga: program.saga.to_string(),
            version: program.version,
            hash: hex::encode(program.hash),
        });
        Self {
            dropped: dropped.collect(),
            kept: collected.retained,
        }
    }
}

/// Deleted definition.
#[derive(Debug, Serialize, ToSchema)]
struct DroppedDefinition {
    saga: String,
    /// Version number set by the author.
    version: u32,
    /// Hash of the definition, in hexadecimal.
    hash: String,
}

impl From<DeployError> for Problem {
    fn from(error: DeployError) -> Self {
        match error {
            DeployError::Rejected(rejected) => {
                let problem_details = rejected.0.iter().map(|problem| ProblemDetail {
                    pointer: problem.location(),
                    detail: problem.to_string(),
                });
                let count = match rejected.0.len() {
                    1 => "1 error".to_owned(),
                    count => format!("{count} errors"),
                };
                let detail = format!("{count}; the active definitions are unchanged");

                Problem::new(Code::InvalidDefinitions, detail).with(problem_details.collect())
            }
            DeployError::Limit(detail) => Problem::new(Code::DefinitionLimit, detail),
            DeployError::Superseded(_) => Problem::new(Code::DefinitionNotFound, error.to_string()),
            DeployError::NoDir => Problem::new(Code::NothingToReload, error.to_string()),
            DeployError::ShuttingDown | DeployError::Number(_) => {
                Problem::new(Code::Unavailable, error.to_string())
            }
            DeployError::Shard(error) => error.into(),
            DeployError::Store(error) => error.into(),
        }
    }
}

/// Deploy definitions
///
/// Replaces all active shared definitions: a saga without a file starts no new instances, except
/// with `keep_others`. Definitions of contexts stay active. The deployment is atomic: one error
/// rejects it, and the response lists every diagnostic. Running instances keep the definition with
/// which they started. Maximum body size: 64 MiB.
#[utoipa::path(
    post,
    path = "/admin/deploy",
    tag = "node",
    params(DeployOptions),
    request_body = DeployBody,
    responses((
        status = 200,
        description = "The definitions are active; with dry_run, the plan",
        body = DeploymentPlan
    ))
)]
pub(crate) async fn deploy(
    api: RequestContext,
    State(definitions): State<Definitions>,
    cluster: Cluster,
    Extension(caller): Extension<Caller>,
    QueryParams(how): QueryParams<DeployOptions>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DeploymentPlan>, Problem> {
    let body = body::read(&api, &headers, body, MAX_DEPLOY_BYTES).await?;
    let bundle: DeployBody = api.bodies().parse(&body, body::parse).await?;
    let by = user_name(caller.check_user(bundle.user)?)?;
    let files = files(bundle.files)?;
    let policy = DeployPolicy {
        allow_downgrade: how.allow_downgrade,
        ..DeployPolicy::default()
    };
    let request = DeployRequest {
        context: None,
        files,
        keep_others: how.keep_others,
        user: by,
        dry_run: how.dry_run,
        policy,
        repeats: repeated(&headers, how.number, how.at),
    };

    let mut plan = definitions.deployments().deploy(request).await?;
    // Only the pod that received the deployment of the user repeats it on the others.
    if !how.dry_run && !forward::is_forwarded(&headers) {
        plan.warnings
            .extend(distribute::repeat(&definitions, &cluster, &headers, None).await);
    }
    Ok(Json(plan))
}

/// Returns the number and time of the deployment that a request of another pod repeats.
pub(super) fn repeated(
    headers: &HeaderMap,
    number: Option<i64>,
    at: Option<i64>,
) -> Option<(u64, Timestamp)> {
    let number = u64::try_from(number?).ok()?;
    let at = Timestamp::from_millis(at?);
    // A client cannot send the header of forwarded requests, and thus cannot choose the number of a
    // deployment.
    forward::is_forwarded(headers).then_some((number, at))
}

/// Deploys one definition file of an owner on all pods; the other definitions stay active.
pub(crate) async fn deploy_one(
    definitions: &Definitions,
    cluster: &Cluster,
    headers: &HeaderMap,
    context: Option<TenantId>,
    file: SourceFile,
    user: String,
    allow_downgrade: bool,
) -> Result<DeploymentPlan, Problem> {
    let policy = DeployPolicy {
        allow_downgrade,
        ..DeployPolicy::default()
    };
    let files = vec![file];
    // The file is the only change, so that a promoted candidate retires no other definition of its
    // owner.
    let keep_others = true;
    let request = DeployRequest {
        context: context.clone(),
        files,
        keep_others,
        user,
        policy,
        ..DeployRequest::default()
    };

    // Active here first: a pod that repeats a rejected deployment would differ from all others.
    let mut plan = definitions.deployments().deploy(request).await?;
    plan.warnings
        .extend(distribute::repeat(definitions, cluster, headers, context.as_ref()).await);
    Ok(plan)
}

/// Read the configuration, the definitions and the upstreams of the node again
///
/// The reload is atomic: one error rejects it and nothing changes. Without a definitions directory,
/// the active definitions stay. Changed certificates are read in either case. `warnings` lists
/// changed keys of the configuration that only a restart applies.
#[utoipa::path(
    post,
    path = "/admin/reload",
    tag = "node",
    params(ReloadOptions),
    responses((status = 200, description = "The definitions are active", body = DeploymentPlan))
)]
pub(crate) async fn reload(
    State(definitions): State<Definitions>,
    Extension(caller): Extension<Caller>,
    QueryParams(options): QueryParams<ReloadOptions>,
) -> Result<Json<DeploymentPlan>, Problem> {
    let policy = DeployPolicy {
        allow_downgrade: options.allow_downgrade,
        ..DeployPolicy::default()
    };
    let user = user_name(caller.check_user(options.user)?)?;
    Ok(Json(definitions.reload(user, policy).await?))
}

/// Delete unused definitions
///
/// Deletes retired definitions of all owners with which no stored instance started. Every
/// deployment does the same.
#[utoipa::path(
    post,
    path = "/admin/collect",
    tag = "node",
    responses((status = 200, description = "The definitions were deleted", body = CollectResponse))
)]
pub(crate) async fn collect(
    State(definitions): State<Definitions>,
) -> Result<Json<CollectResponse>, Problem> {
    Ok(Json(definitions.collector().collect(None).await?.into()))
}

/// Returns the user name for the record.
pub(crate) fn user_name(by: Option<String>) -> Result<String, Problem> {
    let by = by
        .filter(|by| !by.is_empty())
        .unwrap_or_else(|| UNNAMED_USER.to_owned());
    if by.len() > MAX_NAME_BYTES || by.chars().any(char::is_control) {
        let detail =
            format!("user: a name has at most {MAX_NAME_BYTES} bytes and no control characters");
        return Err(Problem::new(Code::InvalidBody, detail));
    }

    Ok(by)
}

pub(super) fn files(files: Vec<DeployFile>) -> Result<Vec<SourceFile>, Problem> {
    if files.len() > MAX_FILES {
        let detail = format!("too many files: {}; limit {MAX_FILES}", files.len());
        return Err(Problem::new(Code::InvalidBody, detail));
    }

    // All errors at once: a deployment is rejected as a whole, and its author corrects it in one
    // go.
    let mut names = BTreeSet::new();
    let mut errors = Vec::new();
    let mut sources = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        let name = file.name.clone();
        match source(file) {
            Ok(_) if !names.insert(name.clone()) => {
                errors.push((index, format!("duplicate file {name:?}")));
            }
            Ok(source) => sources.push(source),
            Err(detail) => errors.push((index, detail)),
        }
    }

    if errors.is_empty() {
        return Ok(sources);
    }

    let detail = format!("{} files are unreadable", errors.len());
    let problem_detail = |(index, detail)| ProblemDetail {
        pointer: format!("/files/{index}"),
        detail,
    };
    Err(Problem::new(Code::InvalidBody, detail)
        .with(errors.into_iter().map(problem_detail).collect()))
}

fn source(file: DeployFile) -> Result<SourceFile, String> {
    let DeployFile { name, text, base64 } = file;
    // The name identifies the file in diagnostics and records; it must never act as a path.
    let is_allowed = |c: char| !(c.is_control() || matches!(c, '/' | '\\'));
    if name.len() > MAX_NAME_BYTES || !name.chars().all(is_allowed) || !is_deployable(&name) {
        // The invalid name is part of the error, so that its length is limited.
        let displayed: String = name.chars().take(64).collect();
        return Err(format!(
            "invalid definition file name {displayed:?}; expected *{} or *{SUFFIX} without a \
             directory",
            SUFFIXES.join(" or *")
        ));
    }

    let bytes = match (text, base64) {
        (Some(text), None) => text.into_bytes(),
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
