//! Tables of the results in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::load::{LOADS, Measurement, Run};
use crate::system::System;

/// Returns the tables: median of the runs, and in parentheses the smallest and the largest value.
pub(crate) fn tables(results: &BTreeMap<System, Vec<Run>>) -> String {
    let mut text = String::new();
    for (index, in_flight) in LOADS.iter().enumerate() {
        let load = if *in_flight == 0 {
            "10 starts per second".to_owned()
        } else {
            format!("{in_flight} sagas in flight")
        };
        line(&mut text, &format!("\n{load}:\n"));
        line(
            &mut text,
            "| | sagas/s | p50 ms | p99 ms | CPU µs/saga: server | service | load generator |",
        );
        line(&mut text, "|---|---|---|---|---|---|---|");
        for (system, runs) in results {
            let cell = |value: &dyn Fn(&Measurement) -> f64| {
                summary(runs.iter().map(|run| value(&run.loads[index])))
            };
            let cpu = [0, 1, 2].map(|process| cell(&|load| load.cpu_us[process]));
            let [rate, p50, p99] = [
                cell(&|load| load.sagas_per_s),
                cell(&|load| load.p50_ms),
                cell(&|load| load.p99_ms),
            ];
            line(
                &mut text,
                &format!(
                    "| {} | {rate} | {p50} | {p99} | {} |",
                    system.title(),
                    cpu.join(" | ")
                ),
            );
        }
    }
    line(&mut text, "\nAll loads of a run:\n");
    line(
        &mut text,
        "| | sagas | peak memory MiB: server | service | load generator | load average before |",
    );
    line(&mut text, "|---|---|---|---|---|---|");
    for (system, runs) in results {
        #[expect(clippy::cast_precision_loss, reason = "less than 2^52")]
        let sagas = summary(runs.iter().map(|run| run.sagas as f64));
        let peak = [0, 1, 2].map(|process| summary(runs.iter().map(|run| run.peak_mib[process])));
        let average = summary(runs.iter().map(|run| run.load_average));
        line(
            &mut text,
            &format!(
                "| {} | {sagas} | {} | {average} |",
                system.title(),
                peak.join(" | ")
            ),
        );
    }
    text
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string accepts all text");
}

fn summary(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (first, last) = (
        values.first().copied().unwrap_or_default(),
        values.last().copied().unwrap_or_default(),
    );
    let median = values.get(values.len() / 2).copied().unwrap_or_default();
    if values.len() < 2 {
        number(median)
    } else {
        format!("{} ({}–{})", number(median), number(first), number(last))
    }
}

/// Formats a value with at least two digits, and with separators between thousands.
fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}
