//! Reads a part of the export: first a snapshot, shard by shard, then the changes since its start.

use std::collections::BTreeSet;
use std::time::Instant;

use orlog_model::TenantId;
use orlog_store::{FeedEntityKind, FeedQuery, Reader};

use super::cursor::{ExportCursor, ScanPosition};
use super::line;
use crate::server::parts::cluster::Cluster;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;

/// Approximate maximum response size in bytes.
const BYTES: usize = 4 << 20;

/// Requested export.
#[derive(Clone, Debug)]
pub(crate) struct ExportRequest {
    pub(crate) tenant: Option<TenantId>,
    /// Tenants that the caller may not read.
    pub(crate) closed: BTreeSet<TenantId>,
    pub(crate) kinds: Vec<FeedEntityKind>,
    pub(crate) cursor: Option<ExportCursor>,
    pub(crate) limit: usize,
}

/// Part of an export.
pub(crate) struct ExportPart {
    pub(crate) lines: String,
    pub(crate) cursor: ExportCursor,
    /// More lines are available immediately.
    pub(crate) more: bool,
}

impl ExportRequest {
    /// Returns the stores to read, with their shard numbers.
    pub(crate) fn shards(&self, cluster: &Cluster) -> Result<Vec<(u16, Reader)>, Problem> {
        let mut here = cluster.local_shards().collect::<Vec<_>>();
        let expected = cluster.shards_of(self.tenant.as_ref());
        here.retain(|(shard, _)| expected.contains(shard));
        // A part of the shards would be an incomplete copy without notice.
        if here.len() == expected.len() {
            return Ok(here);
        }

        let missing = expected
            .iter()
            .filter(|shard| here.iter().all(|(index, _)| index != *shard));
        let missing: Vec<_> = missing.map(ToString::to_string).collect();
        let detail = format!(
            "shard {} is not on this node; an export requires all its shards on one node",
            missing.join(", ")
        );

        Err(Problem::new(Code::Unavailable, detail))
    }
}

/// Reads the next part. Blocks.
pub(crate) fn read(
    scope: &ReadScope,
    order: &ExportRequest,
    shards: &[(u16, Reader)],
) -> Result<ExportPart, Problem> {
    let shards: Vec<_> = shards
        .iter()
        .map(|(shard, reader)| (*shard, scope.cancelling(reader)))
        .collect();
    let start = || {
        // The heads are read before the snapshot: a change during the scan is in the feed behind
        // them, so that none is lost.
        let feed_offsets = shards
            .iter()
            .map(|(shard, reader)| Ok((*shard, reader.feed_head()?)));
        let feed_offsets = feed_offsets.collect::<Result<_, orlog_store::Error>>()?;
        Ok::<_, Problem>(ExportCursor::start(
            order.tenant.clone(),
            order.kinds.clone(),
            feed_offsets,
        ))
    };

    let cursor = order.cursor.clone().map_or_else(start, Ok)?;
    cursor.is_of(shards.iter().map(|(shard, _)| *shard))?;
    // Both offsets must exist: a store that was restored between them lacks changes that the client
    // has received.
    for ((_, reader), ((_, feed_offset), read_offset)) in shards
        .iter()
        .zip(cursor.offsets.iter().zip(&cursor.last_read_at))
    {
        reader.check_feed_offset(feed_offset)?;
        reader.check_feed_offset(read_offset)?;
    }

    // The client must discard its copy: a snapshot has no lines about rows that were deleted
    // meanwhile.
    let lines = if order.cursor.is_none() {
        line::reset_line()
    } else {
        String::new()
    };
    let mut reading = ExportReader {
        scope,
        order,
        shards: &shards,
        cursor,
        lines,
        count: 0,
        started: Instant::now(),
    };
    // Changes follow only after the snapshot is complete; until then, their offsets stay at the
    // start of the snapshot.
    reading.scan()?;

    let more = reading.cursor.is_scanning() || reading.follow()?;
    Ok(ExportPart {
        lines: reading.lines,
        cursor: reading.cursor,
        more,
    })
}

/// Share of a shard in the rest of a response, so that a busy shard does not delay the changes of
/// the others.
#[derive(Debug, PartialEq, Eq)]
struct Share {
    /// Number of items of the response at which the share ends.
    items_end: usize,
    /// Size of the response in bytes at which it ends.
    bytes_end: usize,
}

impl Share {
    /// Returns the share of the next shard, if `shards` have none yet.
    fn of(limit: usize, items: usize, bytes: usize, shards: usize) -> Self {
        let items_left = limit.saturating_sub(items);
        let bytes_left = BYTES.saturating_sub(bytes);
        Self {
            items_end: items + items_left.div_ceil(shards),
            bytes_end: bytes + bytes_left.div_ceil(shards),
        }
    }

    fn is_used(&self, items: usize, bytes: usize) -> bool {
        items >= self.items_end || bytes >= self.bytes_end
    }
}

/// Reader that fills a part.
struct ExportReader<'a> {
    scope: &'a ReadScope,
    order: &'a ExportRequest,
    shards: &'a [(u16, Reader)],
    cursor: ExportCursor,
    lines: String,
    count: usize,
    started: Instant,
}

impl ExportReader<'_> {
    fn query(&self, limit: usize) -> FeedQuery {
        let tenant = self.order.tenant.clone();
        let kinds = self.order.kinds.clone();
        FeedQuery {
            tenant,
            kinds,
            limit,
            bytes: BYTES.saturating_sub(self.lines.len()),
        }
    }

    /// Returns the query for changes of one shard.
    fn change_query(&self, share: &Share) -> FeedQuery {
        FeedQuery {
            bytes: share.bytes_end.saturating_sub(self.lines.len()),
            ..self.query(share.items_end.saturating_sub(self.count))
        }
    }

    fn is_full(&self) -> bool {
        // Half of the time of a request is left for the encoding and the transfer of the response.
        self.count >= self.order.limit
            || self.lines.len() >= BYTES
            || self.started.elapsed() >= self.scope.http().request_timeout / 2
    }

    /// Continues the snapshot within the size limit.
    fn scan(&mut self) -> Result<(), Problem> {
        let shards = self.shards;
        while let Some(ScanPosition { shard, place }) = self.cursor.scan.clone() {
            let Some((number, reader)) = shards.get(shard) else {
                // All shards are scanned; the client follows the changes from now on.
                self.cursor.scan = None;
                break;
            };
            if self.is_full() {
                break;
            }
            let page =
                reader.feed_scan(&self.query(self.order.limit - self.count), place.as_ref())?;
            self.emit(*number, &page.items);
            // The rows are as of this offset: a store without it cannot continue this copy.
            self.cursor.last_read_at[shard] = page.as_of;
            let next = if page.next.is_some() {
                shard
            } else {
                shard + 1
            };
            self.cursor.scan = Some(ScanPosition {
                shard: next,
                place: page.next,
            });
        }

        Ok(())
    }

    /// Reads the changes; each shard gets an equal share of the size limit. Returns whether there
    /// are more.
    fn follow(&mut self) -> Result<bool, Problem> {
        let shards = self.shards;
        // A cursor is input of a client.
        let first = self.cursor.first % shards.len();
        let mut more = false;
        for turn in 0..shards.len() {
            let index = (first + turn) % shards.len();
            let (number, reader) = &shards[index];
            let share = Share::of(
                self.order.limit,
                self.count,
                self.lines.len(),
                shards.len() - turn,
            );
            loop {
                // Before the read, so that `more` can be true although nothing follows; the next
                // response is then empty.
                if share.is_used(self.count, self.lines.len()) || self.is_full() {
                    more = true;
                    break;
                }

                let page = reader.feed(&self.change_query(&share), self.cursor.offsets[index].1)?;
                // Also without items: changes of other tenants are not read again.
                self.cursor.offsets[index].1 = page.next;
                self.cursor.last_read_at[index] = page.as_of;
                self.emit(*number, &page.items);

                if !page.more {
                    break;
                }
            }
        }

        // A single change can use the rest of a response, and slow reads its time, so that another
        // shard is first in the next one.
        if more {
            self.cursor.first = (first + 1) % shards.len();
        }
        Ok(more)
    }

    fn emit(&mut self, shard: u16, items: &[orlog_store::FeedItem]) {
        // Hidden items count, too, so that the work of one response is limited.
        self.count += items.len();
        let is_open =
            |touched: &&orlog_store::FeedItem| !self.order.closed.contains(line::tenant(touched));
        for touched in items.iter().filter(is_open) {
            self.lines
                .push_str(&line::entity_line(self.scope, shard, touched));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_shard_leaves_the_others_their_shares_of_items_and_of_bytes() {
        let first = Share::of(90, 0, 0, 3);
        assert_eq!((first.items_end, first.bytes_end), (30, BYTES.div_ceil(3)));
        assert!(first.is_used(30, 0) && first.is_used(1, BYTES / 2));
        assert!(!first.is_used(29, BYTES / 3));

        // What one shard does not use is left for the others.
        let second = Share::of(90, 2, 100, 2);
        assert_eq!(second.items_end, 2 + 44);
        assert_eq!(second.bytes_end, 100 + (BYTES - 100).div_ceil(2));
        let last = Share::of(90, 46, BYTES / 2, 1);
        assert_eq!((last.items_end, last.bytes_end), (90, BYTES));
    }

    #[test]
    fn full_response_leaves_no_share() {
        let rest = Share::of(10, 10, BYTES + 1, 2);
        assert!(rest.is_used(10, BYTES + 1));
    }
}
