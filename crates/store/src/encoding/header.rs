//! Fields of a snapshot that queries and indexes need, read without the rest of it.

use std::fmt;

use orlog_model::{DefinitionRef, Instance, Reference, Status, Timestamp};
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Number of snapshot fields between `state` and `reference`.
const BEFORE_REFERENCE: usize = 3;
/// Number of snapshot fields between `reference` and `updated_at`.
const AFTER_REFERENCE: usize = 5;

/// First fields of a snapshot, and the time of the last change.
#[derive(Debug, PartialEq)]
pub(crate) struct SnapshotHeader<'a> {
    pub(crate) definition: DefinitionRef,
    pub(crate) status: Status,
    pub(crate) paused: bool,
    pub(crate) state: &'a [u8],
    /// Parts of the business reference: names and texts.
    pub(crate) reference_parts: Vec<(&'a str, &'a str)>,
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
            reference_parts: match &instance.reference {
                Some(Reference::Parts(parts)) => parts
                    .iter()
                    .map(|(n, t)| (n.as_str(), t.as_str()))
                    .collect(),
                Some(Reference::Name(_)) | None => Vec::new(),
            },
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
        // Borrowed, because a query reads many snapshots.
        let state: &serde_bytes::Bytes = fields.next_element()?.ok_or_else(missing)?;

        for _ in 0..BEFORE_REFERENCE {
            fields.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        }
        let ReferenceParts(reference_parts) = fields.next_element()?.ok_or_else(missing)?;

        for _ in 0..AFTER_REFERENCE {
            fields.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        }
        let updated_at = fields.next_element()?.ok_or_else(missing)?;
        // The decoder rejects an array whose elements are not all read.
        while fields.next_element::<IgnoredAny>()?.is_some() {}

        Ok(SnapshotHeader {
            definition,
            status,
            paused,
            state,
            reference_parts,
            updated_at,
        })
    }
}

/// Parts of a business reference, without copies; none if it is a name or missing.
struct ReferenceParts<'a>(Vec<(&'a str, &'a str)>);

impl<'de> Deserialize<'de> for ReferenceParts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReferenceVisitor)
    }
}

struct ReferenceVisitor;

impl<'de> Visitor<'de> for ReferenceVisitor {
    type Value = ReferenceParts<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, parts by name, or nothing")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(ReferenceParts(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(ReferenceParts(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = fields.next_entry()? {
            parts.push(part);
        }
        Ok(ReferenceParts(parts))
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
        let parts = [("order", "o-1"), ("customer", "c-7")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()));
        let parts = Some(Reference::Parts(Box::new(parts.into_iter().collect())));
        for (status, reference) in Status::ALL
            .into_iter()
            .zip([None, Some("R-1".into()), parts].into_iter().cycle())
        {
            let (snapshot, mut row) = (
                Instance {
                    reference,
                    ..instance(3, status)
                },
                Vec::new(),
            );
            encode(&mut row, &snapshot);
            let header: SnapshotHeader<'_> = decode(Table::Instance, &row).unwrap();
            assert_eq!(header, SnapshotHeader::from_instance(&snapshot));
        }
    }
}
