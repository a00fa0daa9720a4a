//! `indexOf` and `lastIndexOf` in time linear in the text; CEL's own compare the text at each
//! position.
//!
//! Positions count code points, as in CEL.

use cel::ExecutionError;

use super::cost::{charge, text_cost};

/// Arguments of a search.
pub(super) struct Search<'a> {
    pub(super) text: &'a str,
    pub(super) needle: &'a str,
    /// Position from which to search, within the text if the needle is not empty.
    pub(super) offset: Option<i64>,
}

/// Evaluates `text.indexOf(needle)` and `text.indexOf(needle, offset)`.
pub(super) fn index_of(search: &Search<'_>) -> Result<Option<usize>, ExecutionError> {
    let (text, needle, offset) = read("indexOf", search)?;
    let offset = offset.unwrap_or(0);
    if needle.is_empty() {
        return Ok(Some(offset.min(text.chars().count())));
    }

    let rest = &text[byte_of(text, offset)..];
    Ok(rest
        .find(needle)
        .map(|at| offset + rest[..at].chars().count()))
}

/// Evaluates `text.lastIndexOf(needle)` and `text.lastIndexOf(needle, offset)`.
pub(super) fn last_index_of(search: &Search<'_>) -> Result<Option<usize>, ExecutionError> {
    let (text, needle, offset) = read("lastIndexOf", search)?;
    if needle.is_empty() {
        let length = text.chars().count();
        return Ok(Some(offset.map_or(length, |offset| offset.min(length))));
    }

    // A match that starts at the offset or before it ends at this byte or before it.
    let end = offset.map_or(text.len(), |offset| {
        byte_of(text, offset).saturating_add(needle.len())
    });
    // The sum can lie within a character, where no match can end.
    let searched = &text[..text.floor_char_boundary(end)];
    Ok(searched.rfind(needle).map(|at| text[..at].chars().count()))
}

/// Charges for the search and checks its offset.
fn read<'a>(
    function: &str,
    search: &Search<'a>,
) -> Result<(&'a str, &'a str, Option<usize>), ExecutionError> {
    let Search {
        text,
        needle,
        offset,
    } = *search;
    charge(text_cost(text.len().saturating_add(needle.len())))?;

    let Some(offset) = offset else {
        return Ok((text, needle, None));
    };

    let valid = usize::try_from(offset)
        .ok()
        .filter(|offset| needle.is_empty() || *offset < text.chars().count());
    let Some(valid) = valid else {
        let reason = format!("index out of range: {offset}");
        return Err(ExecutionError::function_error(function, reason));
    };
    Ok((text, needle, Some(valid)))
}

fn byte_of(text: &str, position: usize) -> usize {
    text.char_indices()
        .nth(position)
        .map_or(text.len(), |(byte, _)| byte)
}
