//! Queries of instances and timers, page by page.

use std::ops::ControlFlow;

use orlog_model::{Instance, InstanceKey, SagaName, Status, TenantId, Timer, Timestamp};

use crate::encoding::index_keys;
use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::KeyReader;
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::index::Index;
use crate::read::indexed::{IndexRow, VariableCondition, by_status, by_variable};
use crate::read::reader::{Reader, ScanLimits};
use crate::table::Table;

/// Query of instances. An indexed condition, or statuses, are read from an index; otherwise all
/// instances of the tenant and the saga are read. Time ranges include their start and exclude their
/// end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstanceQuery {
    /// Tenant.
    pub tenant: TenantId,
    /// Saga; `None`: all sagas.
    pub saga: Option<SagaName>,
    /// Statuses; empty: all.
    pub statuses: Vec<Status>,
    /// Prefix of the correlation id.
    pub prefix: Option<String>,
    /// Condition on a variable of `saga`, which must be indexed (see [`Reader::is_indexed`]).
    pub variable: Option<VariableCondition>,
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
    /// Maximum number of scanned rows. Default for 0: 100,000. A page can therefore be short
    /// without being the last.
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
    fn limits(&self) -> ScanLimits {
        limits(self.limit, self.scan_limit)
    }

    fn matches(&self, key: &InstanceKey, instance: &Instance) -> bool {
        let within = |at: Timestamp, from: Option<Timestamp>, until: Option<Timestamp>| {
            from.is_none_or(|from| from <= at) && until.is_none_or(|until| at < until)
        };

        (self.statuses.is_empty() || self.statuses.contains(&instance.status))
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| key.correlation.as_str().starts_with(prefix))
            && within(instance.updated_at, self.updated_from, self.updated_until)
            && within(instance.created_at, self.created_from, self.created_until)
    }

    /// Returns the last row of the previous page. Its instance must belong to this tenant, because
    /// cursors are external input.
    fn resumed(&self) -> Result<Option<LastRow>, Error> {
        let Some(cursor) = &self.cursor else {
            return Ok(None);
        };

        let invalid = || invalid_cursor(cursor);
        let (kind, row) = cursor.split_at_checked(1).ok_or_else(invalid)?;
        let row = hex::decode(row).map_err(|_| invalid())?;

        let (last, tenant) = match kind {
            "i" => (
                LastRow::Index(row.clone()),
                index_keys::read(&row).map(|instance| instance.tenant),
            ),
            "r" => {
                let read = keys::read_instance(&mut KeyReader::of(&row));
                (
                    LastRow::Instance(row.clone()),
                    read.map(|(_, instance)| instance.tenant),
                )
            }
            _ => return Err(invalid()),
        };

        if tenant.is_ok_and(|tenant| tenant == self.tenant) {
            Ok(Some(last))
        } else {
            Err(invalid())
        }
    }
}

/// Last row of a page.
enum LastRow {
    Instance(Vec<u8>),
    Index(Vec<u8>),
}

/// Instance in a query result.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundInstance {
    /// Key of the instance.
    pub key: InstanceKey,
    /// Instance.
    pub instance: Instance,
    position: String,
}

impl FoundInstance {
    /// Returns the cursor after this instance.
    #[must_use]
    pub fn cursor(&self) -> String {
        self.position.clone()
    }
}

impl Reader {
    /// Returns the instances that match a query: ordered by value if an indexed variable is
    /// compared, by status if statuses are given, otherwise by slot; then by saga and correlation
    /// id.
    ///
    /// # Errors
    /// [`Error::InvalidCursor`], and the errors of [`Reader`].
    pub fn instances(&self, query: &InstanceQuery) -> Result<Page<FoundInstance>, Error> {
        let after = query.resumed()?;
        let prefix = query.prefix.as_deref().unwrap_or_default();
        let rows = self
            .keys()
            .instances(&query.tenant, query.saga.as_ref(), prefix);

        let (index, after) = match after {
            // The pages of a scan continue as a scan, although an index may be ready now.
            Some(LastRow::Instance(row)) => (None, Some(row)),
            // Without its index, for example during a rebuild, the position of the row is unknown.
            Some(LastRow::Index(row)) => match (self.index_of(query)?, &query.cursor) {
                (None, Some(cursor)) => return Err(invalid_cursor(cursor)),
                (index, _) => (index, Some(row)),
            },
            None => (self.index_of(query)?, None),
        };

        match index {
            Some(IndexScan { ranges, row_of }) => self.indexed(
                query,
                &resumed_ranges(ranges, after.as_deref()),
                &rows,
                &*row_of,
            ),
            None => self.scanned(query, &resumed_ranges(rows, after.as_deref())),
        }
    }

    fn scanned(
        &self,
        query: &InstanceQuery,
        rows: &[KeyRange],
    ) -> Result<Page<FoundInstance>, Error> {
        let page = self.scan_page(Table::Instance, rows, query.limits(), |row, value| {
            let (_, key) = keys::read_instance(&mut KeyReader::of(row))?;
            let instance: Option<Instance> = readable(decode(Table::Instance, value))?;
            let matching = instance.filter(|instance| query.matches(&key, instance));
            Ok(matching.map(|instance| FoundInstance {
                key,
                instance,
                position: row_cursor("r", row),
            }))
        })?;

        let next = page.last.map(|row| row_cursor("r", &row));
        Ok(Page {
            items: page.items,
            next,
            scanned: page.scanned,
        })
    }

    fn indexed(
        &self,
        query: &InstanceQuery,
        ranges: &[KeyRange],
        rows: &[KeyRange],
        row_of: &IndexRow<'_>,
    ) -> Result<Page<FoundInstance>, Error> {
        let limits = query.limits();
        let mut bytes = 0;
        let mut page = Page {
            items: Vec::new(),
            next: None,
            scanned: 0,
        };

        for range in ranges {
            let mut rest = range.clone();
            loop {
                let remaining = ScanLimits {
                    found: limits.found - page.items.len(),
                    scanned: limits.scanned - page.scanned,
                    bytes: limits.bytes - bytes,
                };

                let candidates = self.candidates(&rest, rows, remaining, row_of)?;
                // Candidates in the memtables can exceed the limit, and the subtraction above must
                // not underflow.
                page.scanned = limits.scanned.min(page.scanned + candidates.scanned);

                for (row, key, instance) in candidates.found {
                    if query.matches(&key, &instance) {
                        bytes = limits.bytes.min(bytes + instance.state.len());
                        page.items.push(FoundInstance {
                            key,
                            instance,
                            position: row_cursor("i", &row),
                        });
                    }
                }

                let is_full = page.items.len() == limits.found
                    || page.scanned == limits.scanned
                    || bytes == limits.bytes;
                if let Some(last) = candidates.last.as_ref().filter(|_| is_full) {
                    page.next = Some(row_cursor("i", last));
                    return Ok(page);
                }

                match candidates.last {
                    Some(last) if !candidates.is_end => rest = rest.after(&last),
                    _ => break,
                }
            }
        }
        Ok(page)
    }

    /// Returns the index that a query uses; `None` if all instances of its saga are read.
    fn index_of<'a>(&self, query: &'a InstanceQuery) -> Result<Option<IndexScan<'a>>, Error> {
        let InstanceQuery {
            tenant,
            saga,
            statuses,
            ..
        } = query;

        // The index of the variable comes first: statuses are compared with each candidate, and
        // variables are not.
        if let (Some(saga), Some(condition)) = (saga, &query.variable)
            && self.is_indexed(saga, &condition.name)?
        {
            let VariableCondition { name, lower, upper } = condition;
            let range =
                index_keys::variable_range(tenant, saga, name, lower.as_ref(), upper.as_ref());
            let row_of = Box::new(by_variable(name, self.shared.variables));
            return Ok(Some(IndexScan {
                ranges: vec![range],
                row_of,
            }));
        }

        if statuses.is_empty() || !self.is_ready(&Index::Instances)? {
            return Ok(None);
        }

        let prefix = query.prefix.as_deref().unwrap_or_default();
        let mut ranges: Vec<_> = statuses
            .iter()
            .map(|status| index_keys::status_range(tenant, *status, saga.as_ref(), prefix))
            .collect();
        // Cursors require the ranges in key order. A status that is given twice is read once.
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        ranges.dedup_by(|a, b| a.start == b.start);

        Ok(Some(IndexScan {
            ranges,
            row_of: Box::new(by_status()),
        }))
    }

    /// Returns the armed timers of a tenant, ordered by due time.
    ///
    /// # Errors
    /// [`Error::InvalidCursor`], and the errors of [`Reader`].
    pub fn timers(&self, query: &TimerQuery) -> Result<Page<FoundTimer>, Error> {
        // The cursor is external input. The tenant of each row is compared below.
        let start = match &query.cursor {
            Some(cursor) => hex::decode(cursor).map_err(|_| invalid_cursor(cursor))?,
            None => Vec::new(),
        };

        let mut page = Page {
            items: Vec::new(),
            next: None,
            scanned: 0,
        };

        self.scan(
            Table::Timer,
            &KeyRange {
                start: start.into(),
                end: None,
            },
            |row, _| {
                // The row that does not fit is the start of the next page.
                if page.items.len() == query.limit || page.scanned == query.scan_limit {
                    page.next = Some(hex::encode(&keys::timer_cursor(&query.tenant, row)?));
                    return Ok(ControlFlow::Break(()));
                }

                let (key, timer) = keys::read_timer(row)?;
                page.scanned += 1;
                if key.tenant == query.tenant {
                    page.items.push(FoundTimer {
                        position: hex::encode(row),
                        key,
                        timer,
                    });
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(page)
    }
}

/// Ranges of one index that contain the results of a query.
struct IndexScan<'a> {
    ranges: Vec<KeyRange>,
    row_of: Box<IndexRow<'a>>,
}

fn row_cursor(kind: &str, row: &[u8]) -> String {
    format!("{kind}{}", hex::encode(row))
}

/// Returns the parts of the ranges, which are in order, after a row.
fn resumed_ranges(ranges: Vec<KeyRange>, after: Option<&[u8]>) -> Vec<KeyRange> {
    let Some(row) = after else { return ranges };
    ranges
        .into_iter()
        .map(|range| range.after(row))
        .filter(|range| !range.is_empty())
        .collect()
}

/// Returns the limits of results and of scanned rows, with their defaults.
pub(super) fn limits(limit: usize, scan_limit: usize) -> ScanLimits {
    let or = |limit: usize, default| if limit == 0 { default } else { limit };
    ScanLimits::page(or(limit, 100), or(scan_limit, 100_000))
}

pub(super) fn invalid_cursor(cursor: &str) -> Error {
    Error::InvalidCursor {
        cursor: cursor.chars().take(64).collect(),
    }
}
