//! Finding tasks, page by page, in the order of their ids, which is about that in which they were opened.

use std::ops::ControlFlow;

use orlog_model::{CorrelationId, SagaName, TaskEvent, TaskRow, TaskStatus, TenantId};
use uuid::Uuid;

use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::query::Page;
use crate::read::reader::Reader;
use crate::table::Table;

/// Which tasks to find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// Whose.
    pub tenant: TenantId,
    /// In which statuses; empty: in all.
    pub statuses: Vec<TaskStatus>,
    /// That somebody with this role may take; a task without roles is for everybody.
    pub role: Option<String>,
    /// That this person is to do, or has taken.
    pub assignee: Option<String>,
    /// Of this saga.
    pub saga: Option<SagaName>,
    /// Of the instances with this correlation id.
    pub correlation: Option<CorrelationId>,
    /// The `next` of the page before; `None` begins.
    pub cursor: Option<String>,
    /// How many to find at most; 0 stands for 100.
    pub limit: usize,
    /// How many to look at in each slot, at most; 0 stands for 100,000. A page may therefore be short and yet not the last.
    pub scan_limit: usize,
}

impl TaskQuery {
    fn limits(&self) -> (usize, usize) {
        let or = |limit: usize, default| if limit == 0 { default } else { limit };
        (or(self.limit, 100), or(self.scan_limit, 100_000))
    }

    fn wants(&self, row: &TaskRow) -> bool {
        let form = &row.task.form;
        let is = |wanted: &String, who: &Option<String>| who.as_ref() == Some(wanted);
        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self.role.as_ref().is_none_or(|role| form.roles.is_empty() || form.roles.contains(role))
            && self
                .assignee
                .as_ref()
                .is_none_or(|who| is(who, &form.assignee) || is(who, &row.task.claimed_by))
            && self.saga.as_ref().is_none_or(|saga| *saga == row.instance.saga)
            && self.correlation.as_ref().is_none_or(|id| *id == row.instance.correlation)
    }

    fn after(&self) -> Result<Option<Uuid>, Error> {
        let bad = |cursor: &String| Error::BadCursor { cursor: cursor.chars().take(64).collect() };
        self.cursor.as_ref().map(|cursor| cursor.parse().map_err(|_| bad(cursor))).transpose()
    }
}

impl Reader {
    /// The tasks that a query describes.
    ///
    /// # Errors
    /// [`Error::BadCursor`], and those of [`Reader`].
    pub fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow>, Error> {
        let (after, (limit, scan_limit)) = (query.after()?, query.limits());
        let mut pages = Vec::new();
        for slot in self.keys().slots_of(&query.tenant) {
            let range = keys::tasks(slot, &query.tenant);
            let range = match after {
                Some(id) => range.after(&keys::task_in(slot, &query.tenant, id)),
                None => range,
            };
            pages.push(self.tasks_in(&range, query, (limit, scan_limit))?);
        }
        Ok(merge_tasks(pages, limit))
    }

    fn tasks_in(
        &self,
        range: &Range,
        query: &TaskQuery,
        (limit, scan_limit): (usize, usize),
    ) -> Result<Page<TaskRow>, Error> {
        let mut page = Page { items: Vec::new(), next: None, scanned: 0 };
        self.shared.scan(Table::Task, range, |_, value| {
            let row: TaskRow = decode(Table::Task, value)?;
            page.scanned += 1;
            let id = row.task.id;
            if query.wants(&row) {
                page.items.push(row);
            }
            if page.items.len() < limit && page.scanned < scan_limit {
                return Ok(ControlFlow::Continue(()));
            }
            page.next = Some(id.to_string());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(page)
    }

    /// One task. A tenant that is spread has its tasks in all slots: each is looked into.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn task(&self, tenant: &TenantId, id: Uuid) -> Result<Option<TaskRow>, Error> {
        for slot in self.keys().slots_of(tenant) {
            if let Some(row) = self.row(Table::Task, &keys::task_in(slot, tenant, id))? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// What happened to a task, oldest first.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn task_events(&self, task: &TaskRow, limit: usize) -> Result<Vec<TaskEvent>, Error> {
        let range = Range::of_prefix(self.keys().task(&task.instance, task.task.id));
        self.rows_of(Table::TaskEvent, &range, limit, |_, value| decode(Table::TaskEvent, value))
    }
}

/// One page of those of several slots or shards, all asked the same: what lies behind the place where one of them stopped is
/// left for the next page.
#[must_use]
pub fn merge_tasks(pages: Vec<Page<TaskRow>>, limit: usize) -> Page<TaskRow> {
    let scanned = pages.iter().map(|page| page.scanned).sum();
    let mut next = pages.iter().filter_map(|page| page.next.clone()).min();
    let mut items: Vec<TaskRow> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_by_key(|row| row.task.id);
    if let Some(horizon) = &next {
        items.retain(|row| row.task.id.to_string() <= *horizon);
    }
    if items.len() > limit {
        items.truncate(limit);
        next = items.last().map(|row| row.task.id.to_string());
    }
    Page { items, next, scanned }
}
