//! Fields of a snapshot that queries and indexes need, read without the rest of it.

use std::fmt;

use orlog_model::{DefinitionRef, Instance, Status, Timestamp};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Number of snapshot fields between `state` and `updated_at`.
const SKIPPED: usize = 9;

/// First fields of a snapshot, and the time of the last change.
#[derive(Debug, PartialEq)]
pub(crate) struct SnapshotHeader<'a> {
    pub(crate) definition: DefinitionRef,
    pub(crate) status: Status,
    pub(crate) paused: bool,
    pub(crate) state: &'a [u8],
    pub(crate) updated_at: Timestamp,
}

impl<'a> SnapshotHeader<'a> {
    /// Returns the header of a snapshot.
    pub(crate) fn from_instance(instance: &'a Instance) -> Self {
        Self {
            definition: instance.definition.clone(),
            status: instance.status,
            paused: instance.paused,
            state: &instance.state,
            updated_at: instance.updated_at,
        }
    }
}

impl<'de> Deserialize<'de> for SnapshotHeader<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Snapshot)
    }
}

struct Snapshot;

impl<'de> Visitor<'de> for Snapshot {
    type Value = SnapshotHeader<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snapshot of an instance")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let missing = || A::Error::custom("it is truncated");
        let definition = fields.next_element()?.ok_or_else(missing)?;
        let _version: u64 = fields.next_element()?.ok_or_else(missing)?;
        let status = fields.next_element()?.ok_or_else(missing)?;
        let paused = fields.next_element()?.ok_or_else(missing)?;
        let state: &serde_bytes::Bytes = fields.next_element()?.ok_or_else(missing)?;
        for _ in 0..SKIPPED {
            fields.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        }
        let updated_at = fields.next_element()?.ok_or_else(missing)?;
        while fields.next_element::<IgnoredAny>()?.is_some() {}
        Ok(SnapshotHeader { definition, status, paused, state, updated_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::value::{decode, encode};
    use crate::samples::instance;
    use crate::table::Table;

    #[test]
    fn header_has_the_fields_of_the_snapshot() {
        for status in Status::ALL {
            let (snapshot, mut row) = (instance(3, status), Vec::new());
            encode(&mut row, &snapshot);
            let header: SnapshotHeader<'_> = decode(Table::Instance, &row).unwrap();
            assert_eq!(header, SnapshotHeader::from_instance(&snapshot));
        }
    }
}
