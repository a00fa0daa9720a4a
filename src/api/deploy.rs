//! `/admin/deploy`, `/admin/reload`, `/admin/collect`: which definitions are in force, told by an operator.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body;
use super::context::Api;
use super::extract::Params;
use super::forward;
use super::problem::{Code, Place, Problem};
use super::sagas::hex;
use crate::app::{DeployError, Order};
use crate::auth::Caller;
use crate::definitions::{Plan, SUFFIXES, SourceFile, is_definition};

/// The largest body of a deployment, in bytes: all files together, as JSON.
pub(crate) const MAX_DEPLOY_BYTES: u64 = 64 << 20;
/// Files that one deployment has at most.
const MAX_FILES: usize = 1000;
/// The longest name of a file or of a person, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Who deploys, where the caller does not say.
const NOBODY: &str = "unnamed";

/// Definitions to be put in force together, in the place of all that are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bundle {
    /// Who deploys them, for the record.
    by: Option<String>,
    /// Their files, each with `text` or `base64`.
    files: Vec<File>,
}

/// A file.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// Its name without a folder: `*.saga.yaml` or `*.saga.wasm`.
    name: String,
    /// What is in it, where that is text.
    text: Option<String>,
    /// What is in it, where that is no text.
    base64: Option<String>,
}

/// How to deploy.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Say what would change, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Who reloads.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Who {
    /// For the record.
    by: Option<String>,
}

/// What a collection came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Collected {
    /// The definitions that were dropped.
    dropped: Vec<Dropped>,
    /// Retired definitions that stay, because instances are pinned to them.
    kept: usize,
}

/// A definition that is no more.
#[derive(Debug, Serialize, ToSchema)]
struct Dropped {
    saga: String,
    /// The author's number for it.
    version: u32,
    /// Its identity, in hexadecimal.
    hash: String,
}

impl From<DeployError> for Problem {
    fn from(error: DeployError) -> Self {
        match error {
            DeployError::Refused(refused) => {
                let places = refused.0.iter().map(|problem| Place {
                    pointer: format!("{}:{}:{} {}", problem.file, problem.line, problem.column, problem.path),
                    detail: problem.to_string(),
                });
                let count = match refused.0.len() {
                    1 => "1 mistake".to_owned(),
                    count => format!("{count} mistakes"),
                };
                let detail = format!("{count}; the definitions in force stay");
                Problem::new(Code::BadDefinitions, detail).with(places.collect())
            }
            DeployError::Dropped(_) => Problem::new(Code::NoDefinition, error.to_string()),
            DeployError::NoFolder => Problem::new(Code::NoFolder, error.to_string()),
            DeployError::Ending => Problem::new(Code::Unavailable, error.to_string()),
            DeployError::Shard(error) => error.into(),
            DeployError::Store(error) => error.into(),
        }
    }
}

/// Put definitions in force
///
/// In the place of all that are: a saga that is in no file takes no new instances any more. All of them or none: with one
/// mistake, those in force stay, and every mistake is listed. Instances that run stay with the definition they began with.
/// The body has 64 MiB at most.
#[utoipa::path(
    post,
    path = "/admin/deploy",
    tag = "node",
    params(How),
    request_body = Bundle,
    responses((status = 200, description = "They are in force, or would be", body = Plan))
)]
pub(super) async fn deploy(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(how): Params<How>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Plan>, Problem> {
    let patience = api.app.config.http.request_timeout;
    let bytes = body::read(&headers, body, MAX_DEPLOY_BYTES, patience).await?;
    let bundle: Bundle = body::parse(&bytes)?;
    let by = name_of(caller.acts_as(bundle.by)?)?;
    let files = files(bundle.files)?;
    let mut plan = api.app.deploy(Order { files, by, dry_run: how.dry_run }).await?;
    if !how.dry_run && !forward::is_forwarded(&headers) {
        plan.warnings.extend(tell_others(&api, &headers, bytes).await);
    }
    Ok(Json(plan))
}

/// Deploys on the other pods too; what went wrong there, in words. A pod that does not hear of it follows when it takes a shard.
async fn tell_others(api: &Api, headers: &HeaderMap, bundle: Bytes) -> Vec<String> {
    let mut wrong = Vec::new();
    for pod in api.app.other_pods() {
        match forward::post(api, &format!("{}/admin/deploy", pod.url), headers, bundle.clone()).await {
            Ok(status) if status.is_success() => {}
            Ok(status) => wrong
                .push(format!("the pod {} refused the definitions ({status}): look into its log", pod.name)),
            Err(error) => wrong.push(format!("the pod {} did not answer: {error}; deploy again", pod.name)),
        }
    }
    wrong
}

/// Put the definitions and the upstreams of the node's folders in force
///
/// As they are now, all of them or none: with one mistake, everything stays as it was. Without a folder of definitions, those
/// in force stay.
#[utoipa::path(
    post,
    path = "/admin/reload",
    tag = "node",
    params(Who),
    responses((status = 200, description = "They are in force", body = Plan))
)]
pub(super) async fn reload(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(who): Params<Who>,
) -> Result<Json<Plan>, Problem> {
    Ok(Json(api.app.reload(name_of(caller.acts_as(who.by)?)?).await?))
}

/// Drop definitions that nobody uses
///
/// Those that take no new instances, and that no stored instance began with. It is done after every deployment, too.
#[utoipa::path(
    post,
    path = "/admin/collect",
    tag = "node",
    responses((status = 200, description = "They are gone", body = Collected))
)]
pub(super) async fn collect(State(api): State<Api>) -> Result<Json<Collected>, Problem> {
    let collected = api.app.collect().await?;
    let dropped = collected.dropped.iter().map(|program| Dropped {
        saga: program.saga.to_string(),
        version: program.version,
        hash: hex(&program.hash),
    });
    Ok(Json(Collected { dropped: dropped.collect(), kept: collected.kept }))
}

/// Who it is that does something, for the record.
pub(super) fn name_of(by: Option<String>) -> Result<String, Problem> {
    let by = by.filter(|by| !by.is_empty()).unwrap_or_else(|| NOBODY.to_owned());
    if by.len() > MAX_NAME_BYTES || by.chars().any(char::is_control) {
        let detail = format!("by: a name has at most {MAX_NAME_BYTES} bytes and no control characters");
        return Err(Problem::new(Code::WrongBody, detail));
    }
    Ok(by)
}

fn files(files: Vec<File>) -> Result<Vec<SourceFile>, Problem> {
    if files.len() > MAX_FILES {
        let detail = format!("{} files are too many: the limit is {MAX_FILES}", files.len());
        return Err(Problem::new(Code::WrongBody, detail));
    }
    let (mut names, mut wrong, mut sources) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (index, file) in files.into_iter().enumerate() {
        let name = file.name.clone();
        match source(file) {
            Ok(_) if !names.insert(name.clone()) => wrong.push((index, format!("{name:?} is there twice"))),
            Ok(source) => sources.push(source),
            Err(detail) => wrong.push((index, detail)),
        }
    }
    if wrong.is_empty() {
        return Ok(sources);
    }
    let detail = format!("{} of the files cannot be read", wrong.len());
    let place = |(index, detail)| Place { pointer: format!("/files/{index}"), detail };
    Err(Problem::new(Code::WrongBody, detail).with(wrong.into_iter().map(place).collect()))
}

fn source(file: File) -> Result<SourceFile, String> {
    let File { name, text, base64 } = file;
    let is_plain = |c: char| !(c.is_control() || matches!(c, '/' | '\\'));
    if name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) || !is_definition(&name) {
        let shown: String = name.chars().take(64).collect();
        return Err(format!(
            "{shown:?} is no name of a definition: *{} without a folder",
            SUFFIXES.join(" or *")
        ));
    }
    let bytes = match (text, base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => STANDARD.decode(text).map_err(|error| format!("{name}: base64: {error}"))?,
        _ => return Err(format!("{name}: give either text or base64")),
    };
    Ok(SourceFile { path: PathBuf::from(name), bytes: bytes.into() })
}
