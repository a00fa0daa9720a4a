//! `POST /v1/replays`: the instances of a saga take again what the bus still has of their inputs.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use orlog_model::{CorrelationId, SagaName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body;
use super::context::Api;
use super::deploy::name_of;
use super::extract::Tenant;
use super::problem::{Code, Problem};
use crate::app::{Fate, Replay, ReplayError, ReplayOrder, Replayed, ReplayedWork};
use crate::auth::Caller;

/// What to replay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Which saga; its instances go by the definition that is in force.
    #[schema(value_type = String)]
    saga: SagaName,
    /// What was published then or later is read again: RFC 3339.
    #[schema(value_type = String, example = "2026-11-21T00:00:00Z")]
    from: String,
    /// What becomes of the work that is asked for on the way.
    work: ReplayedWork,
    /// Only these instances, by correlation id.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    only: Vec<CorrelationId>,
    /// Say what would become of each, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// Who says so, for the record.
    by: Option<String>,
    /// Why, for the record.
    reason: Option<String>,
}

/// What a replay came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answer {
    /// Messages that were read.
    read: u64,
    /// Those that are no event, or lack the identifier.
    unreadable: u64,
    /// Instances that are new, were replaced, stand as they stood, were left as they are.
    counts: Counts,
    /// The instances that have inputs among the messages, in the order of their correlation ids.
    items: Vec<One>,
}

/// How many instances met which fate.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Counts {
    new: usize,
    replaced: usize,
    unchanged: usize,
    left: usize,
}

/// An instance.
#[derive(Debug, Serialize, ToSchema)]
struct One {
    correlation: String,
    /// Where it stood; null: it did not exist.
    was: Option<&'static str>,
    /// Where its inputs lead it.
    becomes: Option<&'static str>,
    /// `new`, `replaced`, `unchanged` or `left`.
    fate: &'static str,
    /// Why it was left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Work that is sent or performed.
    work: usize,
}

impl Answer {
    fn of(replay: Replay) -> Self {
        let mut counts = Counts::default();
        for one in &replay.instances {
            *match one.fate {
                Fate::New => &mut counts.new,
                Fate::Replaced => &mut counts.replaced,
                Fate::Unchanged => &mut counts.unchanged,
                Fate::Left(_) => &mut counts.left,
            } += 1;
        }
        let items = replay.instances.into_iter().map(One::of).collect();
        Self { read: replay.read, unreadable: replay.unreadable, counts, items }
    }
}

impl One {
    fn of(one: Replayed) -> Self {
        let (fate, why) = match one.fate {
            Fate::New => ("new", None),
            Fate::Replaced => ("replaced", None),
            Fate::Unchanged => ("unchanged", None),
            Fate::Left(why) => ("left", Some(why)),
        };
        Self {
            correlation: one.key.correlation.to_string(),
            was: one.was.map(orlog_model::Status::as_str),
            becomes: one.becomes.map(orlog_model::Status::as_str),
            fate,
            why,
            work: one.work,
        }
    }
}

/// Replay a saga
///
/// Reads the bus again from a time on, works out what each instance of the saga would stand as, and puts that in the place of
/// what it stands as. Instances whose life the bus cannot tell whole are left as they are, and say why. Where it breaks off, the
/// same call again goes on. It may take as long as the bus is long.
#[utoipa::path(
    post,
    path = "/v1/replays",
    tag = "sagas",
    request_body = Request,
    responses((status = 200, description = "What became of each instance", body = Answer))
)]
pub(super) async fn replay(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answer>, Problem> {
    let http = &api.app.config.http;
    let bytes = body::read(&headers, body, http.max_body_size, http.request_timeout).await?;
    let request: Request = body::parse(&bytes)?;
    let from = Timestamp::parse(&request.from);
    let from = from.map_err(|error| Problem::new(Code::WrongBody, format!("from: {error}")))?;
    let order = ReplayOrder {
        tenant,
        saga: request.saga,
        from,
        only: request.only,
        work: request.work,
        dry_run: request.dry_run,
        by: name_of(caller.acts_as(request.by)?)?,
        reason: request.reason.map(|reason| name_of(Some(reason))).transpose()?,
    };
    Ok(Json(Answer::of(api.app.replay(order).await?)))
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NoDefinition(_) => Self::new(Code::NoDefinition, error.to_string()),
            ReplayError::TooMany => Self::new(Code::WrongBody, error.to_string()),
            ReplayError::Bus(error) => error.into(),
            ReplayError::Store(error) => error.into(),
            ReplayError::Control(error) => error.into(),
            ReplayError::Ending => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}
