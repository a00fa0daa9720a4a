//! `/v1/dead-letters`: lists, redrives and discards dead letters. The node lists and discards also
//! those of tenants that it does not accept, so that an operator can discard them before the node
//! accepts the tenant and redrives them.

pub(crate) mod causes;
mod edit;
mod preview;
pub(crate) mod redrive;

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use orlog_actors::Redriven;
use orlog_model::{
    Change, DISCARDED_WITH_NULL, DeadLetter, DeadLetterOriginal, Failure, Input, RESULT_DISCARDED,
    TenantId, WorkOutcome,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use self::preview::Preview;
use crate::server::body::CheckedBody;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, QueryParams, StoredTenant, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::dead_letters::view;
use orlog_node::redact::Redaction;

/// Page to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next` of the previous page.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<Uuid>,
}

/// Options of a discard.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiscardQuery {
    /// Also discard a result for which an instance waits; it receives an unknown outcome.
    #[serde(default)]
    force: bool,
    /// Also discard it if the compensation that follows would be requested with null fields.
    #[serde(default)]
    allow_null: bool,
}

/// Edit of a dead letter before its redrive.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    /// Data of the event, signal or result, instead of those of the dead letter.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    data: Option<Value>,
}

/// Deserializes a value that is present, also `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Page of dead letters, approximately ordered by time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterPage {
    items: Vec<DeadLetterView>,
    /// Cursor of the next page; null after the last one.
    #[schema(format = "uuid")]
    next_cursor: Option<String>,
}

/// Dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterView {
    #[schema(format = "uuid")]
    id: String,
    /// Target saga, if known.
    saga: Option<String>,
    /// Correlation id of the target instance, if known.
    correlation: Option<String>,
    /// `undecodable`, `schema_mismatch`, `program_error`, `definition_missing`,
    /// `snapshot_inconsistent`, `retries_exhausted`, `early_buffer_full`, `instance_unreadable`,
    /// `state_too_large`, `signal_rejected`, `transition_too_costly`, `unauthenticated`,
    /// `tenant_not_allowed` or `bus_rejected`.
    reason: &'static str,
    /// Error message.
    message: String,
    /// Label of the original: an event type, a subject.
    label: String,
    /// Number of attempts.
    attempts: u32,
    /// Node that created the dead letter.
    node: String,
    /// Time of the failure.
    #[schema(format = "date-time")]
    at: String,
    /// Original input or message; only in the response for one dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Value>,
}

impl DeadLetterView {
    /// Creates the view without the original.
    pub(crate) fn of(dead_letter: &DeadLetter, redact: &Redaction) -> Self {
        Self {
            id: dead_letter.id.to_string(),
            saga: dead_letter
                .instance
                .as_ref()
                .map(|key| key.saga.to_string()),
            correlation: dead_letter
                .instance
                .as_ref()
                .map(|key| key.correlation.to_string()),
            reason: dead_letter.reason.as_str(),
            message: view::message(dead_letter, redact),
            label: view::label(dead_letter).to_owned(),
            attempts: dead_letter.attempts,
            node: dead_letter.node.clone(),
            at: dead_letter.at.to_string(),
            original: None,
        }
    }

    fn whole(dead_letter: &DeadLetter, redact: &Redaction) -> Self {
        Self {
            original: Some(view::original(&dead_letter.original, redact)),
            ..Self::of(dead_letter, redact)
        }
    }
}

/// List dead letters
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    tag = "dead letters",
    params(PageQuery),
    responses((status = 200, description = "A page", body = DeadLetterPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    StoredTenant(tenant): StoredTenant,
    QueryParams(page): QueryParams<PageQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(page.limit, &api);
    api.read_json(move |scope| {
        // The merged page is limited by number only; the builder limits its encoded size as well.
        let found = collect_page(scope, &tenant, page.cursor, limits.entries)?;
        let mut page = PageBuilder::new(limits);
        for dead_letter in &found.items {
            let view = DeadLetterView::of(dead_letter, scope.redact());
            if !page.push(view, dead_letter.id.to_string()) {
                break;
            }
        }

        let page = page.finish(found.next.map(|id| id.to_string()));
        Ok(DeadLetterPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

/// Returns dead letters of all shards after `after`, ordered by id; each of them once.
pub(crate) fn collect_page(
    scope: &ReadScope,
    tenant: &TenantId,
    after: Option<Uuid>,
    limit: usize,
) -> Result<orlog_store::DeadLetterPage, Problem> {
    let mut pages = Vec::new();
    // Each shard returns up to a whole page, because all entries of the merged page can be in one
    // shard.
    for reader in scope.readers() {
        pages.push(reader.dead_letter_page(tenant, after, limit)?);
    }
    Ok(orlog_store::DeadLetterPage::merged(pages, limit))
}

/// Show a dead letter with its original
#[utoipa::path(
    get,
    path = "/v1/dead-letters/{id}",
    tag = "dead letters",
    params(("id" = Uuid, Path, description = "Dead letter id")),
    responses((status = 200, description = "The letter", body = DeadLetterView))
)]
pub(crate) async fn show(
    api: RequestContext,
    StoredTenant(tenant): StoredTenant,
    LastSegment(id): LastSegment,
) -> Result<Json<DeadLetterView>, Problem> {
    let (dead_letter, _) = find(&api, tenant, &id).await?;
    Ok(Json(DeadLetterView::whole(&dead_letter, api.redact())))
}

/// Result of the redrive of one dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedrivenResponse {
    /// The message was published to the bus, because the dead letter belongs to no instance or its
    /// message cannot be decoded. Its consequences follow later, and can be another dead letter.
    /// The other fields are then `true` or null.
    published: bool,
    /// The input changed the instance; false for a duplicate or an input without effect.
    applied: bool,
    /// Reason, if the input had no effect.
    reason: Option<String>,
    /// State version of the instance.
    version: Option<u64>,
    /// Status of the instance.
    status: Option<&'static str>,
    /// Whether the instance is paused.
    paused: Option<bool>,
}

impl From<Redriven> for RedrivenResponse {
    fn from(redriven: Redriven) -> Self {
        match redriven {
            Redriven::Published => Self {
                published: true,
                applied: true,
                reason: None,
                version: None,
                status: None,
                paused: None,
            },
            Redriven::Applied(result) => Self {
                published: false,
                applied: result.applied,
                reason: result.reason.map(Cow::into_owned),
                version: Some(result.version),
                status: Some(result.status.as_str()),
                paused: Some(result.paused),
            },
        }
    }
}

/// Redrive a dead letter
///
/// Delivers an input to its instance, or publishes a message to the bus. The commit that stores the
/// result deletes the dead letter. If it fails again, a new dead letter is created. A dead letter
/// that its instance rejects stays stored. With `data`, those replace the data of the dead letter;
/// data that the instance cannot apply change nothing. The audit trail has the fingerprints of both.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}/redrive",
    tag = "dead letters",
    params(("id" = Uuid, Path, description = "Dead letter id")),
    request_body(content = Option<EditBody>, description = "Edited data; none if empty"),
    responses((
        status = 200,
        description = "The dead letter was applied or published",
        body = RedrivenResponse
    ))
)]
pub(crate) async fn redrive(
    instances: Instances,
    State(definitions): State<Definitions>,
    Tenant(tenant): Tenant,
    LastSegment(id): LastSegment,
    body: CheckedBody,
) -> Result<Response, Problem> {
    let body: Option<EditBody> = body.optional()?;
    let EditBody { data } = body.unwrap_or_default();
    // A replay may apply the same input, and a deployment may change the definition that applies
    // it.
    let _alone = definitions.lock().await;
    let (mut dead_letter, _) = find(&instances.request, tenant, &id).await?;
    let edit = match data {
        Some(data) => Some(edit::replace_data(&mut dead_letter, data)?),
        None => None,
    };
    // Before the redrive: one that fails would replace the dead letter, and its data with it.
    if edit.is_some()
        && let Preview::NotApplicable(reason) = preview::preview(&instances, &dead_letter).await?
    {
        return Err(preview::not_applicable(&reason));
    }

    let mut response = match instances.redrive(dead_letter).await {
        Ok(redriven) => Json(RedrivenResponse::from(redriven)).into_response(),
        Err(error) => Problem::from(error).into_response(),
    };
    // The audit record reads it here, also after a failure, which can have stored the edited data.
    if let Some(edit) = edit {
        response.extensions_mut().insert(edit);
    }
    Ok(response)
}

/// Discard a dead letter
///
/// The result of work for which an instance still waits is discarded only with `force=true`. The
/// instance then receives an unknown outcome instead: the step fails as after a timeout, and is
/// compensated, because it may have been executed. If the compensation would be requested with null
/// fields, usually variables that the step would have saved, `allow_null=true` is required too.
#[utoipa::path(
    delete,
    path = "/v1/dead-letters/{id}",
    tag = "dead letters",
    params(("id" = Uuid, Path, description = "Dead letter id"), DiscardQuery),
    responses((status = 204, description = "The dead letter was discarded"))
)]
pub(crate) async fn discard(
    instances: Instances,
    State(definitions): State<Definitions>,
    StoredTenant(tenant): StoredTenant,
    LastSegment(id): LastSegment,
    QueryParams(query): QueryParams<DiscardQuery>,
) -> Result<StatusCode, Problem> {
    // As for a redrive.
    let _alone = definitions.lock().await;
    let (dead_letter, is_awaited) = find(&instances.request, tenant, &id).await?;
    if is_awaited {
        return discard_awaited(&instances, dead_letter, &query).await;
    }

    let change = Change::DropDeadLetter {
        tenant: dead_letter.tenant,
        id: dead_letter.id,
    };

    // A key-sharded tenant has dead letters in every shard, and the id does not identify the shard.
    instances.apply_to_all_shards(&change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Discards a result for which an instance waits: the dead letter contains its only copy, without
/// which the instance would wait for ever.
async fn discard_awaited(
    instances: &Instances,
    dead_letter: DeadLetter,
    query: &DiscardQuery,
) -> Result<StatusCode, Problem> {
    let instance = dead_letter
        .instance
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    // Only a work result can be replaced by an unknown outcome; the end of a child saga has none.
    let code = if query.allow_null {
        DISCARDED_WITH_NULL
    } else {
        RESULT_DISCARDED
    };
    let Some(unknown) = without_result(dead_letter.clone(), code) else {
        let detail = "the end of a child saga cannot be discarded; cancel the instance";
        return Err(Problem::new(Code::InvalidStatus, detail));
    };

    let nulls = match without_result(dead_letter, DISCARDED_WITH_NULL) {
        // Without the permission, the compensation is not requested, so nothing would be named.
        Some(with_null) => nulls_of(instances, &with_null).await?,
        None => Vec::new(),
    };
    if !query.force {
        let detail = format!(
            "{instance} waits for this result; correct the cause and redrive it, or cancel the \
             instance. To discard it, set force=true (`orlog dlq discard --force`): its step then \
             fails and is compensated, because it may have been executed{}",
            null_warning(&nulls)
        );
        return Err(Problem::new(Code::InvalidStatus, detail));
    }
    if !nulls.is_empty() && !query.allow_null {
        let detail = format!(
            "the discard would request a compensation without values{}",
            null_warning(&nulls)
        );
        return Err(Problem::new(Code::InvalidStatus, detail));
    }

    // One commit applies the unknown outcome and removes the dead letter, so that a crash cannot
    // lose only one of both.
    instances.redrive(unknown).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the requests with null fields that an unknown outcome would cause.
async fn nulls_of(instances: &Instances, unknown: &DeadLetter) -> Result<Vec<String>, Problem> {
    Ok(match preview::preview(instances, unknown).await? {
        Preview::Decision(decision) => preview::requests_with_null(&decision),
        // What cannot be applied requests nothing.
        Preview::NoInstance | Preview::NotApplicable(_) => Vec::new(),
    })
}

/// Returns the part of a message about requests with null fields; empty without any.
fn null_warning(nulls: &[String]) -> String {
    if nulls.is_empty() {
        return String::new();
    }
    format!(
        ". With null: {}. Redrive the result with corrected data instead (`orlog dlq redrive ID \
         --data`), or also set allow_null=true (`--allow-null`)",
        nulls.join("; ")
    )
}

/// Replaces the result in a dead letter by an unknown outcome with this code. Returns `None` if it
/// contains no result of work.
fn without_result(mut dead_letter: DeadLetter, code: &str) -> Option<DeadLetter> {
    let DeadLetterOriginal::Input(input) = &mut dead_letter.original else {
        return None;
    };
    let Input::WorkResult(result) = &mut **input else {
        return None;
    };

    let message = format!(
        "the result was discarded, because it could not be applied: {}",
        dead_letter.message
    );
    // A timeout, not a failure: failed work counts as not executed and would not be compensated.
    result.outcome = WorkOutcome::TimedOut {
        failure: Failure {
            code: code.to_owned(),
            message,
        },
    };

    Some(dead_letter)
}

/// Returns a dead letter, and whether an instance waits for its result.
async fn find(
    api: &RequestContext,
    tenant: TenantId,
    id: &str,
) -> Result<(DeadLetter, bool), Problem> {
    let id = Uuid::parse_str(id)
        .map_err(|error| invalid_parameter("id", format!("not a dead letter id: {error}")))?;
    let found = api.read(move |scope| {
        // The id does not identify the shard of a key-sharded tenant.
        for reader in scope.readers() {
            if let Some(dead_letter) = reader.dead_letter(&tenant, id)? {
                let is_awaited = reader.is_awaited(&dead_letter)?;
                return Ok(Some((dead_letter, is_awaited)));
            }
        }
        Ok(None)
    });

    found
        .await?
        .ok_or_else(|| Problem::new(Code::DeadLetterNotFound, format!("no dead letter {id}")))
}
