//! Pages of dead letters, in id order, which is approximately chronological.

use orlog_model::{DeadLetter, TenantId};
use uuid::Uuid;

use crate::encoding::keys;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::{Reader, ScanLimits};
use crate::table::Table;

/// Page of dead letters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeadLetterPage {
    /// Dead letters, in id order.
    pub items: Vec<DeadLetter>,
    /// Id after which the next page starts; `None` after the last one.
    pub next: Option<Uuid>,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns a page of the dead letters of a tenant after an id. A page of large dead letters can
    /// be shorter than `limit`, which is at least 1.
    pub fn dead_letter_page(
        &self,
        tenant: &TenantId,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<DeadLetterPage, Error> {
        let mut range = keys::dead_letters(tenant);
        if let Some(after) = after {
            range = range.after(&keys::dead_letter(tenant, after));
        }

        let limits = ScanLimits::page(limit, usize::MAX);
        let page = self.scan_page(Table::DeadLetter, &[range], limits, |_, value| {
            let dead_letter: DeadLetter = decode(Table::DeadLetter, value)?;
            Ok(Some(dead_letter))
        })?;

        let last = page.items.last().filter(|_| page.last.is_some());
        Ok(DeadLetterPage {
            next: last.map(|last| last.id),
            items: page.items,
        })
    }
}

impl DeadLetterPage {
    /// Merges the pages of several shards for the same query into one page. Dead letters after the
    /// id where one of them stopped are left for the next page. A dead letter of a key-sharded
    /// tenant that several shards have is returned once.
    #[must_use]
    pub fn merged(pages: Vec<Self>, limit: usize) -> Self {
        let mut next = pages.iter().filter_map(|page| page.next).min();
        let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();

        items.sort_by_key(|dead_letter| dead_letter.id);
        items.dedup_by_key(|dead_letter| dead_letter.id);
        if let Some(horizon) = next {
            items.retain(|dead_letter| dead_letter.id <= horizon);
        }
        if items.len() > limit {
            items.truncate(limit);
            next = items.last().map(|dead_letter| dead_letter.id);
        }
        Self { items, next }
    }
}
