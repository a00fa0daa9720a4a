//! `GET /v1/messages`: pages of the inbox or the outbox, and threads with the messages of both.

use orlog_model::{InstanceKey, Name, SagaName, Status, TenantId, Timestamp};
use orlog_sagas::message::{self, MessageStatus, MessageType, THREAD};
use orlog_store::{IndexedValue, InstanceQuery, VariableCondition};
use serde::Deserialize;
use utoipa::IntoParams;

use super::view::{MessagePage, MessageSummary};
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder, PageLimits};
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;
use orlog_node::sagas::instance_pages::{find, parse_cursor};

/// Number of messages that one query reads: each one can have some 100 KiB.
const STEP: usize = 16;
/// Size of the messages that are read for a page of a box, in bytes, after which the page ends:
/// about 50 of the maximum size.
const MAX_READ_BYTES: usize = 8 << 20;

/// Box of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MessageBox {
    In,
    Out,
}

impl MessageBox {
    fn saga(self) -> SagaName {
        let name = match self {
            Self::In => message::INBOX_SAGA,
            Self::Out => message::SAGA,
        };
        SagaName::new(name).expect("the name is short")
    }
}

/// Page of messages.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessageQuery {
    /// `in`: received messages; `out`: sent messages. Default: `in`; with `thread`, both.
    #[serde(rename = "box")]
    #[param(value_type = Option<String>)]
    mailbox: Option<MessageBox>,
    /// Filter by status: `dispatched`, `acknowledged`, `processed` or `error`.
    #[param(value_type = Option<String>)]
    status: Option<MessageStatus>,
    /// Filter by type: `job`, `chat` or `mail`.
    #[serde(rename = "type")]
    #[param(value_type = Option<String>)]
    kind: Option<MessageType>,
    /// Conversation: its messages in the order of their arrival in this context, with their bodies.
    thread: Option<String>,
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Conditions of a list.
struct Conditions {
    tenant: TenantId,
    status: Option<MessageStatus>,
    kind: Option<MessageType>,
    limits: PageLimits,
    scan_limit: usize,
}

impl Conditions {
    fn query(&self, mailbox: MessageBox) -> InstanceQuery {
        let statuses = self.status.map_or(&[][..], |status| match status {
            MessageStatus::Dispatched | MessageStatus::Acknowledged => &[Status::Running],
            MessageStatus::Processed => &[Status::Completed],
            MessageStatus::Error => &[Status::Failed, Status::Cancelled],
        });
        InstanceQuery {
            tenant: self.tenant.clone(),
            saga: Some(mailbox.saga()),
            statuses: statuses.to_vec(),
            limit: self.limits.entries,
            scan_limit: self.scan_limit,
            ..InstanceQuery::default()
        }
    }

    fn admit(&self, message: &MessageSummary) -> bool {
        self.status
            .is_none_or(|status| message.may_have_status(status))
            && self.kind.is_none_or(|kind| message.may_have_kind(kind))
    }
}

/// List messages
///
/// Ordered by id, or with `thread` by time. A page can be short and still have a `next_cursor`; the
/// last page has none. A message that cannot be read has an entry with the status `unreadable`,
/// whatever the filters are.
#[utoipa::path(
    get,
    path = "/v1/messages",
    tag = "messages",
    params(MessageQuery),
    responses((status = 200, description = "A page", body = MessagePage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(params): QueryParams<MessageQuery>,
) -> Result<EncodedJson, Problem> {
    let MessageQuery {
        mailbox,
        status,
        kind,
        thread,
        limit,
        cursor,
    } = params;
    let conditions = Conditions {
        tenant,
        status,
        kind,
        limits: page_limits(limit, &api),
        scan_limit: api.http().scan_limit,
    };

    if let Some(thread) = thread {
        let after = cursor.as_deref().map(Position::parse).transpose()?;
        let boxes = mailbox.map_or(vec![MessageBox::In, MessageBox::Out], |only| vec![only]);
        api.read_json(move |scope| thread_page(scope, &conditions, &boxes, &thread, after.as_ref()))
            .await
    } else {
        let (shard, cursor) = parse_cursor(cursor.as_deref())?;
        let query = InstanceQuery {
            cursor,
            ..conditions.query(mailbox.unwrap_or(MessageBox::In))
        };
        api.read_json(move |scope| box_page(scope, &conditions, query, shard))
            .await
    }
}

/// Returns a page of a box. It keeps only the summaries of the messages of each step.
fn box_page(
    scope: &ReadScope,
    conditions: &Conditions,
    mut query: InstanceQuery,
    mut shard: usize,
) -> Result<MessagePage, Problem> {
    let mut page = PageBuilder::new(conditions.limits);
    let mut read = 0;
    let mut bytes = 0;
    let mut scanned = 0;

    loop {
        query.limit = STEP.min(conditions.limits.entries - read);
        query.scan_limit = conditions.scan_limit - scanned;
        let found = find(scope.stores(), query.clone(), shard)?;
        for located in &found.items {
            let message = MessageSummary::listed(&located.found.key, &located.found.instance);
            if conditions.admit(&message) && !page.push(message, located.cursor()) {
                return Ok(MessagePage::of(page.finish(None)));
            }
            bytes += located.found.instance.state.len();
        }

        read += found.items.len();
        scanned += found.scanned;
        let is_full = read >= conditions.limits.entries
            || scanned >= conditions.scan_limit
            || bytes >= MAX_READ_BYTES;

        match found.next {
            Some(next) if !is_full => (shard, query.cursor) = parse_cursor(Some(&next))?,
            rest => return Ok(MessagePage::of(page.finish(rest))),
        }
    }
}

/// Position in a thread: messages are ordered by the time at which this context got or sent them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    at: Timestamp,
    key: InstanceKey,
}

impl Position {
    fn text(&self) -> String {
        let Self { at, key } = self;
        format!(
            "{}.{}.{}",
            at.as_millis(),
            u8::from(key.saga.as_str() == message::SAGA),
            key.correlation
        )
    }

    /// Reads the text of a position. The tenant of its key is no part of the order within a thread.
    fn parse(text: &str) -> Result<(Timestamp, bool, String), Problem> {
        let parsed = text.split_once('.').and_then(|(at, message)| {
            let (is_sent, id) = message.split_once('.')?;
            Some((
                Timestamp::from_millis(at.parse().ok()?),
                is_sent == "1",
                id.to_owned(),
            ))
        });
        parsed.ok_or_else(|| {
            invalid_parameter("cursor", format!("{text:?} is no cursor of a thread"))
        })
    }

    fn order(&self) -> (Timestamp, bool, String) {
        (
            self.at,
            self.key.saga.as_str() == message::SAGA,
            self.key.correlation.to_string(),
        )
    }
}

/// Returns a page of a thread. Its messages are found by an index, so that the cost depends on the
/// length of the thread only.
fn thread_page(
    scope: &ReadScope,
    conditions: &Conditions,
    boxes: &[MessageBox],
    thread: &str,
    after: Option<&(Timestamp, bool, String)>,
) -> Result<MessagePage, Problem> {
    let mut positions = Vec::new();
    for mailbox in boxes {
        let value = IndexedValue::Text(thread.to_owned());
        let name = Name::new(format!("reference.{THREAD}")).expect("the name is short");
        let condition = VariableCondition {
            name,
            lower: Some(value.clone()),
            upper: Some(value),
        };
        let mut query = InstanceQuery {
            variable: Some(condition),
            limit: STEP,
            ..conditions.query(*mailbox)
        };

        let mut shard = 0;
        loop {
            let found = find(scope.stores(), query.clone(), shard)?;
            let all = found.items.iter().map(|located| &located.found);
            let of_thread = all.filter(|found| {
                found
                    .instance
                    .reference
                    .as_ref()
                    .and_then(|reference| reference.part(THREAD))
                    == Some(thread)
            });
            positions.extend(of_thread.map(|found| Position {
                at: found.instance.created_at,
                key: found.key.clone(),
            }));
            let Some(next) = found.next else { break };

            (shard, query.cursor) = parse_cursor(Some(&next))?;
        }
    }

    positions.sort_unstable_by_key(Position::order);
    positions.retain(|position| after.is_none_or(|after| position.order() > *after));

    let mut page = PageBuilder::new(conditions.limits);
    for position in positions {
        let instance = scope
            .reader(&position.key)
            .map(|reader| reader.instance(&position.key))
            .transpose()?;
        let Some(instance) = instance.flatten() else {
            continue;
        };

        let message = MessageSummary::listed_with_body(&position.key, &instance);
        if !conditions.admit(&message) {
            continue;
        }

        if !page.push(message, position.text()) {
            break;
        }
    }

    Ok(MessagePage::of(page.finish(None)))
}
