//! Items of the feed, decoded from stored rows.

use orlog_model::{HistoryEntry, Instance, InstanceKey, TaskEvent, TaskRow, TenantId};
use uuid::Uuid;

use crate::encoding::keys;
use crate::encoding::tuple::KeyReader;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::table::Table;

/// Entity as of a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedItem {
    /// Position of the commit, or of a later one.
    pub position: u64,
    /// Entity.
    pub entity: FeedEntity,
}

/// Entity of the feed with its key; `None` if it was deleted.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedEntity {
    /// Instance.
    Instance(InstanceKey, Option<Box<Instance>>),
    /// Task.
    Task(TenantId, Uuid, Option<Box<TaskRow>>),
    /// Task event, by its number.
    TaskEvent(TenantId, Uuid, u64, Option<Box<TaskEvent>>),
    /// History entry, by the state version after it.
    HistoryEntry(InstanceKey, u64, Option<Box<HistoryEntry>>),
}

/// Stored row.
pub(super) type StoredRow = (Table, Vec<u8>, Option<Vec<u8>>);

/// Returns the size of a row, in bytes.
pub(super) fn size((_, key, row): &StoredRow) -> usize {
    key.len() + row.as_ref().map_or(0, Vec::len)
}

/// Decodes the rows as of a commit.
pub(super) fn feed_items(
    position: u64,
    rows: Vec<StoredRow>,
) -> impl Iterator<Item = Result<FeedItem, Error>> {
    rows.into_iter().map(move |row| {
        Ok(FeedItem {
            position,
            entity: entity(row)?,
        })
    })
}

fn entity((table, key, row): StoredRow) -> Result<FeedEntity, Error> {
    let row = row.as_deref();
    Ok(match table {
        Table::Task => {
            let (tenant, id, _) = keys::read_task(&key)?;
            FeedEntity::Task(tenant, id, row.map(|row| decode(table, row)).transpose()?)
        }
        Table::TaskEvent => {
            let (tenant, id, number) = keys::read_task(&key)?;
            FeedEntity::TaskEvent(
                tenant,
                id,
                number.unwrap_or_default(),
                row.map(|row| decode(table, row)).transpose()?,
            )
        }
        Table::History => {
            let (of, version) = keys::read_numbered(&key)?;
            FeedEntity::HistoryEntry(of, version, row.map(|row| decode(table, row)).transpose()?)
        }
        _ => {
            let (_, of) = keys::read_instance(&mut KeyReader::of(&key))?;
            FeedEntity::Instance(of, row.map(|row| decode(table, row)).transpose()?)
        }
    })
}
