//! `/v1/dead-letters`: what could not be applied, and the two things a person can do about it.

pub(crate) mod causes;
pub(crate) mod redrive;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orlog_model::{Change, DeadLetter, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::context::Api;
use super::control::Answer;
use super::errors::bad_parameter;
use super::extract::{Params, Part, Tenant, page_limit};
use super::problem::{Code, Problem};
use crate::app::App;
use crate::dead_letters;
use crate::redact::Redact;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// Entries of a page; 100 where nothing is said.
    limit: Option<usize>,
    /// The `next` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Uuid>,
}

/// A page of dead letters, about in the order of time.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Letters {
    items: Vec<Letter>,
    /// The cursor of the next page; null after the last one.
    next: Option<String>,
}

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Letter {
    id: String,
    /// The saga it was meant for, where that is known.
    saga: Option<String>,
    /// The instance it was meant for, where that is known.
    correlation: Option<String>,
    /// `undecodable`, `schema_mismatch`, `program_error`, `definition_missing`, `snapshot_inconsistent` or
    /// `retries_exhausted`.
    reason: &'static str,
    /// What went wrong, for people.
    message: String,
    /// What the original is called: an event's type, a subject.
    label: String,
    /// How often it was tried.
    attempts: u32,
    /// The node that gave up.
    node: String,
    /// When.
    at: String,
    /// What it was; only where one letter is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Value>,
}

impl Letter {
    fn of(letter: &DeadLetter) -> Self {
        Self {
            id: letter.id.to_string(),
            saga: letter.instance.as_ref().map(|key| key.saga.to_string()),
            correlation: letter.instance.as_ref().map(|key| key.correlation.to_string()),
            reason: letter.reason.as_str(),
            message: letter.message.clone(),
            label: dead_letters::label(letter).to_owned(),
            attempts: letter.attempts,
            node: letter.node.clone(),
            at: letter.at.to_string(),
            original: None,
        }
    }

    fn whole(letter: &DeadLetter, redact: &Redact) -> Self {
        Self { original: Some(dead_letters::original(&letter.original, redact)), ..Self::of(letter) }
    }
}

/// List dead letters
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    tag = "dead letters",
    params(Page),
    responses((status = 200, description = "A page", body = Letters))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Params(page): Params<Page>,
) -> Result<Json<Letters>, Problem> {
    let limit = page_limit(page.limit, &api);
    let mut letters = api.read(move |app| gather(app, &tenant, page.cursor, limit + 1)).await?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next = letters.last().filter(|_| more).map(|letter| letter.id.to_string());
    Ok(Json(Letters { items: letters.iter().map(Letter::of).collect(), next }))
}

/// The letters of all shards behind `after`, in the order of their ids.
pub(super) fn gather(
    app: &App,
    tenant: &TenantId,
    after: Option<Uuid>,
    limit: usize,
) -> Result<Vec<DeadLetter>, Problem> {
    let mut letters = Vec::new();
    for reader in app.runtime.readers() {
        letters.extend(reader.dead_letters(tenant, after, limit)?);
    }
    letters.sort_by_key(|letter| letter.id);
    letters.truncate(limit);
    Ok(letters)
}

/// Show a dead letter, with what it was
#[utoipa::path(
    get,
    path = "/v1/dead-letters/{id}",
    tag = "dead letters",
    params(("id" = String, Path, description = "The letter's id")),
    responses((status = 200, description = "The letter", body = Letter))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(id): Part,
) -> Result<Json<Letter>, Problem> {
    let letter = find(&api, tenant, &id).await?;
    Ok(Json(Letter::whole(&letter, &api.app.config.redact)))
}

/// Send a dead letter again
///
/// An input goes to its instance, a message to the bus. The letter is dropped in the commit that stores what became of it;
/// where it fails again, there is a new letter.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}/redrive",
    tag = "dead letters",
    params(("id" = String, Path, description = "The letter's id")),
    responses((status = 200, description = "It was taken", body = Answer))
)]
pub(super) async fn redrive(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(id): Part,
) -> Result<Json<Answer>, Problem> {
    let letter = find(&api, tenant, &id).await?;
    Ok(Json(api.app.runtime.redrive(letter).await?.into()))
}

/// Discard a dead letter
#[utoipa::path(
    delete,
    path = "/v1/dead-letters/{id}",
    tag = "dead letters",
    params(("id" = String, Path, description = "The letter's id")),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn discard(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(id): Part,
) -> Result<StatusCode, Problem> {
    let letter = find(&api, tenant, &id).await?;
    let change = Change::DropDeadLetter { tenant: letter.tenant, id: letter.id };
    // A tenant that is spread has letters in every shard, and a letter does not tell in which it lies.
    api.app.runtime.change_everywhere(&change).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn find(api: &Api, tenant: TenantId, id: &str) -> Result<DeadLetter, Problem> {
    let id = Uuid::parse_str(id).map_err(|error| bad_parameter("id", format!("it is no id: {error}")))?;
    let found = api.read(move |app| {
        for reader in app.runtime.readers() {
            if let Some(letter) = reader.dead_letter(&tenant, id)? {
                return Ok(Some(letter));
            }
        }
        Ok(None)
    });
    found.await?.ok_or_else(|| Problem::new(Code::NoLetter, format!("there is no dead letter {id}")))
}
