//! Text report of a simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_simulator::simulate::{SimulationDiff, SimulationReport};

/// Formats the results of a simulation.
pub(crate) fn report(report: &SimulationReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{} events, {} instances",
        report.events, report.instances
    )];

    for (saga, statuses) in &report.statuses {
        lines.push(format!("{saga}: {}", counts(statuses)));
        if let Some(took) = report.durations.get(saga) {
            let show = |millis| span(Duration::from_millis(millis));
            lines.push(format!(
                "  {} ended; duration p50 {}, p90 {}, p99 {}, max {}",
                took.count,
                show(took.p50_millis),
                show(took.p90_millis),
                show(took.p99_millis),
                show(took.max_millis)
            ));
        }

        let steps = report.steps.get(saga).into_iter().flatten();
        lines.extend(steps.map(|(step, states)| format!("  step {step}: {}", counts(states))));
        for (label, found) in [
            ("failed because of", &report.failures),
            ("waits for", &report.waits),
        ] {
            let found = found.get(saga).into_iter().flatten();
            lines.extend(found.map(|(reason, count)| format!("  {label} {reason}: {count}")));
        }
        for (invariant, found) in report.violations.get(saga).into_iter().flatten() {
            lines.push(format!(
                "  VIOLATED {invariant}: {}, first by {}",
                found.count, found.first
            ));
        }
    }

    let parts = [
        ("asked for", &report.work),
        ("timers fired", &report.timers_fired),
        ("dead-lettered", &report.dead_letters),
        ("dead-lettered because", &report.dead_letter_causes),
        ("changed nothing", &report.ignored),
    ];

    for (name, found) in parts {
        lines.extend((!found.is_empty()).then(|| format!("{name}:")));
        lines.extend(
            found
                .iter()
                .map(|(label, count)| format!("  {count:>8}  {label}")),
        );
    }

    lines
}

/// Formats the differences to a second set of definitions.
pub(crate) fn differences(found: &SimulationDiff) -> Vec<String> {
    let mut lines = vec![format!("compared: {} unchanged", found.same)];
    lines.extend(
        found
            .status_changed
            .iter()
            .map(|(change, count)| format!("  {count:>8}  {change}")),
    );

    let others = [
        ("request other work", found.work_differs),
        ("started only before", found.only_before),
        ("start only now", found.only_after),
    ];
    lines.extend(
        others
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(label, count)| format!("  {count:>8}  {label}")),
    );

    for example in &found.examples {
        lines.push(format!("{} {}", example.saga, example.correlation));
        for (sign, run) in [("-", &example.before), ("+", &example.after)] {
            let run = run
                .as_ref()
                .map(|(status, work)| format!("{status}: {}", work.join(", ")));
            lines.push(format!(
                "  {sign} {}",
                run.unwrap_or_else(|| "not begun".to_owned())
            ));
        }
    }

    lines
}

fn counts(counts: &BTreeMap<String, usize>) -> String {
    let parts: Vec<_> = counts
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    parts.join(", ")
}

/// Formats a duration with at most two units: `60d 12h`.
fn span(duration: Duration) -> String {
    let mut left = duration.as_millis();
    let mut parts = Vec::new();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        let count = left / size;
        left %= size;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        }
    }

    parts.truncate(2);
    if parts.is_empty() {
        "0s".to_owned()
    } else {
        parts.join(" ")
    }
}
