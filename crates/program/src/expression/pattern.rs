//! Regular expressions of `matches`: limited in size and cached, so that a condition does not
//! compile its own each time.

use std::cell::RefCell;

use regex::{Regex, RegexBuilder};

use crate::limits::{MAX_PATTERN_BYTES, MAX_PATTERN_PROGRAM_BYTES};

/// Cost of a pattern in units, cached or not: the same input has the same cost.
pub(super) const PATTERN_UNITS: usize = 100;
/// Number of cached patterns per thread.
const CACHE_CAPACITY: usize = 32;

/// Returns the compiled pattern, from a cache of the thread: CEL calls `matches` without the
/// context of the evaluation. Matching takes time linear in the text for any pattern.
pub(super) fn pattern_of(pattern: &str) -> Result<Regex, String> {
    thread_local! {
        static CACHE: RefCell<Vec<Regex>> = const { RefCell::new(Vec::new()) };
    }
    CACHE.with_borrow_mut(|cached| {
        // The cache affects neither results nor costs.
        if let Some(found) = cached.iter().find(|known| known.as_str() == pattern) {
            return Ok(found.clone());
        }

        let compiled = compile_pattern(pattern)?;
        // The patterns of payloads are unbounded in number, so the oldest one leaves the cache.
        if cached.len() == CACHE_CAPACITY {
            cached.remove(0);
        }
        cached.push(compiled.clone());
        Ok(compiled)
    })
}

/// Returns the cost factor of a pattern for each unit of text.
pub(super) fn pattern_weight(pattern: &str) -> usize {
    let bounds = pattern
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let counts = bounds.filter_map(|bounds| {
        bounds
            .split(',')
            .filter_map(|n| n.parse::<usize>().ok())
            .max()
    });

    // Matching takes up to one operation for each byte of the text and each state of the pattern,
    // and a counted repetition multiplies the states.
    let repetitions = counts.fold(1_usize, |product, count| {
        product.saturating_mul(count.max(1))
    });
    let states = pattern.len().saturating_mul(repetitions).min(MAX_STATES);
    4 + states / STATES_PER_UNIT
}

/// Maximum number of states of a pattern within [`MAX_PATTERN_PROGRAM_BYTES`].
const MAX_STATES: usize = MAX_PATTERN_PROGRAM_BYTES / 16;
/// States that the minimum weight includes.
const STATES_PER_UNIT: usize = 64;

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!(
            "the pattern has {} bytes; the limit is {MAX_PATTERN_BYTES}",
            pattern.len()
        ));
    }

    let mut builder = RegexBuilder::new(pattern);
    builder
        .size_limit(MAX_PATTERN_PROGRAM_BYTES)
        .dfa_size_limit(MAX_PATTERN_PROGRAM_BYTES)
        .nest_limit(32);

    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the compiled pattern is too large".to_owned(),
        other => {
            let text = other.to_string();
            let reason = text
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("error: "));
            format!("invalid pattern: {}", reason.unwrap_or("syntax error"))
        }
    })
}
