//! Fuzzing without coverage: random definitions, expressions and states, derived from valid ones.
//! Nothing panics, every rejection has a short message, and the same input produces the same result
//! twice.
//!
//! An input that takes longer than [`TIMEOUT`] is also a failure. The process then exits, because a
//! running parser cannot be stopped in any other way.
//!
//! Each target runs for `ORLOG_FUZZ_SECONDS` from a random seed (`make fuzz` sets 60). Without the
//! variable, the inputs are always the same, so that test runs are reproducible. A failure prints the
//! target, the seed and the input; `ORLOG_FUZZ_SEED=… ORLOG_FUZZ_RUNS=1` reproduces that one input.

#![expect(
    clippy::disallowed_methods,
    reason = "a fuzzer runs for some seconds; no input depends on the time"
)]

#[path = "fuzz/corpus.rs"]
mod corpus;
#[path = "fuzz/expression.rs"]
mod expression;
#[path = "fuzz/random.rs"]
mod random;
#[path = "fuzz/run.rs"]
mod run;
#[path = "fuzz/state.rs"]
mod state;
#[path = "fuzz/yaml.rs"]
mod yaml;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use random::Random;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Inputs of each target in a test run.
const TEST_RUNS: u64 = 300;

/// Maximum duration of one input, on a loaded machine and without optimization.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs `work`. If it does not end in time, prints `description` and exits the process.
fn with_timeout<T>(description: impl Fn() -> String + Sync, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, waiting) = mpsc::channel::<()>();
        let description = &description;
        scope.spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(TIMEOUT) {
                eprintln!("still busy after {TIMEOUT:?}: {}", description());
                std::process::abort();
            }
        });
        let value = work();
        drop(done);
        value
    })
}

/// Generates and runs inputs, each with its own seed, until the time limit.
fn fuzz<T: Sync>(
    target: &str,
    make: impl Fn(&mut Random) -> T,
    run: impl Fn(&T) -> bool,
    show: impl Fn(&T) -> String + Sync,
) {
    let seconds = number("ORLOG_FUZZ_SECONDS");
    let seed = || if seconds.is_some() { Random::any_seed() } else { 1 };
    let first = number("ORLOG_FUZZ_SEED").unwrap_or_else(seed);
    let max_runs = number("ORLOG_FUZZ_RUNS").unwrap_or(if seconds.is_some() { u64::MAX } else { TEST_RUNS });
    let seconds = seconds.unwrap_or(u64::from(u32::MAX));
    println!("{target}: ORLOG_FUZZ_SEED={first}");
    let start = Instant::now();
    let (mut runs, mut accepted, mut slowest) = (0, 0, Duration::ZERO);
    while runs < max_runs && (runs == 0 || start.elapsed() < Duration::from_secs(seconds)) {
        let seed = first.wrapping_add(runs);
        let input = make(&mut Random::new(seed));
        let describe =
            || format!("{target}: failed; ORLOG_FUZZ_SEED={seed} ORLOG_FUZZ_RUNS=1\n{}", show(&input));
        let started = Instant::now();
        match with_timeout(describe, || catch_unwind(AssertUnwindSafe(|| run(&input)))) {
            Ok(valid) => accepted += u64::from(valid),
            Err(panic) => {
                println!("{}", describe());
                resume_unwind(panic);
            }
        }
        slowest = slowest.max(started.elapsed());
        runs += 1;
    }
    let per_second = runs * 1000 / u64::try_from(start.elapsed().as_millis()).unwrap_or(1).max(1);
    println!(
        "{target}: {runs} inputs, {accepted} of them valid, {per_second}/s, the slowest took {slowest:?}"
    );
    assert!(max_runs == 1 || accepted > 0, "{target}: no input was valid, so the test is too weak");
}

#[test]
fn definitions_never_panic() {
    let corpus = corpus::texts();
    fuzz(
        "yaml",
        |random| yaml::make(random, &corpus),
        yaml::run,
        |(text, seed)| format!("seed {seed}\n{text}"),
    );
}

#[test]
fn expressions_never_panic_and_are_deterministic() {
    fuzz("expression", expression::make, |source| expression::run(source), Clone::clone);
}

#[test]
fn corrupt_states_are_rejected() {
    let sagas = corpus::sagas();
    fuzz(
        "state",
        |random| state::make(random, &sagas),
        |input| state::run(input, &sagas),
        |input| format!("{input:?}"),
    );
}
