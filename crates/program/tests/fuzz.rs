//! Fuzzing without coverage: random definitions, expressions and states, made from those that are valid. Nothing panics,
//! whatever is refused is refused in few words, and the same input gives the same twice.
//!
//! An input that takes longer than [`PATIENCE`] is a failure too; the process ends then, as nothing else ends a parser.
//!
//! Each target runs for `ORLOG_FUZZ_SECONDS` from a random seed (`make fuzz` sets 60); without it, the same inputs every time,
//! so that a test run is the same for everybody. A failure prints the target, the seed and the input;
//! `ORLOG_FUZZ_SEED=… ORLOG_FUZZ_RUNS=1` makes that one input again.

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
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Inputs of each target in a test run.
const TEST_RUNS: u64 = 300;

/// What one input may take, on a loaded machine and without optimization.
const PATIENCE: Duration = Duration::from_mins(1);

/// Does it; ends the process, telling `what` was under way, where it does not come to an end.
fn with_patience<T>(what: impl Fn() -> String + Sync, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, waiting) = mpsc::channel::<()>();
        let what = &what;
        scope.spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(PATIENCE) {
                eprintln!("still busy after {PATIENCE:?}: {}", what());
                std::process::abort();
            }
        });
        let value = work();
        drop(done);
        value
    })
}

/// Makes inputs and runs them, each with a seed of its own, until the time is over.
fn fuzz<T: Sync>(
    target: &str,
    make: impl Fn(&mut Random) -> T,
    run: impl Fn(&T) -> bool,
    show: impl Fn(&T) -> String + Sync,
) {
    let seconds = number("ORLOG_FUZZ_SECONDS");
    let seed = || if seconds.is_some() { Random::any_seed() } else { 1 };
    let first = number("ORLOG_FUZZ_SEED").unwrap_or_else(seed);
    let most = number("ORLOG_FUZZ_RUNS").unwrap_or(if seconds.is_some() { u64::MAX } else { TEST_RUNS });
    let seconds = seconds.unwrap_or(u64::from(u32::MAX));
    println!("{target}: ORLOG_FUZZ_SEED={first}");
    let begin = Instant::now();
    let (mut runs, mut taken, mut slowest) = (0, 0, Duration::ZERO);
    while runs < most && (runs == 0 || begin.elapsed() < Duration::from_secs(seconds)) {
        let seed = first.wrapping_add(runs);
        let input = make(&mut Random::new(seed));
        let again =
            || format!("{target}: failed; ORLOG_FUZZ_SEED={seed} ORLOG_FUZZ_RUNS=1\n{}", show(&input));
        let started = Instant::now();
        match with_patience(again, || catch_unwind(AssertUnwindSafe(|| run(&input)))) {
            Ok(valid) => taken += u64::from(valid),
            Err(panic) => {
                println!("{}", again());
                resume_unwind(panic);
            }
        }
        slowest = slowest.max(started.elapsed());
        runs += 1;
    }
    let per_second = runs * 1000 / u64::try_from(begin.elapsed().as_millis()).unwrap_or(1).max(1);
    println!("{target}: {runs} inputs, {taken} of them valid, {per_second}/s, the slowest took {slowest:?}");
    assert!(most == 1 || taken > 0, "{target}: no input was valid, so little was tried");
}

#[test]
fn definitions_never_panic() {
    let corpus = corpus::texts();
    fuzz(
        "yaml",
        |random| yaml::make(random, &corpus),
        yaml::run,
        |(text, seed)| format!("life {seed}\n{text}"),
    );
}

#[test]
fn expressions_never_panic_and_give_the_same_twice() {
    fuzz("expression", expression::make, |source| expression::run(source), Clone::clone);
}

#[test]
fn states_that_were_damaged_are_refused() {
    let sagas = corpus::sagas();
    fuzz(
        "state",
        |random| state::make(random, &sagas),
        |input| state::run(input, &sagas),
        |input| format!("{input:?}"),
    );
}
