//! `/admin/backup`: backup of the stores of a running node, downloaded file by file.

use std::io::{self, Read as _};
use std::path::Path;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::Path as PathParts;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::server::blocking::run_blocking;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, QueryParams};
use crate::server::parts::operations::Operations;
use crate::server::problem::{Code, Problem};
use orlog_node::backup::BackupFailure;
use orlog_node::backup::service::{BackupError, BackupHandle};

/// Bytes per chunk of a download.
const CHUNK_BYTES: usize = 256 * 1024;

/// Options of a backup.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BackupOptions {
    /// Delete a previous backup that was not fetched.
    #[serde(default)]
    replace: bool,
}

/// Backup that is ready for download.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BackupResponse {
    /// Backup id; the files are at `/admin/backup/{id}/files/{path}`.
    #[schema(format = "uuid")]
    id: String,
    /// Manifest: format, position of each shard, definitions, files with their checksums.
    manifest: Value,
}

impl From<BackupError> for Problem {
    fn from(error: BackupError) -> Self {
        let code = match &error {
            BackupError::AlreadyExists
            | BackupError::Failed(BackupFailure::Replicated | BackupFailure::NoShards) => {
                Code::BackupUnavailable
            }
            BackupError::Failed(BackupFailure::OutOfSpace { .. }) => Code::InsufficientStorage,
            BackupError::ShuttingDown | BackupError::Failed(_) => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

/// Create a backup
///
/// Copies the shards and the event stream of this node while it runs, consistent for each shard.
/// Responds when the copy is complete. Fetch its files, then delete it: the node keeps one backup
/// at a time, and none after a restart.
#[utoipa::path(
    post,
    path = "/admin/backup",
    operation_id = "create_backup",
    tag = "node",
    params(BackupOptions),
    responses((
        status = 200,
        description = "The backup is ready for download",
        body = BackupResponse
    ))
)]
pub(crate) async fn create(
    State(operations): State<Operations>,
    QueryParams(how): QueryParams<BackupOptions>,
) -> Result<Json<BackupResponse>, Problem> {
    let BackupHandle { id, manifest, .. } = operations.backups().create(how.replace).await?;
    let manifest = serde_json::to_value(manifest).expect("a manifest serializes to JSON");
    Ok(Json(BackupResponse {
        id: id.to_string(),
        manifest,
    }))
}

/// Download a file of a backup
#[utoipa::path(
    get,
    path = "/admin/backup/{id}/files/{path}",
    operation_id = "backup_file",
    tag = "node",
    params(
        ("id" = Uuid, Path, description = "Backup id from the response"),
        ("path" = String, Path, description = "Path in the manifest, percent-encoded; also \
                                               `manifest.json`, `SHA256SUMS`")
    ),
    responses((
        status = 200,
        description = "The file",
        body = Vec<u8>,
        content_type = "application/octet-stream"
    ))
)]
pub(crate) async fn file(
    api: RequestContext,
    State(operations): State<Operations>,
    PathParts((id, path)): PathParts<(String, String)>,
) -> Result<Response, Problem> {
    let backup = operations
        .backups()
        .get(read_id(&id)?)
        .ok_or_else(not_found)?;
    // Only files of the manifest: the parameter must not reach other files of the node.
    let path = backup
        .file(&path)
        .ok_or_else(|| invalid_parameter("path", "the manifest does not list this file"))?;

    // Opened before the response starts: a missing file is a problem, not a truncated download.
    let opened = api.read(move |_| open(&path)).await?;
    let (file, bytes) = opened;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    Ok((headers, Body::from_stream(pieces(file))).into_response())
}

/// Delete a backup
#[utoipa::path(
    delete,
    path = "/admin/backup/{id}",
    operation_id = "discard_backup",
    tag = "node",
    params(("id" = Uuid, Path, description = "Backup id from the response")),
    responses((status = 204, description = "The backup was deleted"))
)]
pub(crate) async fn discard(
    State(operations): State<Operations>,
    LastSegment(id): LastSegment,
) -> Result<StatusCode, Problem> {
    let id = read_id(&id)?;
    // A backup has the size of the stores, so that its deletion can block for long.
    let dropped = run_blocking(move || Ok(operations.backups().delete(id))).await?;

    if dropped {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(not_found())
    }
}

fn read_id(text: &str) -> Result<Uuid, Problem> {
    text.parse()
        .map_err(|_| invalid_parameter("id", "not a backup id"))
}

fn not_found() -> Problem {
    Problem::new(
        Code::RouteNotFound,
        "backup not found: it was deleted or replaced, or the node was restarted",
    )
}

fn open(path: &Path) -> Result<(std::fs::File, u64), Problem> {
    let opened = std::fs::File::open(path).and_then(|file| {
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    });
    opened
        .map_err(|error| Problem::new(Code::Unavailable, format!("cannot read the file: {error}")))
}

/// Reads the file in chunks on threads that may block.
fn pieces(file: std::fs::File) -> impl futures::Stream<Item = io::Result<Bytes>> {
    futures::stream::try_unfold(file, |mut file| async move {
        // One read at a time: the next one starts when the client has taken the chunk, so that
        // memory stays bounded.
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; CHUNK_BYTES];
            let count = file.read(&mut piece)?;
            // A read can return less than a whole chunk, also before the end of the file.
            piece.truncate(count);
            Ok::<_, io::Error>((Bytes::from(piece), file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        // An empty chunk is the end of the file, and ends the stream.
        Ok((!piece.is_empty()).then_some((piece, file)))
    })
}
