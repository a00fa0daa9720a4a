//! `GET /v1/mailboxes`: instances with the most queued inputs.

use std::cmp::Reverse;

use axum::extract::State;
use orlog_model::InstanceKey;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::operations::Operations;
use crate::server::problem::Problem;

/// Page of mailboxes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MailboxQuery {
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Deepest mailboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MailboxPage {
    items: Vec<MailboxView>,
    /// Cursor of the next page; null after the last one. A mailbox whose depth changes between two
    /// pages can be in none or in both.
    next_cursor: Option<String>,
}

/// Position in the list: the deepest mailbox is the first one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct MailboxPosition {
    depth: Reverse<usize>,
    saga: String,
    correlation: String,
}

impl MailboxPosition {
    fn of(key: &InstanceKey, depth: usize) -> Self {
        Self {
            depth: Reverse(depth),
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
        }
    }

    fn parse(cursor: &str) -> Result<Self, Problem> {
        let json = hex::decode(cursor).ok();
        json.and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| invalid_parameter("cursor", "not a cursor of this list"))
    }

    fn cursor(&self) -> String {
        hex::encode(serde_json::to_vec(self).expect("a position serializes to JSON"))
    }
}

/// Mailbox of a live instance.
#[derive(Debug, Serialize, ToSchema)]
struct MailboxView {
    saga: String,
    correlation: String,
    /// Number of queued inputs.
    depth: usize,
}

/// List the live instances with the most queued inputs
#[utoipa::path(
    get,
    path = "/v1/mailboxes",
    operation_id = "mailboxes",
    tag = "sagas",
    params(MailboxQuery),
    responses((status = 200, description = "Deepest first", body = MailboxPage))
)]
pub(crate) async fn deepest(
    api: RequestContext,
    State(operations): State<Operations>,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<MailboxQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(query.limit, &api);
    let after = query.cursor.as_deref().map(MailboxPosition::parse);
    let after = after.transpose()?;

    api.read_json(move |_| {
        let mut mailboxes = Vec::new();
        // A copy of all depths, because the order must not change while the page is built.
        operations.for_each_mailbox(|key, depth| {
            if key.tenant == tenant {
                mailboxes.push(MailboxPosition::of(key, depth));
            }
        });
        mailboxes.sort_unstable();

        let mut page = PageBuilder::new(limits);
        for mailbox in mailboxes {
            if after.as_ref().is_some_and(|after| mailbox <= *after) {
                continue;
            }

            let cursor = mailbox.cursor();
            let view = MailboxView {
                saga: mailbox.saga,
                correlation: mailbox.correlation,
                depth: mailbox.depth.0,
            };

            if !page.push(view, cursor) {
                break;
            }
        }

        let page = page.finish(None);
        Ok(MailboxPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}
