//! Size and results of a long test.

use std::time::Duration;

/// Returns the size of a long test: the value of this environment variable, or the default.
///
/// # Panics
/// If the variable is not a number.
#[must_use]
pub fn long_run_size(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect("the size is a number"))
}

/// Returns the number of durations, their median, 90th and 99th percentile, and their maximum.
#[must_use]
pub fn distribution(mut durations: Vec<Duration>) -> String {
    durations.sort_unstable();
    let Some(last) = durations.len().checked_sub(1) else {
        return "n 0".to_owned();
    };
    let at = |percent: usize| durations[last * percent / 100];
    format!(
        "n {}, p50 {:.2?}, p90 {:.2?}, p99 {:.2?}, max {:.2?}",
        durations.len(),
        at(50),
        at(90),
        at(99),
        at(100)
    )
}
