//! A simulation in lines for people.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_simulator::simulate::{Differences, Report};

/// What became of everything.
pub(super) fn report(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("{} events, {} instances", report.events, report.instances)];
    for (saga, statuses) in &report.statuses {
        lines.push(format!("{saga}: {}", counts(statuses)));
        if let Some(took) = report.durations.get(saga) {
            let show = |millis| span(Duration::from_millis(millis));
            lines.push(format!(
                "  {} ended; took p50 {}, p90 {}, p99 {}, at most {}",
                took.count,
                show(took.p50_millis),
                show(took.p90_millis),
                show(took.p99_millis),
                show(took.max_millis)
            ));
        }
        let steps = report.steps.get(saga).into_iter().flatten();
        lines.extend(steps.map(|(step, marks)| format!("  step {step}: {}", counts(marks))));
    }
    let parts = [
        ("asked for", &report.work),
        ("timers fired", &report.timers_fired),
        ("set aside", &report.dead_letters),
        ("changed nothing", &report.ignored),
    ];
    for (name, found) in parts {
        lines.extend((!found.is_empty()).then(|| format!("{name}:")));
        lines.extend(found.iter().map(|(what, count)| format!("  {count:>8}  {what}")));
    }
    lines
}

/// What is different with other definitions.
pub(super) fn differences(found: &Differences) -> Vec<String> {
    let mut lines = vec![format!("compared: {} are the same", found.same)];
    lines.extend(found.status_changed.iter().map(|(change, count)| format!("  {count:>8}  {change}")));
    let others = [
        ("ask for other things", found.work_differs),
        ("began only before", found.only_before),
        ("begin only now", found.only_after),
    ];
    lines.extend(others.iter().filter(|(_, n)| *n > 0).map(|(what, count)| format!("  {count:>8}  {what}")));
    for example in &found.examples {
        lines.push(format!("{} {}", example.saga, example.correlation));
        for (sign, life) in [("-", &example.before), ("+", &example.after)] {
            let life = life.as_ref().map(|(status, work)| format!("{status}: {}", work.join(", ")));
            lines.push(format!("  {sign} {}", life.unwrap_or_else(|| "not begun".to_owned())));
        }
    }
    lines
}

fn counts(counts: &BTreeMap<String, usize>) -> String {
    let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    parts.join(", ")
}

/// Two units at most: `60d 12h`.
fn span(duration: Duration) -> String {
    let mut left = duration.as_millis();
    let mut parts = Vec::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        let count = left / size;
        left %= size;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        }
    }
    parts.truncate(2);
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}
