//! Cursors: up to where somebody has heard. They are not meant to be understood, and give nobody a right.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orlog_model::TenantId;
use orlog_store::{Fed, FeedMark, FeedPlace};
use serde::{Deserialize, Serialize};

use crate::api::errors::bad_parameter;
use crate::api::problem::{Code, Problem};

/// The form of cursors so far.
const FORMAT: u8 = 1;

/// Up to where somebody has heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cursor {
    #[serde(rename = "v")]
    format: u8,
    /// Whose data; `None`: everybody's.
    #[serde(rename = "t")]
    tenant: Option<TenantId>,
    /// Which.
    #[serde(rename = "k")]
    pub(super) kinds: Vec<Fed>,
    /// Of each shard the mark behind which its changes are to be told.
    #[serde(rename = "m")]
    pub(super) marks: Vec<(u16, FeedMark)>,
    /// And the mark as of which what was told stands; a store that was restored from between the two does not go on from the first.
    #[serde(rename = "h")]
    pub(super) heard: Vec<FeedMark>,
    /// Where the first pass stands; `None` when it is over.
    #[serde(rename = "s")]
    pub(super) scan: Option<Scan>,
}

/// Where the first pass stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scan {
    /// In which of the shards, counted through.
    pub(super) shard: usize,
    /// Where in it; `None`: at its beginning.
    pub(super) place: Option<FeedPlace>,
}

impl Cursor {
    /// Before everything.
    pub(super) fn begin(tenant: Option<TenantId>, kinds: Vec<Fed>, marks: Vec<(u16, FeedMark)>) -> Self {
        let (scan, heard) =
            (Some(Scan { shard: 0, place: None }), marks.iter().map(|(_, mark)| *mark).collect());
        Self { format: FORMAT, tenant, kinds, marks, heard, scan }
    }

    /// Reads one that was given out.
    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        let wrong = || bad_parameter("after", "it is no cursor of the export; begin without one");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let cursor: Self = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let is_whole = cursor.format == FORMAT && cursor.heard.len() == cursor.marks.len();
        if is_whole { Ok(cursor) } else { Err(wrong()) }
    }

    /// As callers get it.
    pub(super) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a cursor is plain data"))
    }

    /// Whether the first pass goes on.
    pub(super) fn is_scanning(&self) -> bool {
        self.scan.is_some()
    }

    /// Refuses a cursor of something else than what is asked for.
    pub(super) fn fits(&self, tenant: Option<&TenantId>, kinds: Option<&[Fed]>) -> Result<(), Problem> {
        if self.tenant.as_ref() != tenant {
            return Err(bad_parameter("after", "it is the cursor of another tenant"));
        }
        if kinds.is_some_and(|kinds| kinds != self.kinds) {
            let of: Vec<_> = self.kinds.iter().map(|kind| kind.as_str()).collect();
            let reason = format!("the cursor is one of {}; for others begin without one", of.join(","));
            return Err(bad_parameter("kinds", reason));
        }
        Ok(())
    }

    /// Refuses a cursor of a node whose data are divided otherwise.
    pub(super) fn is_of(&self, shards: impl Iterator<Item = u16>) -> Result<(), Problem> {
        if self.marks.iter().map(|(shard, _)| *shard).eq(shards) {
            return Ok(());
        }
        let detail = "the cursor is of a node with other shards; begin again without a cursor";
        Err(Problem::new(Code::CursorGone, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_nothing_else_is_one() {
        let mark = FeedMark { position: 7, part: 1, life: u64::MAX };
        let cursor = Cursor::begin(Some(TenantId::default()), Fed::ALL.to_vec(), vec![(3, mark)]);
        assert_eq!(Cursor::read(&cursor.text()).unwrap(), cursor);
        let later = URL_SAFE_NO_PAD.encode(r#"{"v":2,"t":null,"k":[],"m":[],"h":[],"s":null}"#);
        for wrong in ["", "x", "e30", "1.ab", &later] {
            assert!(Cursor::read(wrong).is_err(), "{wrong}");
        }
        assert!(cursor.fits(Some(&TenantId::default()), None).is_ok());
        assert!(cursor.fits(None, None).is_err());
        assert!(cursor.fits(Some(&TenantId::default()), Some(&[Fed::Tasks])).is_err());
        assert!(cursor.is_of([3].into_iter()).is_ok() && cursor.is_of([0, 3].into_iter()).is_err());
    }
}
