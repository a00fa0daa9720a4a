//! The table at the end.

use std::fmt::Write as _;

use crate::reconciliation::{Audit, Kind};

/// Disagreements that are listed; the rest is counted.
const LISTED: usize = 20;

/// The numbers, and everything on which the books do not agree.
pub(super) fn table(audit: &Audit, opened: u64) -> String {
    let figures = audit.figures;
    let rows = [
        ("orders accepted", figures.accepted.to_string()),
        ("started", figures.started.to_string()),
        ("completed", figures.completed.to_string()),
        ("compensated", figures.compensated.to_string()),
        ("  of them timed out", figures.timed_out.to_string()),
        ("effects", figures.effects.to_string()),
        ("retries", figures.retries.to_string()),
        ("delivered twice", figures.duplicates.to_string()),
        ("breaker opened", opened.to_string()),
        ("lost", audit.count(Kind::Lost).to_string()),
        ("doubled", audit.count(Kind::Doubled).to_string()),
        ("wrong", audit.count(Kind::Wrong).to_string()),
    ];
    let mut text = String::from("\nthe runner's record against the shop's book\n");
    for (name, value) in rows {
        writeln!(text, "  {name:<22}{value:>8}").expect("a string takes everything");
    }
    for found in audit.disagreements.iter().take(LISTED) {
        writeln!(text, "  {found}").expect("a string takes everything");
    }
    let more = audit.disagreements.len().saturating_sub(LISTED);
    if more > 0 {
        writeln!(text, "  … and {more} more").expect("a string takes everything");
    }
    text.push_str(if audit.is_clean() { "they agree\n" } else { "they do NOT agree\n" });
    text
}
