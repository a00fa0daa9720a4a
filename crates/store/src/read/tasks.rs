//! Queries of tasks, page by page, in id order, which is approximately the order of creation.

use orlog_model::{CorrelationId, SagaName, TaskEvent, TaskRow, TaskStatus, TenantId};
use uuid::Uuid;

use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::query::{Page, invalid_cursor, limits};
use crate::read::reader::{Reader, ScanLimits};
use crate::table::Table;

/// Query of tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// Tenant.
    pub tenant: TenantId,
    /// Statuses; empty: all.
    pub statuses: Vec<TaskStatus>,
    /// Role that may claim the task. A task without roles matches every role.
    pub role: Option<String>,
    /// User who is the assignee or holds the claim.
    pub assignee: Option<String>,
    /// Saga.
    pub saga: Option<SagaName>,
    /// Correlation id of the instances.
    pub correlation: Option<CorrelationId>,
    /// Cursor `next` of the previous page; `None` for the first page.
    pub cursor: Option<String>,
    /// Maximum number of results. Default for 0: 100.
    pub limit: usize,
    /// Maximum number of scanned rows in each slot. Default for 0: 100,000. A page can therefore be
    /// short without being the last.
    pub scan_limit: usize,
}

impl TaskQuery {
    fn matches(&self, row: &TaskRow) -> bool {
        let form = &row.task.spec;
        let is = |expected: &String, user: &Option<String>| user.as_ref() == Some(expected);

        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self
                .role
                .as_ref()
                .is_none_or(|role| form.roles.is_empty() || form.roles.contains(role))
            && self
                .assignee
                .as_ref()
                .is_none_or(|user| is(user, &form.assignee) || is(user, &row.task.claimed_by))
            && self
                .saga
                .as_ref()
                .is_none_or(|saga| *saga == row.instance.saga)
            && self
                .correlation
                .as_ref()
                .is_none_or(|id| *id == row.instance.correlation)
    }

    fn after(&self) -> Result<Option<Uuid>, Error> {
        self.cursor
            .as_ref()
            .map(|cursor| cursor.parse().map_err(|_| invalid_cursor(cursor)))
            .transpose()
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the tasks that match a query.
    ///
    /// # Errors
    /// [`Error::InvalidCursor`], and the errors of [`Reader`].
    pub fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow>, Error> {
        let after = query.after()?;
        let mut limits = limits(query.limit, query.scan_limit);
        // A key-sharded tenant has many slots: together they read one page.
        let slots: Vec<_> = self.keys().slots_of(&query.tenant).collect();
        limits.bytes = (limits.bytes / slots.len().max(1)).max(1);

        let mut pages = Vec::new();
        for slot in slots {
            let range = keys::tasks(slot, &query.tenant);
            // Each slot has the order of the ids, so one cursor applies to all slots.
            let range = match after {
                Some(id) => range.after(&keys::task_key(slot, &query.tenant, id)),
                None => range,
            };
            pages.push(self.tasks_in(range, query, limits)?);
        }
        Ok(merge_tasks(pages, limits.found))
    }

    fn tasks_in(
        &self,
        range: KeyRange,
        query: &TaskQuery,
        limits: ScanLimits,
    ) -> Result<Page<TaskRow>, Error> {
        let page = self.scan_page(Table::Task, &[range], limits, |_, value| {
            let row: TaskRow = decode(Table::Task, value)?;
            Ok(query.matches(&row).then_some(row))
        })?;

        let last = page.last.map(|key| keys::read_task(&key)).transpose()?;
        Ok(Page {
            items: page.items,
            next: last.map(|(_, id, _)| id.to_string()),
            scanned: page.scanned,
        })
    }

    /// Returns one task. For a key-sharded tenant, searches all slots.
    pub fn task(&self, tenant: &TenantId, id: Uuid) -> Result<Option<TaskRow>, Error> {
        for slot in self.keys().slots_of(tenant) {
            if let Some(row) = self.row(Table::Task, &keys::task_key(slot, tenant, id))? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Returns the events of a task, oldest first.
    pub fn task_events(&self, task: &TaskRow, limit: usize) -> Result<Vec<TaskEvent>, Error> {
        let range = KeyRange::of_prefix(self.keys().task(&task.instance, task.task.id));
        self.scan_rows(Table::TaskEvent, &range, limit, |_, value| {
            decode(Table::TaskEvent, value)
        })
    }
}

/// Merges the pages of several slots or shards for the same query into one page. Results after the
/// position where one of them stopped are left for the next page.
#[must_use]
pub fn merge_tasks(pages: Vec<Page<TaskRow>>, limit: usize) -> Page<TaskRow> {
    let scanned = pages.iter().map(|page| page.scanned).sum();
    let mut next = pages.iter().filter_map(|page| page.next.clone()).min();
    let mut items: Vec<TaskRow> = pages.into_iter().flat_map(|page| page.items).collect();

    items.sort_by_key(|row| row.task.id);
    // Ids have a fixed length in lower case, so their texts have the order of the ids.
    if let Some(horizon) = &next {
        items.retain(|row| row.task.id.to_string() <= *horizon);
    }
    if items.len() > limit {
        items.truncate(limit);
        next = items.last().map(|row| row.task.id.to_string());
    }

    Page {
        items,
        next,
        scanned,
    }
}
