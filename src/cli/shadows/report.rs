//! Report of a shadow as text.

use serde_json::Value;

use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;

/// Prints a shadow with its counts.
pub(super) fn print_summary(shadow: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(shadow);
    }

    console.status(
        &format!("{}: ", text(shadow, "saga")),
        &text(shadow, "status"),
        "",
    )?;

    let definition = |side: &str| {
        let hash: String = text(&shadow[side], "hash").chars().take(8).collect();
        format!("version {}, {hash}", text(&shadow[side], "version"))
    };
    let compared = format!(
        "{} instances: {} equal, {} different",
        text(shadow, "compared"),
        text(shadow, "equal"),
        text(shadow, "different")
    );

    // These were compared up to their last input, so that a later difference is possible.
    let unfinished = text(shadow, "unfinished");
    let lines = [
        ("live", definition("live")),
        (
            "candidate",
            format!("{}, {}", definition("candidate"), text(shadow, "file")),
        ),
        ("sample", text(shadow, "sample")),
        ("from", text(shadow, "from")),
        ("until", text(shadow, "until")),
        ("user", text(shadow, "user")),
        ("reason", text(shadow, "reason")),
        ("compared", compared),
        (
            "unfinished",
            if unfinished == "0" {
                String::new()
            } else {
                format!("{unfinished} of them had not ended")
            },
        ),
        ("error", text(shadow, "error")),
    ];

    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 14, &value)?;
    }
    for (reason, count) in shadow["skipped"].as_object().into_iter().flatten() {
        console.field("  skipped", 14, &format!("{count}: {reason}"))?;
    }
    Ok(())
}

/// Prints a shadow, and each kind of difference with its first instance.
pub(super) fn print(shadow: &Value, console: &Console) -> Result<(), CommandError> {
    print_summary(shadow, console)?;
    if console.is_json() {
        return Ok(());
    }

    for difference in items(shadow, "differences") {
        console.line("")?;
        console.line(&format!(
            "{} x  {}",
            text(difference, "count"),
            text(difference, "kind")
        ))?;

        for (side, sign) in [("live", '-'), ("candidate", '+')] {
            if let Some(value) = difference.get(side) {
                console.line(&format!("     {sign} {value}"))?;
            }
        }

        let ids = items(difference, "instances")
            .iter()
            .filter_map(Value::as_str);
        let ids: Vec<_> = ids.filter_map(|path| path.rsplit('/').next()).collect();
        console.line(&format!("     instances: {}", ids.join(", ")))?;
    }

    let other = text(shadow, "other_differences");
    // The node stores a bounded number of kinds.
    if other != "0" {
        note(&format!(
            "{other} differences of further kinds are not listed"
        ));
    }
    Ok(())
}

/// Returns the number of instances that were not compared.
pub(super) fn skipped(shadow: &Value) -> u64 {
    shadow["skipped"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, count)| count.as_u64())
        .sum()
}
