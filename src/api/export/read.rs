//! Reading a part of the export: first what there is, shard after shard, then what has changed since that began.

use std::time::Instant;

use orlog_model::TenantId;
use orlog_store::{Fed, FeedQuery, Reader};

use super::cursor::{Cursor, Scan};
use super::line;
use crate::api::problem::{Code, Problem};
use crate::app::App;

/// About how many bytes an answer has at most.
const BYTES: usize = 4 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) tenant: Option<TenantId>,
    pub(super) kinds: Vec<Fed>,
    pub(super) cursor: Option<Cursor>,
    pub(super) limit: usize,
}

/// What is told.
pub(super) struct Part {
    pub(super) lines: String,
    pub(super) cursor: Cursor,
    /// There is more at once.
    pub(super) more: bool,
}

impl Order {
    /// The stores it is about, with their numbers.
    pub(super) fn shards(&self, app: &App) -> Result<Vec<(u16, Reader)>, Problem> {
        let mut here = app.runtime.numbered_readers().collect::<Vec<_>>();
        let wanted = app.shards_of(self.tenant.as_ref());
        here.retain(|(shard, _)| wanted.contains(shard));
        if here.len() == wanted.len() {
            return Ok(here);
        }
        let missing = wanted.iter().filter(|shard| here.iter().all(|(index, _)| index != *shard));
        let missing: Vec<_> = missing.map(ToString::to_string).collect();
        let detail = format!(
            "shard {} is not on this node; the export of several shards needs all of them on one node",
            missing.join(", ")
        );
        Err(Problem::new(Code::Unavailable, detail))
    }
}

/// Reads the next part. Blocks.
pub(super) fn read(app: &App, order: &Order, shards: &[(u16, Reader)]) -> Result<Part, Problem> {
    let begin = || {
        let marks = shards.iter().map(|(shard, reader)| Ok((*shard, reader.feed_head()?)));
        let marks = marks.collect::<Result<_, orlog_store::Error>>()?;
        Ok::<_, Problem>(Cursor::begin(order.tenant.clone(), order.kinds.clone(), marks))
    };
    let cursor = order.cursor.clone().map_or_else(begin, Ok)?;
    cursor.is_of(shards.iter().map(|(shard, _)| *shard))?;
    for ((_, reader), ((_, mark), heard)) in shards.iter().zip(cursor.marks.iter().zip(&cursor.heard)) {
        reader.feed_holds(mark)?;
        reader.feed_holds(heard)?;
    }
    let lines = if order.cursor.is_none() { line::first() } else { String::new() };
    let mut reading = Reading { app, order, shards, cursor, lines, count: 0, begun: Instant::now() };
    reading.scan()?;
    let more = reading.cursor.is_scanning() || reading.follow()?;
    Ok(Part { lines: reading.lines, cursor: reading.cursor, more })
}

/// A part on its way.
struct Reading<'a> {
    app: &'a App,
    order: &'a Order,
    shards: &'a [(u16, Reader)],
    cursor: Cursor,
    lines: String,
    count: usize,
    begun: Instant,
}

impl Reading<'_> {
    fn query(&self, limit: usize) -> FeedQuery {
        let (tenant, kinds) = (self.order.tenant.clone(), self.order.kinds.clone());
        FeedQuery { tenant, kinds, limit, bytes: BYTES.saturating_sub(self.lines.len()) }
    }

    fn is_full(&self) -> bool {
        self.count >= self.order.limit
            || self.lines.len() >= BYTES
            || self.begun.elapsed() >= self.app.config.http.request_timeout / 2
    }

    /// Goes on with the first pass, as far as there is room.
    fn scan(&mut self) -> Result<(), Problem> {
        let shards = self.shards;
        while let Some(Scan { shard, place }) = self.cursor.scan.clone() {
            let Some((number, reader)) = shards.get(shard) else {
                self.cursor.scan = None;
                break;
            };
            if self.is_full() {
                break;
            }
            let page = reader.feed_scan(&self.query(self.order.limit - self.count), place.as_ref())?;
            self.tell(*number, &page.items);
            self.cursor.heard[shard] = page.seen;
            let next = if page.next.is_some() { shard } else { shard + 1 };
            self.cursor.scan = Some(Scan { shard: next, place: page.next });
        }
        Ok(())
    }

    /// Tells what has changed; each shard has its share of the room. Says whether there is more.
    fn follow(&mut self) -> Result<bool, Problem> {
        let shards = self.shards;
        let (share, mut more) = (self.order.limit.div_ceil(shards.len()), false);
        for (index, (number, reader)) in shards.iter().enumerate() {
            let mut told = 0;
            loop {
                if told >= share || self.is_full() {
                    more = true;
                    break;
                }
                let page = reader.feed(&self.query(share - told), self.cursor.marks[index].1)?;
                (self.cursor.marks[index].1, self.cursor.heard[index]) = (page.next, page.seen);
                told += page.items.len();
                self.tell(*number, &page.items);
                if !page.more {
                    break;
                }
            }
        }
        Ok(more)
    }

    fn tell(&mut self, shard: u16, items: &[orlog_store::Touched]) {
        self.count += items.len();
        for touched in items {
            self.lines.push_str(&line::of(self.app, shard, touched));
        }
    }
}
