//! What docs/export.md says is so.

use crate::harness::process::orlog;
use crate::projection::tables::done;

#[tokio::test]
async fn documented_tables_match() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/export.md")).unwrap();
    let (schema, _) = done(orlog(&["export", "--print-schema"])).await;
    assert!(
        page.contains(schema.trim()),
        "docs/export.md does not show what --print-schema prints"
    );
}
