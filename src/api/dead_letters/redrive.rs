//! `POST /v1/dead-letters/redrive`: sends many dead letters again, where wanted a few of them first.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use orlog_actors::ControlError;
use orlog_model::{DeadLetter, DeadLetterReason, Original, SagaName, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::gather;
use crate::api::body;
use crate::api::context::Api;
use crate::api::errors::bad_parameter;
use crate::api::extract::{Tenant, page_limit};
use crate::api::problem::Problem;
use crate::app::App;

/// Letters looked at in one go.
const LOOKED_AT: usize = 500;
/// Letters that failed again, named in an answer at most.
const NAMED: usize = 10;

/// Which letters, oldest first, and how carefully.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// Only those with this reason.
    #[schema(value_type = Option<String>)]
    reason: Option<DeadLetterReason>,
    /// Only those that were meant for an instance of this saga, as far as that is known.
    #[schema(value_type = Option<String>)]
    saga: Option<SagaName>,
    /// At most so many; 100 where nothing is said.
    limit: Option<usize>,
    /// So many first; the others only where none of these fails again.
    canary: Option<usize>,
}

/// What became of the letters.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Redriven {
    /// Letters that were chosen.
    matched: usize,
    /// There are more of the kind.
    more: bool,
    /// Their instances took them.
    taken: usize,
    /// The bus has them: what becomes of a letter that names no instance, no answer tells.
    published: usize,
    /// They failed again and are letters again.
    set_aside: usize,
    /// Their instances forbid it; the letters are still there.
    refused: usize,
    /// They were not sent; the letters are still there.
    left: usize,
    /// Why some were not sent; null where all were.
    stopped: Option<String>,
    /// The first that failed.
    failures: Vec<Failed>,
}

/// A letter that failed again.
#[derive(Debug, Serialize, ToSchema)]
struct Failed {
    id: String,
    detail: String,
}

impl Redriven {
    /// Notes an answer; `false` when there is no use in going on.
    fn note(&mut self, id: String, to_instance: bool, answer: Result<(), ControlError>) -> bool {
        let error = match answer {
            Ok(()) if to_instance => {
                self.taken += 1;
                return true;
            }
            Ok(()) => {
                self.published += 1;
                return true;
            }
            Err(error) => error,
        };
        match &error {
            ControlError::SetAside(_) => self.set_aside += 1,
            ControlError::Refused(_) => self.refused += 1,
            ControlError::Unavailable => {
                self.stopped = Some(format!("at letter {id}: {error}"));
                return false;
            }
        }
        if self.failures.len() < NAMED {
            self.failures.push(Failed { id, detail: error.to_string() });
        }
        true
    }

    fn failed(&self) -> usize {
        self.set_aside + self.refused
    }

    fn sent(&self) -> usize {
        self.taken + self.published + self.failed()
    }
}

/// Send many dead letters again
///
/// One after the other, oldest first. With `canary: n` the first n go alone; the others follow only where none of those was
/// set aside again or refused. The answer counts; what failed again is a letter again, and what was not sent still is one.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/redrive",
    tag = "dead letters",
    request_body = Selection,
    responses((status = 200, description = "What became of them", body = Redriven))
)]
pub(crate) async fn redrive_many(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Redriven>, Problem> {
    let http = &api.app.config.http;
    let selection: Selection =
        body::parse(&body::read(&headers, body, http.max_body_size, http.request_timeout).await?)?;
    let (limit, canary) = (page_limit(at_least_one("limit", selection.limit)?, &api), selection.canary);
    let canary = at_least_one("canary", canary)?;
    let mut letters = api.read(move |app| choose(app, &tenant, &selection, limit + 1)).await?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let mut redriven = Redriven { matched: letters.len(), more, ..Redriven::default() };
    send(&api.app, letters, canary, &mut redriven).await;
    redriven.left = redriven.matched - redriven.sent();
    Ok(Json(redriven))
}

fn at_least_one(name: &str, count: Option<usize>) -> Result<Option<usize>, Problem> {
    match count {
        Some(0) => Err(bad_parameter(name, format!("{name} is 0; say at least 1, or leave it out"))),
        count => Ok(count),
    }
}

/// The letters of a tenant that are meant, oldest first; one that lies in several shards once.
fn choose(
    app: &App,
    tenant: &TenantId,
    selection: &Selection,
    limit: usize,
) -> Result<Vec<DeadLetter>, Problem> {
    let is_meant = |letter: &DeadLetter| {
        let saga = letter.instance.as_ref().map(|key| &key.saga);
        selection.reason.is_none_or(|reason| reason == letter.reason)
            && selection.saga.as_ref().is_none_or(|meant| saga == Some(meant))
    };
    let (mut chosen, mut after) = (Vec::new(), None);
    while chosen.len() < limit {
        let page = gather(app, tenant, after, LOOKED_AT)?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        chosen.extend(page.into_iter().filter(is_meant));
    }
    chosen.dedup_by_key(|letter| letter.id);
    chosen.truncate(limit);
    Ok(chosen)
}

async fn send(app: &App, letters: Vec<DeadLetter>, canary: Option<usize>, redriven: &mut Redriven) {
    for (index, letter) in letters.into_iter().enumerate() {
        if canary == Some(index) && redriven.failed() > 0 {
            redriven.stopped = Some(format!("{} of the first {index} failed again", redriven.failed()));
            return;
        }
        let to_instance = letter.instance.is_some() && matches!(letter.original, Original::Input(_));
        let id = letter.id.to_string();
        let answer = app.runtime.redrive(letter).await.map(|_| ());
        if !redriven.note(id, to_instance, answer) {
            return;
        }
    }
}
