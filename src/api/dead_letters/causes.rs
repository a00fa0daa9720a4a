//! `GET /v1/dead-letters/causes`: dead letters by why they are there and for which saga they were meant.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use orlog_model::{DeadLetter, DeadLetterReason, SagaName, TenantId};
use serde::Serialize;
use utoipa::ToSchema;

use super::gather;
use crate::api::context::Api;
use crate::api::extract::Tenant;
use crate::api::problem::Problem;
use crate::app::App;

/// Letters looked at in one go.
const LOOKED_AT: usize = 500;

/// Dead letters by cause, the most frequent first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Causes {
    items: Vec<Cause>,
    /// All letters were looked at; otherwise the counts say "at least".
    complete: bool,
}

/// Letters that a redrive with the same `reason` and `saga` would send again.
#[derive(Debug, Serialize, ToSchema)]
struct Cause {
    reason: &'static str,
    /// The saga they were meant for, where that is known.
    saga: Option<String>,
    count: u64,
    /// When the oldest was set aside.
    oldest: String,
    /// When the newest was set aside.
    newest: String,
    /// What the newest says.
    message: String,
}

/// Letters with the same reason, meant for the same saga.
pub(crate) struct Pile {
    pub(crate) count: u64,
    oldest: DeadLetter,
    newest: DeadLetter,
}

/// Every pile, and whether all letters were looked at.
pub(crate) type Piles = (BTreeMap<(DeadLetterReason, Option<SagaName>), Pile>, bool);

/// Dead letters by cause
///
/// Looks at `http.scan_limit` letters at most.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/causes",
    tag = "dead letters",
    responses((status = 200, description = "The most frequent first", body = Causes))
)]
pub(crate) async fn list(State(api): State<Api>, Tenant(tenant): Tenant) -> Result<Json<Causes>, Problem> {
    let (piles, complete) = api.read(move |app| piles(app, &tenant)).await?;
    let mut items: Vec<_> =
        piles.into_iter().map(|((reason, saga), pile)| cause(reason, saga, pile)).collect();
    items.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    Ok(Json(Causes { items, complete }))
}

fn cause(reason: DeadLetterReason, saga: Option<SagaName>, pile: Pile) -> Cause {
    Cause {
        reason: reason.as_str(),
        saga: saga.map(|saga| saga.to_string()),
        count: pile.count,
        oldest: pile.oldest.at.to_string(),
        newest: pile.newest.at.to_string(),
        message: pile.newest.message,
    }
}

/// Looks at the letters of a tenant, at `http.scan_limit` of them at most.
pub(crate) fn piles(app: &App, tenant: &TenantId) -> Result<Piles, Problem> {
    let (mut piles, mut seen, mut after) = (BTreeMap::<_, Pile>::new(), BTreeSet::new(), None);
    let most = app.config.http.scan_limit;
    loop {
        let page = gather(app, tenant, after, LOOKED_AT.min(most))?;
        let Some(last) = page.last() else { return Ok((piles, true)) };
        after = Some(last.id);
        for letter in page {
            // One of a tenant that is spread may lie in several shards.
            if !seen.insert(letter.id) {
                continue;
            }
            let saga = letter.instance.as_ref().map(|key| key.saga.clone());
            match piles.get_mut(&(letter.reason, saga.clone())) {
                None => {
                    let pile = Pile { count: 1, oldest: letter.clone(), newest: letter };
                    piles.insert((pile.newest.reason, saga), pile);
                }
                Some(pile) => {
                    pile.count += 1;
                    if letter.at < pile.oldest.at {
                        pile.oldest = letter;
                    } else if letter.at >= pile.newest.at {
                        pile.newest = letter;
                    }
                }
            }
        }
        if seen.len() >= most {
            return Ok((piles, gather(app, tenant, after, 1)?.is_empty()));
        }
    }
}
