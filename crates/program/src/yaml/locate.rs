//! Position of a path of the form in the text, for every short notation.

use super::tree::{Content, Node, Position};

/// Location of a path in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location<'n> {
    /// Position of the name before the value, or of the list item.
    pub(super) key: Position,
    pub(super) node: &'n Node,
    /// Whether this is the value itself and not an enclosing value.
    pub(super) exact: bool,
}

/// Returns the location of a path such as `steps[1].ok[0].when`, or of the innermost value that
/// encloses it.
pub(super) fn locate<'n>(root: &'n Node, path: &str) -> Location<'n> {
    let mut spot = Location {
        key: root.at,
        node: root,
        exact: true,
    };

    let mut rest = path;
    while !rest.is_empty() {
        match step(spot, rest) {
            Some((next, left)) => {
                spot = next;
                rest = left;
            }
            None => {
                return Location {
                    exact: false,
                    ..spot
                };
            }
        }
    }
    spot
}

/// Resolves one segment and returns the rest of the path.
fn step<'n, 'p>(spot: Location<'n>, rest: &'p str) -> Option<(Location<'n>, &'p str)> {
    let index = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match (&spot.node.content, index) {
        (Content::List(items), Some((index, left))) => {
            let node = items.get(index.parse::<usize>().ok()?)?;
            Some((
                Location {
                    key: node.at,
                    node,
                    ..spot
                },
                left,
            ))
        }
        // A single value is allowed in place of a list.
        (Content::Map(_) | Content::Scalar { .. }, Some(("0", left))) => Some((spot, left)),
        (Content::Map(entries), None) => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);

            // Names can contain dots: the longest match applies.
            let found = entries.iter().filter_map(|(key, node)| {
                let left = rest.strip_prefix(key.text.as_str())?;
                let is_segment = left.is_empty() || left.starts_with(['.', '[']);
                is_segment.then_some((key, node, left))
            });
            let (key, node, left) = found.max_by_key(|(key, ..)| key.text.len())?;
            Some((
                Location {
                    key: key.at,
                    node,
                    ..spot
                },
                left,
            ))
        }
        // A name is allowed in place of a map and is its first field.
        (Content::Scalar { .. }, None) => {
            let rest = rest.strip_prefix('.')?;
            Some((spot, &rest[rest.find(['.', '[']).unwrap_or(rest.len())..]))
        }
        (Content::Map(_) | Content::Scalar { .. }, Some(_)) | (Content::List(_), None) => None,
    }
}
