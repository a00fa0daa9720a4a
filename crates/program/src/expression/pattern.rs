//! Regular expressions for `matches`: of bounded size, and kept, so that a condition does not compile its own each time.

use std::cell::RefCell;

use regex::{Regex, RegexBuilder};

use crate::limits::{MAX_PATTERN_BYTES, MAX_PATTERN_PROGRAM_BYTES};

/// The cost of making a pattern, in units, whether it was kept from before or not: the same input costs the same.
pub(super) const PATTERN_UNITS: usize = 100;
/// The patterns a thread keeps.
const KEPT: usize = 32;

/// The pattern, ready. Its engine takes time linear in the text, whatever the pattern.
pub(super) fn pattern_of(pattern: &str) -> Result<Regex, String> {
    thread_local! {
        static READY: RefCell<Vec<Regex>> = const { RefCell::new(Vec::new()) };
    }
    READY.with_borrow_mut(|ready| {
        if let Some(found) = ready.iter().find(|known| known.as_str() == pattern) {
            return Ok(found.clone());
        }
        let made = compile_pattern(pattern)?;
        if ready.len() == KEPT {
            ready.remove(0);
        }
        ready.push(made.clone());
        Ok(made)
    })
}

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("the pattern is {} bytes long, the limit is {MAX_PATTERN_BYTES}", pattern.len()));
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(MAX_PATTERN_PROGRAM_BYTES).dfa_size_limit(MAX_PATTERN_PROGRAM_BYTES).nest_limit(32);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the pattern repeats too much".to_owned(),
        other => {
            let text = other.to_string();
            let reason = text.lines().rev().find_map(|line| line.strip_prefix("error: "));
            format!("this is no pattern: {}", reason.unwrap_or("it does not parse"))
        }
    })
}
