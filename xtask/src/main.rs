//! `cargo xtask` runs the tasks of this repository that are too complex for a shell script.
//!
//! `tidy` checks the code rules that no compiler checks. It prints one block per violation: `file:line`,
//! reason and remedy; it exits with 1 if there are violations, and with 2 if it could not run.
//! `readability` prints how dense the code of each crate is. `requirements` prints the requirements
//! with their tests. `bench` runs the benchmarks.

mod bench;
mod error;
mod readability;
mod requirements;
mod rules;
mod source;
mod tidy;
mod tree;
mod violation;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

commands:
  tidy          check the code rules (sizes, layers, cycles, boundaries, texts, docs)
  readability   print the density of each crate: blank lines, comments, tuples, closures
  requirements  print the requirements with their tests
  bench         run all benchmarks and print their medians in one table";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory in the root of the checkout");
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(root),
        Some("readability") => readability::run(root),
        Some("requirements") => requirements::run(root),
        Some("bench") => bench::run(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
