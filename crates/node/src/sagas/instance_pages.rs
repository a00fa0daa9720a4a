//! Pages of instances over the shards of this process, and their cursors.

use orlog_store::{FoundInstance, InstanceQuery, Page};

use crate::reads::StoreScope;

/// Text that is not a cursor of a query for instances.
#[derive(Debug, thiserror::Error)]
#[error("not a cursor of this query; start without a cursor")]
pub struct InvalidCursor;

/// Parses a cursor: the number of a shard, a dot, and the cursor within the shard, which is empty
/// at its start.
///
/// # Errors
/// If the text has another form.
pub fn parse_cursor(cursor: Option<&str>) -> Result<(usize, Option<String>), InvalidCursor> {
    let Some(cursor) = cursor else {
        return Ok((0, None));
    };

    let parts = cursor
        .split_once('.')
        .and_then(|(shard, rest)| Some((shard.parse().ok()?, rest)));
    let (shard, rest) = parts.ok_or(InvalidCursor)?;

    Ok((shard, Some(rest.to_owned()).filter(|rest| !rest.is_empty())))
}

/// Instance in a result, with its shard.
pub struct LocatedInstance {
    /// Number of the shard.
    pub shard: u16,
    /// The instance, and its position in the query.
    pub found: FoundInstance,
}

impl LocatedInstance {
    /// Returns the cursor after this instance.
    #[must_use]
    pub fn cursor(&self) -> String {
        format!("{}.{}", self.shard, self.found.cursor())
    }
}

/// Scans the shards in sequence, starting at `first`, until the page is full. Blocks.
///
/// # Errors
/// If a store cannot be read.
pub fn find(
    scope: &StoreScope,
    mut query: InstanceQuery,
    first: usize,
) -> Result<Page<LocatedInstance>, orlog_store::Error> {
    let mut all = Page {
        items: Vec::new(),
        next: None,
        scanned: 0,
    };
    let limit = query.limit;
    let scan_limit = query.scan_limit;
    let shards = scope
        .numbered_readers()
        .skip_while(|(index, _)| usize::from(*index) < first);

    for (shard, reader) in shards {
        if usize::from(shard) != first {
            // The cursor belongs to the first shard, which may have moved to another process.
            query.cursor = None;
        }

        // The page ended with the previous shard: the next one starts at the first row of this
        // shard.
        if all.items.len() >= limit || all.scanned >= scan_limit {
            all.next = Some(format!("{shard}."));
            break;
        }

        query.limit = limit - all.items.len();
        query.scan_limit = scan_limit - all.scanned;
        let page = reader.instances(&query)?;
        let located = page
            .items
            .into_iter()
            .map(|found| LocatedInstance { shard, found });
        all.items.extend(located);
        all.scanned += page.scanned;

        if let Some(next) = page.next {
            all.next = Some(format!("{shard}.{next}"));
            break;
        }
    }

    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_encodes_shard_and_position() {
        assert_eq!(parse_cursor(None).unwrap(), (0, None));
        assert_eq!(parse_cursor(Some("2.")).unwrap(), (2, None));
        assert_eq!(
            parse_cursor(Some("2.ab")).unwrap(),
            (2, Some("ab".to_owned()))
        );
        for invalid in ["", "ab", "x.ab", "-1.ab"] {
            assert!(parse_cursor(Some(invalid)).is_err(), "{invalid}");
        }
    }
}
