//! Queries of instances and timers, page by page.

use std::ops::ControlFlow;

use orlog_model::{Instance, InstanceKey, SagaName, Status, TenantId, Timer, Timestamp};

use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::KeyReader;
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// Query of instances. Time ranges include their start and exclude their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceQuery {
    /// Tenant.
    pub tenant: TenantId,
    /// Saga; `None`: all sagas.
    pub saga: Option<SagaName>,
    /// Statuses; empty: all.
    pub statuses: Vec<Status>,
    /// Prefix of the correlation id.
    pub prefix: Option<String>,
    /// Start of the range of the last change.
    pub updated_from: Option<Timestamp>,
    /// End of the range of the last change.
    pub updated_until: Option<Timestamp>,
    /// Start of the range of the creation time.
    pub created_from: Option<Timestamp>,
    /// End of the range of the creation time.
    pub created_until: Option<Timestamp>,
    /// Cursor from the previous page; `None` for the first page.
    pub cursor: Option<String>,
    /// Maximum number of results. Default for 0: 100.
    pub limit: usize,
    /// Maximum number of scanned rows. Default for 0: 100,000. A page can therefore be short without being
    /// the last.
    pub scan_limit: usize,
}

/// Query of timers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimerQuery {
    /// Tenant.
    pub tenant: TenantId,
    /// Start cursor; `None` starts at the earliest due time. A cursor is valid in every shard.
    pub cursor: Option<String>,
    /// Maximum number of results.
    pub limit: usize,
    /// Maximum number of scanned rows, because timers of other tenants are in between.
    pub scan_limit: usize,
}

/// Timer in a query result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTimer {
    /// Position of the timer. Timers are ordered by position, across shards too.
    pub position: String,
    /// Instance of the timer.
    pub key: InstanceKey,
    /// Timer.
    pub timer: Timer,
}

impl FoundTimer {
    /// Returns the cursor of the timer after this one.
    #[must_use]
    pub fn cursor_after(&self) -> String {
        format!("{}00", self.position)
    }
}

/// Page of a query result.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// Results, in key order.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` after the last one. Opaque.
    pub next: Option<String>,
    /// Number of scanned rows.
    pub scanned: usize,
}

impl InstanceQuery {
    fn limits(&self) -> (usize, usize) {
        limits(self.limit, self.scan_limit)
    }

    fn matches(&self, key: &InstanceKey, instance: &Instance) -> bool {
        let within = |at: Timestamp, from: Option<Timestamp>, until: Option<Timestamp>| {
            from.is_none_or(|from| from <= at) && until.is_none_or(|until| at < until)
        };
        (self.statuses.is_empty() || self.statuses.contains(&instance.status))
            && self.prefix.as_ref().is_none_or(|prefix| key.correlation.as_str().starts_with(prefix))
            && within(instance.updated_at, self.updated_from, self.updated_until)
            && within(instance.created_at, self.created_from, self.created_until)
    }

    /// Returns the last key of the previous page. It must belong to this tenant, because cursors are
    /// external input.
    fn resumed(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let key = hex::decode(cursor).map_err(|_| invalid_cursor(cursor))?;
        let read = keys::read_instance(&mut KeyReader::of(&key));
        let (_, instance) = read.map_err(|_| invalid_cursor(cursor))?;
        if instance.tenant == self.tenant { Ok(Some(key)) } else { Err(invalid_cursor(cursor)) }
    }
}

impl Reader {
    /// Returns the cursor of a query whose last page ended with this instance.
    #[must_use]
    pub fn cursor(&self, key: &InstanceKey) -> String {
        hex::encode(self.keys().instance(key))
    }

    /// Returns the instances that match a query, ordered by slot, saga and correlation id.
    ///
    /// # Errors
    /// [`Error::InvalidCursor`], and the errors of [`Reader`].
    pub fn instances(&self, query: &InstanceQuery) -> Result<Page<(InstanceKey, Instance)>, Error> {
        let after = query.resumed()?;
        let prefix = query.prefix.as_deref().unwrap_or_default();
        let mut ranges = self.keys().instances(&query.tenant, query.saga.as_ref(), prefix);
        if let Some(key) = &after {
            ranges = ranges.into_iter().map(|range| range.after(key)).collect();
        }
        let page = self.scan_page(Table::Instance, &ranges, query.limits(), |row, value| {
            let (_, key) = keys::read_instance(&mut KeyReader::of(row))?;
            let instance: Option<Instance> = readable(decode(Table::Instance, value))?;
            Ok(instance.filter(|instance| query.matches(&key, instance)).map(|instance| (key, instance)))
        })?;
        Ok(Page { items: page.items, next: page.last.map(hex::encode), scanned: page.scanned })
    }

    /// Returns the armed timers of a tenant, ordered by due time.
    ///
    /// # Errors
    /// [`Error::InvalidCursor`], and the errors of [`Reader`].
    pub fn timers(&self, query: &TimerQuery) -> Result<Page<FoundTimer>, Error> {
        let start = |cursor: &String| hex::decode(cursor).map_err(|_| invalid_cursor(cursor));
        let start = query.cursor.as_ref().map(start).transpose()?.unwrap_or_default();
        let mut page = Page { items: Vec::new(), next: None, scanned: 0 };
        self.scan(Table::Timer, &KeyRange { start: start.into(), end: None }, |row, _| {
            if page.items.len() == query.limit || page.scanned == query.scan_limit {
                page.next = Some(hex::encode(&keys::timer_cursor(&query.tenant, row)?));
                return Ok(ControlFlow::Break(()));
            }
            let (key, timer) = keys::read_timer(row)?;
            page.scanned += 1;
            if key.tenant == query.tenant {
                page.items.push(FoundTimer { position: hex::encode(row), key, timer });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(page)
    }
}

/// Returns the limits of results and of scanned rows, with their defaults.
pub(super) fn limits(limit: usize, scan_limit: usize) -> (usize, usize) {
    let or = |limit: usize, default| if limit == 0 { default } else { limit };
    (or(limit, 100), or(scan_limit, 100_000))
}

pub(super) fn invalid_cursor(cursor: &str) -> Error {
    Error::InvalidCursor { cursor: cursor.chars().take(64).collect() }
}
