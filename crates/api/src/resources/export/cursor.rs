//! Export cursors: positions up to which a client has read. They are opaque and grant no
//! permissions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orlog_model::TenantId;
use orlog_store::{FeedEntityKind, FeedOffset, FeedScanCursor};
use serde::{Deserialize, Serialize};

use crate::server::errors::invalid_parameter;
use crate::server::problem::{Code, Problem};

/// Current format of cursors.
const FORMAT: u8 = 1;

/// Position up to which a client has read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExportCursor {
    #[serde(rename = "v")]
    format: u8,
    /// Tenant; `None`: all tenants.
    #[serde(rename = "t")]
    tenant: Option<TenantId>,
    /// Exported kinds.
    #[serde(rename = "k")]
    pub(crate) kinds: Vec<FeedEntityKind>,
    /// Feed offset of each shard after which changes are read.
    #[serde(rename = "m")]
    pub(crate) offsets: Vec<(u16, FeedOffset)>,
    /// Feed offset of each shard at the last read. A store that was restored to a position between
    /// the two offsets cannot continue from the first one.
    #[serde(rename = "h")]
    pub(crate) last_read_at: Vec<FeedOffset>,
    /// Position of the snapshot; `None` when it is complete.
    #[serde(rename = "s")]
    pub(crate) scan: Option<ScanPosition>,
    /// Index of the shard whose changes are read first. Absent in cursors of earlier releases.
    #[serde(rename = "f", default)]
    pub(crate) first: usize,
}

/// Position of the snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScanPosition {
    /// Index of the shard.
    pub(crate) shard: usize,
    /// Position in the shard; `None`: at its start.
    pub(crate) place: Option<FeedScanCursor>,
}

impl ExportCursor {
    /// Creates a cursor at the start of a snapshot.
    pub(crate) fn start(
        tenant: Option<TenantId>,
        kinds: Vec<FeedEntityKind>,
        feed_offsets: Vec<(u16, FeedOffset)>,
    ) -> Self {
        let scan = Some(ScanPosition {
            shard: 0,
            place: None,
        });
        let read_offsets = feed_offsets
            .iter()
            .map(|(_, feed_offset)| *feed_offset)
            .collect();

        Self {
            format: FORMAT,
            tenant,
            kinds,
            offsets: feed_offsets,
            last_read_at: read_offsets,
            scan,
            first: 0,
        }
    }

    /// Parses a cursor.
    pub(crate) fn read(text: &str) -> Result<Self, Problem> {
        let invalid = || invalid_parameter("after", "not an export cursor; start without a cursor");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
        let cursor: Self = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        // A cursor is input of a client: lists of different lengths would assign offsets to other
        // shards.
        let is_whole = cursor.format == FORMAT && cursor.last_read_at.len() == cursor.offsets.len();
        if is_whole { Ok(cursor) } else { Err(invalid()) }
    }

    /// Encodes the cursor for clients.
    pub(crate) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a cursor serializes to JSON"))
    }

    /// Returns whether the snapshot is incomplete.
    pub(crate) fn is_scanning(&self) -> bool {
        self.scan.is_some()
    }

    /// Rejects a cursor of another tenant or of other kinds.
    pub(crate) fn matches_query(
        &self,
        tenant: Option<&TenantId>,
        kinds: Option<&[FeedEntityKind]>,
    ) -> Result<(), Problem> {
        // The snapshot of another tenant would start in the middle, and its earlier rows would be
        // missing without notice.
        if self.tenant.as_ref() != tenant {
            return Err(invalid_parameter(
                "after",
                "the cursor belongs to another tenant",
            ));
        }
        if kinds.is_some_and(|kinds| kinds != self.kinds) {
            let of: Vec<_> = self.kinds.iter().map(|kind| kind.as_str()).collect();
            let reason = format!(
                "the cursor is for the kinds {}; start without a cursor for others",
                of.join(",")
            );
            return Err(invalid_parameter("kinds", reason));
        }

        Ok(())
    }

    /// Rejects a cursor of a node with other shards.
    pub(crate) fn is_of(&self, shards: impl Iterator<Item = u16>) -> Result<(), Problem> {
        // In the same order, because the last offsets are stored by position.
        if self.offsets.iter().map(|(shard, _)| *shard).eq(shards) {
            return Ok(());
        }
        let detail = "the cursor belongs to a node with other shards; start without a cursor";
        Err(Problem::new(Code::CursorExpired, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_cursor_round_trips_and_rejects_other_text() {
        let feed_offset = FeedOffset {
            position: 7,
            part: 1,
            writer_id: u64::MAX,
        };
        let cursor = ExportCursor::start(
            Some(TenantId::default()),
            FeedEntityKind::ALL.to_vec(),
            vec![(3, feed_offset)],
        );
        assert_eq!(ExportCursor::read(&cursor.text()).unwrap(), cursor);
        let later = URL_SAFE_NO_PAD.encode(r#"{"v":2,"t":null,"k":[],"m":[],"h":[],"s":null}"#);
        for invalid in ["", "x", "e30", "1.ab", &later] {
            assert!(ExportCursor::read(invalid).is_err(), "{invalid}");
        }
        assert!(
            cursor
                .matches_query(Some(&TenantId::default()), None)
                .is_ok()
        );
        assert!(cursor.matches_query(None, None).is_err());
        assert!(
            cursor
                .matches_query(Some(&TenantId::default()), Some(&[FeedEntityKind::Tasks]))
                .is_err()
        );
        assert!(cursor.is_of([3].into_iter()).is_ok() && cursor.is_of([0, 3].into_iter()).is_err());
    }
}
