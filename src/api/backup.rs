//! `/admin/backup`: a copy of what the node has stored, taken while it runs and fetched file by file.

use std::io::{self, Read as _};
use std::path::Path;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathParts, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Params, Part};
use super::problem::{Code, Problem};
use crate::app::{NoBackup, Taken};
use crate::backup::Error;

/// Sent at once.
const PIECE_BYTES: usize = 256 * 1024;

/// How to take one.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Drop one that was taken before and not fetched.
    #[serde(default)]
    replace: bool,
}

/// A backup that can be fetched.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Its files are at `/admin/backup/{id}/files/{path}`.
    id: String,
    /// What is in it: format, position of each shard, definitions, files with their sums.
    manifest: Value,
}

impl From<NoBackup> for Problem {
    fn from(error: NoBackup) -> Self {
        let code = match &error {
            NoBackup::Another | NoBackup::Failed(Error::Replicated | Error::NoShards) => Code::NoBackup,
            NoBackup::Failed(Error::NoRoom { .. }) => Code::Full,
            NoBackup::Ending | NoBackup::Failed(_) => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

/// Take a backup
///
/// Copies the shards and the stream of events of this node while it goes on, consistent for each shard, and answers when the copy is
/// whole. Fetch its files, then delete it: the node keeps one at a time, and none over a restart.
#[utoipa::path(
    post,
    path = "/admin/backup",
    tag = "node",
    params(How),
    responses((status = 200, description = "It can be fetched", body = Ready))
)]
pub(super) async fn take(State(api): State<Api>, Params(how): Params<How>) -> Result<Json<Ready>, Problem> {
    let Taken { id, manifest, .. } = api.app.backup(how.replace).await?;
    let manifest = serde_json::to_value(manifest).expect("a manifest is plain data");
    Ok(Json(Ready { id: id.to_string(), manifest }))
}

/// A file of a backup
#[utoipa::path(
    get,
    path = "/admin/backup/{id}/files/{path}",
    tag = "node",
    params(
        ("id" = String, Path, description = "As it was answered"),
        ("path" = String, Path, description = "As the manifest has it, percent-encoded; also `manifest.json`, `SHA256SUMS`")
    ),
    responses((status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"))
)]
pub(super) async fn file(
    State(api): State<Api>,
    PathParts((id, path)): PathParts<(String, String)>,
) -> Result<Response, Problem> {
    let taken = api.app.taken_backup(read_id(&id)?).ok_or_else(gone)?;
    let path = taken.file(&path).ok_or_else(|| bad_parameter("path", "the manifest has no such file"))?;
    let opened = api.read(move |_| open(&path)).await?;
    let (file, bytes) = opened;
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    Ok((head, Body::from_stream(pieces(file))).into_response())
}

/// Remove a backup
#[utoipa::path(
    delete,
    path = "/admin/backup/{id}",
    tag = "node",
    params(("id" = String, Path, description = "As it was answered")),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn discard(State(api): State<Api>, Part(id): Part) -> Result<StatusCode, Problem> {
    let id = read_id(&id)?;
    let dropped = api.read(move |app| Ok(app.drop_backup(id))).await?;
    if dropped { Ok(StatusCode::NO_CONTENT) } else { Err(gone()) }
}

fn read_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| bad_parameter("id", "it is no id of a backup"))
}

fn gone() -> Problem {
    Problem::new(
        Code::NoRoute,
        "there is no such backup: it was deleted, replaced, or the node was started anew",
    )
}

fn open(path: &Path) -> Result<(std::fs::File, u64), Problem> {
    let opened = std::fs::File::open(path).and_then(|file| {
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    });
    opened.map_err(|error| Problem::new(Code::Unavailable, format!("the file cannot be read: {error}")))
}

/// Reads on threads that may block, one piece after the other.
fn pieces(file: std::fs::File) -> impl futures::Stream<Item = io::Result<Bytes>> {
    futures::stream::try_unfold(file, |mut file| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok::<_, io::Error>((Bytes::from(piece), file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then_some((piece, file)))
    })
}
