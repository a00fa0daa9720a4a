//! Result table of the demo.

use std::fmt::Write as _;

use crate::reconciliation::{MismatchKind, Reconciliation};

/// Maximum number of listed mismatches; the others are counted.
const LISTED: usize = 20;

/// Returns the totals and all mismatches as text.
pub(super) fn table(audit: &Reconciliation, opened: u64) -> String {
    let totals = audit.totals;
    let rows = [
        ("orders accepted", totals.accepted.to_string()),
        ("started", totals.started.to_string()),
        ("completed", totals.completed.to_string()),
        ("compensated", totals.compensated.to_string()),
        ("  of them timed out", totals.timed_out.to_string()),
        ("effects", totals.effects.to_string()),
        ("retries", totals.retries.to_string()),
        ("delivered twice", totals.duplicates.to_string()),
        ("breaker opened", opened.to_string()),
        ("lost", audit.count(MismatchKind::Lost).to_string()),
        (
            "duplicated",
            audit.count(MismatchKind::Duplicated).to_string(),
        ),
        (
            "unexpected",
            audit.count(MismatchKind::Unexpected).to_string(),
        ),
    ];
    let mut text = String::from("\nreconciliation of the runner's and the shop's records\n");
    for (name, value) in rows {
        writeln!(text, "  {name:<22}{value:>8}").expect("writing to a string cannot fail");
    }
    for found in audit.mismatches.iter().take(LISTED) {
        writeln!(text, "  {found}").expect("writing to a string cannot fail");
    }
    let more = audit.mismatches.len().saturating_sub(LISTED);
    if more > 0 {
        writeln!(text, "  … and {more} more").expect("writing to a string cannot fail");
    }
    text.push_str(if audit.is_clean() {
        "the records match\n"
    } else {
        "the records do NOT match\n"
    });
    text
}
