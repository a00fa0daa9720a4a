//! Finding instances and timers, page by page.

use std::ops::ControlFlow;

use orlog_model::{Instance, InstanceKey, SagaName, Status, TenantId, Timer, Timestamp};

use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::tuple::{Fields, hex, unhex};
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// Which instances to find. Bounds of time include their first moment and exclude their last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Of which saga; `None`: of all.
    pub saga: Option<SagaName>,
    /// In which statuses; empty: in all.
    pub statuses: Vec<Status>,
    /// With a correlation id that begins so.
    pub prefix: Option<String>,
    /// Last changed then or later.
    pub updated_from: Option<Timestamp>,
    /// Last changed before.
    pub updated_until: Option<Timestamp>,
    /// Started then or later.
    pub created_from: Option<Timestamp>,
    /// Started before.
    pub created_until: Option<Timestamp>,
    /// Where the last page ended; `None` begins.
    pub cursor: Option<String>,
    /// How many to find at most; 0 stands for 100.
    pub limit: usize,
    /// How many to look at, at most; 0 stands for 100,000. A page may therefore be short and yet not the last.
    pub scan_limit: usize,
}

/// Which timers to find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimerQuery {
    /// Whose.
    pub tenant: TenantId,
    /// Where to begin; `None` is at the one that falls due first. Cursors of one shard are ones of every shard.
    pub cursor: Option<String>,
    /// How many to find at most.
    pub limit: usize,
    /// How many to look at, at most: those of other tenants lie between.
    pub scan_limit: usize,
}

/// A timer that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTimer {
    /// Its place: timers are in the order of their places, across shards too.
    pub place: String,
    /// Whose it is.
    pub key: InstanceKey,
    /// What falls due.
    pub timer: Timer,
}

impl FoundTimer {
    /// The cursor that begins with the timer behind this one.
    #[must_use]
    pub fn cursor_behind(&self) -> String {
        format!("{}00", self.place)
    }
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// What was found, in the order of keys.
    pub items: Vec<T>,
    /// Where the next page begins; `None` after the last one. Not meant to be understood.
    pub next: Option<String>,
    /// How many rows were looked at.
    pub scanned: usize,
}

impl InstanceQuery {
    fn limits(&self) -> (usize, usize) {
        let or = |limit: usize, default| if limit == 0 { default } else { limit };
        (or(self.limit, 100), or(self.scan_limit, 100_000))
    }

    fn wants(&self, key: &InstanceKey, instance: &Instance) -> bool {
        let within = |at: Timestamp, from: Option<Timestamp>, until: Option<Timestamp>| {
            from.is_none_or(|from| from <= at) && until.is_none_or(|until| at < until)
        };
        (self.statuses.is_empty() || self.statuses.contains(&instance.status))
            && self.prefix.as_ref().is_none_or(|prefix| key.correlation.as_str().starts_with(prefix))
            && within(instance.updated_at, self.updated_from, self.updated_until)
            && within(instance.created_at, self.created_from, self.created_until)
    }

    /// The key at which the last page ended. It must be one of this tenant: cursors come from outside.
    fn resumed(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let bad = || Error::BadCursor { cursor: cursor.chars().take(64).collect() };
        let key = unhex(cursor).ok_or_else(bad)?;
        let (_, instance) = keys::read_instance(&mut Fields::of(&key)).map_err(|_| bad())?;
        if instance.tenant == self.tenant { Ok(Some(key)) } else { Err(bad()) }
    }
}

impl Reader {
    /// The cursor of a query whose last page ended with this instance.
    #[must_use]
    pub fn cursor(&self, key: &InstanceKey) -> String {
        hex(&self.keys().instance(key))
    }

    /// The instances that a query describes, in the order of slot, saga and correlation id.
    ///
    /// # Errors
    /// [`Error::BadCursor`], and those of [`Reader`].
    pub fn instances(&self, query: &InstanceQuery) -> Result<Page<(InstanceKey, Instance)>, Error> {
        let after = query.resumed()?;
        let (limit, scan_limit) = query.limits();
        let mut page = Page { items: Vec::new(), next: None, scanned: 0 };
        let prefix = query.prefix.as_deref().unwrap_or_default();
        for range in self.keys().instances(&query.tenant, query.saga.as_ref(), prefix) {
            let range: Range = match &after {
                Some(key) => range.after(key),
                None => range,
            };
            self.shared.scan(Table::Instance, &range, |row, value| {
                let (_, key) = keys::read_instance(&mut Fields::of(row))?;
                let instance: Instance = decode(Table::Instance, value)?;
                page.scanned += 1;
                if query.wants(&key, &instance) {
                    page.items.push((key, instance));
                }
                if page.items.len() < limit && page.scanned < scan_limit {
                    return Ok(ControlFlow::Continue(()));
                }
                page.next = Some(hex(row));
                Ok(ControlFlow::Break(()))
            })?;
            if page.next.is_some() {
                break;
            }
        }
        Ok(page)
    }

    /// The armed timers of a tenant, in the order in which they fall due.
    ///
    /// # Errors
    /// [`Error::BadCursor`], and those of [`Reader`].
    pub fn timers(&self, query: &TimerQuery) -> Result<Page<FoundTimer>, Error> {
        let bad = |cursor: &String| Error::BadCursor { cursor: cursor.chars().take(64).collect() };
        let start = |cursor: &String| unhex(cursor).ok_or_else(|| bad(cursor));
        let start = query.cursor.as_ref().map(start).transpose()?.unwrap_or_default();
        let mut page = Page { items: Vec::new(), next: None, scanned: 0 };
        self.shared.scan(Table::Timer, &Range { start, end: None }, |row, _| {
            if page.items.len() == query.limit || page.scanned == query.scan_limit {
                page.next = Some(hex(&keys::timers_of_from(&query.tenant, row)?));
                return Ok(ControlFlow::Break(()));
            }
            let (key, timer) = keys::read_timer(row)?;
            page.scanned += 1;
            if key.tenant == query.tenant {
                page.items.push(FoundTimer { place: hex(row), key, timer });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(page)
    }
}
