//! Where in the text a path of the form stands, whichever of its short notations the author chose.

use super::tree::{Content, Node, Place};

/// Where something stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'n> {
    /// The name before it, or the item of a list.
    pub(super) key: Place,
    pub(super) node: &'n Node,
    /// It is the thing itself, not only what holds the place where it would stand.
    pub(super) exact: bool,
}

/// What stands at a path such as `steps[1].ok[0].when`, or else the innermost thing around it.
pub(super) fn find<'n>(root: &'n Node, path: &str) -> Spot<'n> {
    let mut spot = Spot { key: root.at, node: root, exact: true };
    let mut rest = path;
    while !rest.is_empty() {
        match step(spot, rest) {
            Some((next, left)) => (spot, rest) = (next, left),
            None => return Spot { exact: false, ..spot },
        }
    }
    spot
}

/// One segment further, and what is left of the path.
fn step<'n, 'p>(spot: Spot<'n>, rest: &'p str) -> Option<(Spot<'n>, &'p str)> {
    let index = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match (&spot.node.content, index) {
        (Content::List(items), Some((index, left))) => {
            let node = items.get(index.parse::<usize>().ok()?)?;
            Some((Spot { key: node.at, node, ..spot }, left))
        }
        // One stands where a list may.
        (Content::Map(_) | Content::Scalar { .. }, Some(("0", left))) => Some((spot, left)),
        (Content::Map(entries), None) => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            // Names may hold dots: the longest that fits is meant.
            let fits = |name: &str| {
                rest.strip_prefix(name).filter(|left| left.is_empty() || left.starts_with(['.', '[']))
            };
            let found = entries.iter().filter_map(|(key, node)| Some((key, node, fits(&key.text)?)));
            let (key, node, left) = found.max_by_key(|(key, ..)| key.text.len())?;
            Some((Spot { key: key.at, node, ..spot }, left))
        }
        // A name stands where a map may, whose first field it is.
        (Content::Scalar { .. }, None) => {
            let rest = rest.strip_prefix('.')?;
            Some((spot, &rest[rest.find(['.', '[']).unwrap_or(rest.len())..]))
        }
        (Content::Map(_) | Content::Scalar { .. }, Some(_)) | (Content::List(_), None) => None,
    }
}
