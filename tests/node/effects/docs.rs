//! Examples of the pages in `docs/providers`, copied as a reader would.

use std::path::Path;

/// Returns the fenced block whose first line names this file, without that line.
#[track_caller]
pub(crate) fn block(page: &str, file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/providers")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text
        .split("\n```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'));
    let lines = blocks.filter_map(|(_, block)| block.split_once('\n'));
    let mut found = lines
        .filter(|(first, _)| first.ends_with(file))
        .map(|(_, rest)| rest.to_owned());
    found
        .next()
        .unwrap_or_else(|| panic!("{page} shows no {file}"))
}

/// Replaces a part of an example; panics if it is missing.
#[track_caller]
pub(crate) fn with(text: &str, piece: &str, other: &str) -> String {
    assert!(
        text.contains(piece),
        "{piece} is not in the example:\n{text}"
    );
    text.replace(piece, other)
}
