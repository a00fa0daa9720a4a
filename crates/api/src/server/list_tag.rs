//! Tags of lists: a cursor of a client starts with that of its list, so that another list rejects it.

use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};

/// Tag of a list: a hash of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListTag([u8; 4]);

impl ListTag {
    /// Returns the tag of the list with this path.
    pub(crate) fn of(path: &str) -> Self {
        // Clients may encode the path in different ways.
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let digest = Sha256::digest(decoded);
        Self([digest[0], digest[1], digest[2], digest[3]])
    }

    /// Returns the cursor that a client receives for a position in the list.
    pub(crate) fn cursor(self, position: &str) -> String {
        format!("{}.{position}", hex::encode(self.0))
    }

    /// Returns the position of a cursor; `None` if it is one of another list.
    pub(crate) fn position(self, cursor: &str) -> Option<&str> {
        let tag = hex::encode(self.0);
        cursor.strip_prefix(&tag)?.strip_prefix('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_belongs_to_one_list() {
        let flows = ListTag::of("/v1/flows");
        let cursor = flows.cursor("0.ab");
        assert_eq!(flows.position(&cursor), Some("0.ab"));
        assert_eq!(ListTag::of("/v1/sagas").position(&cursor), None);
        assert_eq!(flows.position("0.ab"), None);

        let encoded = ListTag::of("/v1/flows/a%2Db/lines").cursor("7");
        let plain = ListTag::of("/v1/flows/a-b/lines");
        assert_eq!(plain.position(&encoded), Some("7"));
    }
}
