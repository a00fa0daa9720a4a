//! Shadows: the recorded inputs of a live instance, applied to another definition of its saga.
//!
//! Both definitions decide the same inputs at the same times, in memory: nothing is executed. The
//! ids of work derive from the run, the step and the round, so a request of the candidate has the
//! id of its counterpart, and the recorded result of the live instance is also the result of the
//! candidate. A request without a counterpart has no result: the instance has *diverged*, and the
//! comparison ends there.
//!
//! | what the candidate does | continues |
//! |---|---|
//! | requests the same work with another payload or options | yes, with the recorded result |
//! | requests other work, or more work that has a result | no |
//! | requests less work, other facts, timers or tasks | yes |
//! | does not consume, correlate or apply an input | yes, without it |
//! | does not start, fails to apply an input, crashes, or never rests | no |

mod case;
mod differences;
mod json_diff;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use case::{Comparison, Difference, ShadowCase};
use run::{CandidateRun, LiveRun};

/// Compares the candidate with a recorded instance. `is_over` ends a computation that takes too
/// long.
#[must_use]
pub fn compare(case: &ShadowCase<'_>, is_over: &dyn Fn() -> bool) -> Comparison {
    // A panic of the candidate in a decision is a difference; any other one must not reach the
    // page.
    catch_unwind(AssertUnwindSafe(|| compared(case, is_over)))
        .unwrap_or(Comparison::Skipped("its comparison panicked"))
}

fn compared(case: &ShadowCase<'_>, is_over: &dyn Fn() -> bool) -> Comparison {
    let live = match LiveRun::of(case, is_over) {
        Ok(live) => live,
        Err(reason) => return Comparison::Skipped(reason),
    };
    // After the live run: only a record that reproduces its instance can be compared.
    let candidate = match CandidateRun::of(case, &live, is_over) {
        Ok(candidate) => candidate,
        Err(reason) => return Comparison::Skipped(reason),
    };

    let found = differences::all(case, &live, candidate);
    if found.is_empty() {
        Comparison::Equal
    } else {
        Comparison::Different(found)
    }
}

#[cfg(test)]
mod tests;
