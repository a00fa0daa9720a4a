//! Fuzzing without coverage: random inputs that are derived from valid ones.
//!
//! An input fails if it panics, takes longer than 1 min, or needs more than 512 MiB of memory. After a timeout
//! the process exits, because a running parser cannot be stopped in any other way.
//!
//! Each target runs for `ORLOG_FUZZ_SECONDS` from a random seed (`make fuzz` sets 60). Without the variable, the inputs
//! are always the same, so that test runs are reproducible. A failure prints the target, the seed and the input;
//! `ORLOG_FUZZ_SEED=… ORLOG_FUZZ_RUNS=1` reproduces that one input.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Inputs of each target in a test run.
const TEST_RUNS: u64 = 300;

/// Maximum duration of one input, on a loaded machine and without optimization.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum growth of the resident memory of the process during one input, in KiB. Targets that run beside it count too.
const MAX_GROWTH: u64 = 512 << 10;

/// Generates and runs inputs, each with its own seed, until the time limit. `run` returns whether the input was valid.
///
/// # Panics
/// If an input fails, or if no input was valid.
pub fn fuzz<T: Sync>(
    target: &str,
    make: impl Fn(&mut Random) -> T,
    run: impl Fn(&T) -> bool,
    show: impl Fn(&T) -> String + Sync,
) {
    let seconds = number("ORLOG_FUZZ_SECONDS");
    let seed = || {
        if seconds.is_some() {
            Random::any_seed()
        } else {
            1
        }
    };
    let first = number("ORLOG_FUZZ_SEED").unwrap_or_else(seed);
    let max_runs = number("ORLOG_FUZZ_RUNS").unwrap_or(if seconds.is_some() {
        u64::MAX
    } else {
        TEST_RUNS
    });
    let seconds = seconds.unwrap_or(u64::from(u32::MAX));
    println!("{target}: ORLOG_FUZZ_SEED={first}");
    let start = Instant::now();
    let (mut runs, mut accepted, mut slowest, mut largest) = (0, 0, Duration::ZERO, 0);
    while runs < max_runs && (runs == 0 || start.elapsed() < Duration::from_secs(seconds)) {
        let seed = first.wrapping_add(runs);
        let input = make(&mut Random::new(seed));
        let describe = || {
            format!(
                "{target}: failed; ORLOG_FUZZ_SEED={seed} ORLOG_FUZZ_RUNS=1\n{}",
                show(&input)
            )
        };
        let (started, before) = (Instant::now(), reset_peak_memory());
        match with_timeout(describe, || catch_unwind(AssertUnwindSafe(|| run(&input)))) {
            Ok(valid) => accepted += u64::from(valid),
            Err(panic) => {
                println!("{}", describe());
                resume_unwind(panic);
            }
        }
        let grown = peak_memory().saturating_sub(before);
        assert!(
            grown < MAX_GROWTH,
            "{}\nmore memory than allowed: {grown} KiB",
            describe()
        );
        (slowest, largest) = (slowest.max(started.elapsed()), largest.max(grown));
        runs += 1;
    }
    let per_second = runs * 1000
        / u64::try_from(start.elapsed().as_millis())
            .unwrap_or(1)
            .max(1);
    println!(
        "{target}: {runs} inputs, {accepted} of them valid, {per_second}/s, the slowest took {slowest:?}, \
         the largest {largest} KiB"
    );
    assert!(
        max_runs == 1 || accepted > 0,
        "{target}: no input was valid, so the test is too weak"
    );
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number"))
    })
}

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

/// Resets the peak of the resident memory to the current value, and returns it in KiB.
fn reset_peak_memory() -> u64 {
    drop(std::fs::write("/proc/self/clear_refs", "5"));
    peak_memory()
}

/// Returns the peak of the resident memory of this process in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

/// Texts that parsers treat in a special way.
const TOKENS: [&str; 36] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "-0",
    "1e400",
    "18446744073709551616",
    "-9223372036854775809",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "😀",
    "%00",
    "%2F",
    "..",
    "/",
    ".",
    "*",
    ">",
    "=",
    "\r\n",
    " ",
    "\u{7f}",
    "$.",
    "Bearer ",
    "ce-",
    "0000000000000000",
];

/// Changes a valid input a few times: bytes, tokens, and parts of another input. May return it unchanged.
pub fn mutate(random: &mut Random, valid: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..random.below(5) {
        let at = random.below(bytes.len() + 1);
        let to = (at + random.below(24)).min(bytes.len());
        match random.below(9) {
            0 => drop(bytes.drain(at..to)),
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(at..to, random.pick(&TOKENS).bytes())),
            3 => drop(bytes.splice(at..at, random.pick(&TOKENS).bytes())),
            4 => {
                let part = bytes[at..to].repeat(1 + random.below(60));
                bytes.splice(at..to, part);
            }
            5 => {
                let from = random.below(other.len() + 1);
                let part = &other[from..(from + random.below(64)).min(other.len())];
                bytes.splice(at..at, part.iter().copied());
            }
            6 => bytes[at..to].fill(if random.once_in(2) { 0xff } else { 0 }),
            _ => {
                let byte = random.byte();
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
        }
    }
    bytes
}

/// Random number generator with a seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; equal seeds produce equal numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a seed for a run without a configured seed.
    #[expect(
        clippy::disallowed_methods,
        reason = "a random seed; a failure prints it"
    )]
    fn any_seed() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_secs() << 20)
    }

    /// Returns the next number (splitmix64).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).expect("a small number"))
            .expect("below a usize")
    }

    /// Returns any byte.
    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Returns the seed of another generator.
    pub fn seed(&mut self) -> u64 {
        self.next()
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the values.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}
