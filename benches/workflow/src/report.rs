//! Tables of the results in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::case::{Case, Group};
use crate::load::Measurement;

/// Measurements of all rounds.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<Group, BTreeMap<Case, Vec<Measurement>>>);

impl Results {
    pub(crate) fn add(&mut self, case: Case, measurement: Measurement) {
        self.0
            .entry(case.group())
            .or_default()
            .entry(case)
            .or_default()
            .push(measurement);
    }

    /// Returns a table with the median of the rounds, and in parentheses the smallest and the largest value. The ratio is that of
    /// the medians, to the fastest row of sayiir.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        line(
            &mut text,
            "| | in flight | | workflows/s | CPU µs/workflow | ratio |",
        );
        line(&mut text, "|---|---|---|---|---|---|");
        for (group, cases) in &self.0 {
            let rate = |case: &Case| {
                cases
                    .get(case)
                    .map_or(0.0, |all| median(all.iter().map(|one| one.rate)))
            };
            let other = cases
                .keys()
                .filter(|case| !case.is_orlog())
                .map(rate)
                .max_by(f64::total_cmp);
            for (case, all) in cases {
                let ratio = other
                    .filter(|_| case.is_orlog())
                    .map(|other| format!("{:.1}", rate(case) / other));
                line(
                    &mut text,
                    &format!(
                        "| {} | {} | {} | {} | {} | {} |",
                        group.title(),
                        group.in_flight(),
                        case.title(),
                        summary(all.iter().map(|one| one.rate)),
                        summary(all.iter().map(|one| one.cpu_us)),
                        ratio.unwrap_or_default()
                    ),
                );
            }
        }
        text
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string accepts all text");
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn summary(values: impl Iterator<Item = f64>) -> String {
    let values = sorted(values);
    let middle = number(median(values.iter().copied()));
    match (values.first(), values.last()) {
        (Some(first), Some(last)) if values.len() > 1 => {
            format!("{middle} ({}–{})", number(*first), number(*last))
        }
        _ => middle,
    }
}

/// Formats a value with at least two digits, and with separators between thousands.
fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}
